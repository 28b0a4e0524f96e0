"""`python -m graphwright`: the command line."""

from __future__ import annotations

from graphwright.compiler.cli import main

main()
