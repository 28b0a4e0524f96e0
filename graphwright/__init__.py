"""graphwright: a graph-level inference compiler."""

__version__ = "0.1.0"
