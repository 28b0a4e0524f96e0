"""Parameters that several commands share, and the conversion of flags to `CompileOptions`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from graphwright.compiler.cli.console import Console
from graphwright.compiler.ir.shapes import ShapeError, ShapeSpec
from graphwright.compiler.options import ALLOWANCES, TUNING, CompileOptions
from graphwright.errors import InputError

GIVEN = "graphwright.given-compile-options"
OPTIONS = "graphwright_options"  # attribute of an exception: the options it happened with
F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """200ms, 3s, 2m or a plain number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|us)?\s*", str(value))
        try:
            number = float(found[1]) if found else float("x")
        except ValueError:
            self.fail(f"{value!r} is no duration; write 200ms, 3s or 2m", param, ctx)
        assert found is not None
        return number * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, None: 1.0}[found[2]]


class Percentiles(click.ParamType[tuple[float, ...]]):
    """50,90,99"""

    name = "percentiles"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(v) for v in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 <= n <= 100 for n in numbers):
            self.fail(f"{value!r}: want numbers from 0 to 100, such as 50,90,99", param, ctx)
        return numbers


def common(function: F) -> F:
    """--json, -v, -q; the command gets `console` and `json_to`."""

    @click.option("--json", "json_to", metavar="FILE|-", help="Write the result as JSON.")
    @click.option("-v", "--verbose", count=True, help="Say more; -vv shows tracebacks.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @functools.wraps(function)
    def wrapped(*, verbose: int, quiet: bool, **rest: Any) -> Any:
        if verbose and quiet:
            raise click.UsageError("-v and -q contradict each other")
        return function(console=Console(-1 if quiet else verbose), **rest)

    return wrapped  # type: ignore[return-value]


def shape_parameters(function: F) -> F:
    """--shape and trtexec's spellings; the command gets `shapes`."""

    @click.option("--shape", "--shapes", "shape", multiple=True, metavar="INPUT:DIMS|SYMBOL=RANGE",
                  help="Fix or bound dims: x:1x3x224x224, 'ids:Bx[1..512@128]', N=1..8. Repeatable.")  # fmt: skip
    @click.option("--min-shapes", "--minShapes", "low", multiple=True, metavar="INPUT:DIMS,...",
                  help="Smallest shapes, with --max-shapes and perhaps --opt-shapes.")  # fmt: skip
    @click.option("--opt-shapes", "--optShapes", "best", multiple=True, metavar="INPUT:DIMS,...",
                  help="The shapes to optimise for.")  # fmt: skip
    @click.option("--max-shapes", "--maxShapes", "high", multiple=True, metavar="INPUT:DIMS,...",
                  help="Largest shapes.")  # fmt: skip
    @functools.wraps(function)
    def wrapped(*, shape: tuple[str, ...], low: tuple[str, ...], best: tuple[str, ...],
                high: tuple[str, ...], **rest: Any) -> Any:  # fmt: skip
        try:
            spec = ShapeSpec.make(shape).merged(ShapeSpec.from_profiles(low, best, high))
        except ShapeError as error:
            raise InputError(f"--shape: {error}") from None
        return function(shapes=spec, **rest)

    return wrapped  # type: ignore[return-value]


def compile_parameters(function: F) -> F:
    """The flags of CompileOptions that do not change what kind of result there is.

    The command gets `options`.  A flag that is not given is not passed on, so that defaults live
    in CompileOptions alone.
    """

    @click.option("--target", metavar="TARGET",
                  help="cpu, cpu:x86-64-v4,native, cuda:sm_90 ... (default: cpu).")  # fmt: skip
    @shape_parameters
    @click.option("--precision", metavar="P", help="fp32 (default), tf32, fp16 or bf16.")
    @click.option("--keep-fp32", multiple=True, metavar="NAME",
                  help="A node (or pattern, or op) that stays float32. Repeatable.")  # fmt: skip
    @click.option("--graph-buckets", metavar="S=N,N",
                  help="Sizes for which CUDA graphs are built ahead: 'B=1,8,32; S=128'.")  # fmt: skip
    @click.option("--graph-miss", metavar="RULE",
                  help="What a call of other sizes does: raise (default), uncaptured or pad.")  # fmt: skip
    @click.option("--opt", type=click.IntRange(0, 3), metavar="0-2",
                  help="0 nothing optional, 1 clean-up only, 2 everything (default).")  # fmt: skip
    @click.option("--passes", metavar="PIPELINE",
                  help="Run this pipeline instead, such as 'canonicalize,fuse'.")  # fmt: skip
    @click.option(
        "--disable-pass",
        "disable_passes",
        multiple=True,
        metavar="NAME",
        help="Leave a pass out. Repeatable.",
    )
    @click.option("--max-rewrites", type=click.IntRange(0), metavar="N",
                  help="Let all passes together rewrite at most N times.")  # fmt: skip
    @click.option("--check-passes", type=click.Choice(["off", "structural", "numeric"]),
                  help="What is checked after each pass (default: structural).")  # fmt: skip
    @click.option(
        "--allow",
        multiple=True,
        metavar="NAME",
        help=f"Allow an exception: {', '.join(ALLOWANCES)}.",
    )
    @click.option("--custom-ops", multiple=True, metavar="MODULE:NAME",
                  help="Ops of your own that this compilation knows. Repeatable.")  # fmt: skip
    @click.option("--threads", type=click.IntRange(0), metavar="N",
                  help="CPU threads of a run (default: the allowed CPUs).")  # fmt: skip
    @click.option("--jobs", type=click.IntRange(0), metavar="N",
                  help="Compilers at a time (default: the allowed CPUs).")  # fmt: skip
    @click.option("--tune", type=click.Choice(TUNING),
                  help="Time several ways of each GPU kernel and take the best (default: off).")  # fmt: skip
    @click.option("--tune-budget", type=Duration(), metavar="SECONDS",
                  help="How long to tune at most (default: 60 s quick, 15 min full).")  # fmt: skip
    @click.option("--lock", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                  help="Follow the choices in FILE, or in an artifact; write it where it is not there.")  # fmt: skip
    @click.option("--cache-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                  help="Where compiled kernels are kept.")  # fmt: skip
    @click.option("--no-cache", is_flag=True, help="Compile every kernel anew.")
    @functools.wraps(function)
    def wrapped(*, shapes: ShapeSpec, no_cache: bool, **flags: Any) -> Any:
        given: dict[str, Any] = {}
        for name in (
            "target", "precision", "keep_fp32", "graph_buckets", "graph_miss", "opt", "passes",
            "disable_passes", "max_rewrites", "check_passes", "allow", "custom_ops", "threads",
            "jobs", "cache_dir", "tune", "tune_budget", "lock",
        ):  # fmt: skip
            value = flags.pop(name)
            if value is not None and value != ():
                given[name] = value
        if no_cache:
            given["cache"] = False
        # An artifact is compiled already: `open_model` refuses what it could only ignore.
        click.get_current_context().meta[GIVEN] = [n for n in given if n != "threads"]
        made = CompileOptions.make(shapes=shapes, **given)
        try:
            return function(options=made, **flags)
        except Exception as error:
            setattr(error, OPTIONS, made)  # for the bundle that a failure of ours leaves
            raise

    return wrapped  # type: ignore[return-value]


def model_argument(function: F) -> F:
    """The positional MODEL: an ONNX file."""
    return click.argument("model", metavar="MODEL", type=click.Path(path_type=Path))(function)
