"""The choice among the ways of each emitter: by cost model, lock file, database, or timing on a GPU."""
