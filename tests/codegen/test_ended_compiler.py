"""A C++ compiler that a signal ends is no fault of the generated code: nothing is kept of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from graphwright.compiler.codegen.build import _compile
from graphwright.compiler.codegen.toolchain import Toolchain
from graphwright.errors import CompileError, GraphwrightError, ResourceError


def compiled(tmp_path: Path, script: str) -> None:
    """Compiles with a shell script in the place of the compiler."""
    path = tmp_path / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    tools = Toolchain((str(path),), "")
    _compile(tools, "x86-64-v3", "int x;", tmp_path / "x.o", tmp_path / "cache")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (f"kill -{signal.SIGINT.value} $$; sleep 5", KeyboardInterrupt),
        (f"kill -{signal.SIGKILL.value} $$", ResourceError),
        ("echo 'fatal error: Killed signal terminated program cc1plus' >&2; exit 1", ResourceError),
    ],
    ids=["interrupted", "killed", "killed below the driver"],
)
def test_signals(tmp_path: Path, script: str, error: type[BaseException]) -> None:
    with pytest.raises(error):
        compiled(tmp_path, script)
    assert not (tmp_path / "cache").exists()


def test_a_refusal_keeps_the_source(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="refused generated code") as caught:
        compiled(tmp_path, "echo 'error: no' >&2; exit 1")
    assert isinstance(caught.value, GraphwrightError)
    assert list((tmp_path / "cache" / "failed").iterdir())
