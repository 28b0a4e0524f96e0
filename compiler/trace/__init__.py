"""The trace of a compilation: one append-only file of JSON lines, and its replay (docs/trace.md)."""

from graphwright.compiler.trace.reader import PassTrace, State, Step, Trace, parse_trace, read_trace
from graphwright.compiler.trace.writer import TraceWriter

__all__ = ["PassTrace", "State", "Step", "Trace", "TraceWriter", "parse_trace", "read_trace"]
