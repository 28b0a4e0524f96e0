"""The command line: `graphwright check | compile | run | bench | inspect | verify | viz`."""

from __future__ import annotations


def main() -> None:
    """The console script.  Ends the process with the exit code that the error class names."""
    from graphwright.compiler.cli.command import run_command_line

    run_command_line()
