"""graphwright reduce: a failing model made small, for a report that somebody can read."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphwright.compiler.cli.console import Console, count, seconds_text, write_file, write_json
from graphwright.compiler.cli.parameters import Duration, common, model_argument
from graphwright.compiler.verify.reduce import minimise
from graphwright.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from graphwright.compiler.ir.graph import Graph

SLOWER = 10  # a check may take this many times as long as that of the whole model
LEAST_TIMEOUT = 30.0


@click.command("reduce")
@model_argument
@click.option("--check", "check", required=True, metavar="CMD",
              help="A command that fails (exits with another code than 0) on the model; {} stands "
              "for the file, which else comes last.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The small model (default: small.onnx, or small.ir for .ir and .pt2 files).")  # fmt: skip
@click.option("--keep-error", metavar="REGEX",
              help="Only what prints this counts as the failure (default: the same exit code).")  # fmt: skip
@click.option("--budget", type=Duration(), default=600.0, metavar="TIME",
              help="Stop after this time with the smallest so far (default: 10m).")  # fmt: skip
@click.option("--timeout", type=Duration(), default=None, metavar="TIME",
              help=f"Of one check; it then does not count (default: {SLOWER} times the first).")  # fmt: skip
@common
def command(
    model: Path, check: str, output: Path | None, keep_error: str | None, budget: float,
    timeout: float | None, json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Take away from MODEL what its failure does not need.

    The parts of an ONNX file that are left are its own nodes and weights.  Of an .ir file or a torch
    program (.pt2) the ops of the graph are tried, and the result is an .ir file.
    """
    try:
        pattern = re.compile(keep_error) if keep_error else None
    except re.error as error:
        raise InputError(f"--keep-error {keep_error!r} is no regular expression: {error}") from None
    cutter = _cutter(model)
    target = output or Path(f"small{cutter.suffix}")
    if target.resolve() == model.resolve():
        raise InputError(f"-o {target} would overwrite the model; name another file")
    checker = _Checker(check, pattern)
    with console.stage(f"checking {model.name}"):
        checker.first(model)
    checker.timeout = timeout or max(LEAST_TIMEOUT, SLOWER * checker.seconds)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphwright-reduce-") as folder:
        trial = Path(folder) / f"trial{cutter.suffix}"

        def fails(kept: Sequence[int]) -> bool:
            data = cutter.cut(kept)
            if data is None:
                return False
            trial.write_bytes(data)
            return checker.fails(trial)

        with console.stage("reducing") as stage:
            whole = cutter.cut(cutter.items)
            if whole is None or not fails(cutter.items):
                raise InputError(
                    f"{model}: what is left of it as {cutter.suffix} does not fail in the same way "
                    "(constants of more than a few elements become inputs there)"
                )
            done = minimise(
                cutter.items,
                fails,
                seconds=budget,
                tell=lambda left, tests: stage.note(
                    f"{left} of {count(len(cutter.items), 'op')} left after {count(tests, 'check')}"
                ),
            )
        data = cutter.cut(done.kept)
        assert data is not None
    write_file(target, data)
    seconds = time.monotonic() - start
    facts = {
        "model": str(model), "output": str(target), "ops_before": len(cutter.items),
        "ops": len(done.kept), "minimal": done.minimal, "checks": done.tests, "seconds": seconds,
        "exit_code": checker.code, "command": checker.line(target),
    }  # fmt: skip
    if json_to:
        write_json(facts, json_to)
    if json_to != "-":
        console.show(f"{count(len(done.kept), 'op')} of {len(cutter.items)} still fail: {target}")
        console.show(f"reproduce: {checker.line(target)}")
    console.say(
        f"{count(done.tests, 'check')} in {seconds_text(seconds)}; "
        + ("no op can go alone" if done.minimal else "the time ran out (--budget), more may go")
    )


class _Checker:
    """Runs the command.  A model fails when it does so like the first one."""

    def __init__(self, text: str, pattern: re.Pattern[str] | None) -> None:
        try:
            self._parts = shlex.split(text)
        except ValueError as error:
            raise InputError(f"--check {text!r}: {error}") from None
        if not self._parts:
            raise InputError("--check: want a command")
        if not any("{}" in part for part in self._parts):
            self._parts.append("{}")
        self._pattern = pattern
        self.code, self.seconds, self.timeout = 0, 0.0, None

    code: int
    seconds: float
    timeout: float | None

    def first(self, model: Path) -> None:
        start = time.monotonic()
        found = self._run(model)
        self.seconds = time.monotonic() - start
        assert found is not None
        self.code, said = found
        if self.code == 0:
            raise InputError(f"--check: {self.line(model)} exits with 0: {model} does not fail")
        if self._pattern is not None and not self._pattern.search(said):
            raise InputError(
                f"--keep-error {self._pattern.pattern!r}: {self.line(model)} does not print it"
            )

    def fails(self, model: Path) -> bool:
        found = self._run(model)
        if found is None:
            return False
        code, said = found
        if self._pattern is not None:
            return code != 0 and bool(self._pattern.search(said))
        return code == self.code

    def _run(self, model: Path) -> tuple[int, str] | None:
        """(exit code, what it printed), or None when it took too long."""
        arguments = [part.replace("{}", str(model)) for part in self._parts]
        try:
            done = subprocess.run(
                arguments, capture_output=True, text=True, errors="replace", timeout=self.timeout
            )
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            raise InputError(
                f"--check: {arguments[0]} cannot be run: {error.strerror or error}"
            ) from None
        return done.returncode, done.stdout + done.stderr

    def line(self, model: Path) -> str:
        return shlex.join(part.replace("{}", str(model)) for part in self._parts)


@dataclass(frozen=True, slots=True)
class _Cutter:
    """`cut(items)`: the file of these of the `items`, or None where that is no model."""

    suffix: str
    items: tuple[int, ...]
    cut: Callable[[Sequence[int]], bytes | None]


def _cutter(model: Path) -> _Cutter:
    if not model.is_file():
        raise InputError(f"{model}: there is no such file")
    if model.suffix in (".ir", ".pt2"):
        from graphwright.compilation import import_source
        from graphwright.compiler.options import CompileOptions

        return _ir_cutter(import_source(model, CompileOptions.make()))
    from onnx.external_data_helper import load_external_data_for_model

    from graphwright.frontends.onnx.source import read_source
    from graphwright.frontends.onnx.subset import Cutter

    read = read_source(model)
    if read.folder is not None:
        load_external_data_for_model(read.proto, str(read.folder))
    cutter = Cutter(read.proto)

    def cut(kept: Sequence[int]) -> bytes | None:
        small = cutter.cut(kept)
        return None if small is None else small.SerializeToString()

    return _Cutter(".onnx", tuple(range(len(cutter))), cut)


def _ir_cutter(graph: Graph) -> _Cutter:
    from graphwright.compiler.ir.printer import print_graph
    from graphwright.compiler.ir.verify import VerifyError, verify
    from graphwright.compiler.verify.reproduce import cut_out

    def cut(kept: Sequence[int]) -> bytes | None:
        try:
            small = cut_out(graph, kept)
            if small is None:
                return None
            verify(small)
        except (VerifyError, UnsupportedError):
            return None
        return print_graph(small, origins=True).encode()

    return _Cutter(".ir", tuple(op.id for op in graph.ops if op.name != "constant"), cut)
