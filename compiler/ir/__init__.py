"""The SSA intermediate representation: dims, types, op declarations, graphs, text, evaluation."""
