"""The options of a compilation: one frozen dataclass for the command line, the API and the hook.

Every option is honoured or refused: a value that cannot take effect now raises `DowngradeError`,
a malformed one `InputError`; nothing is ignored.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from graphwright.compiler.buckets import MISSES, BucketSizes, read_buckets
from graphwright.compiler.custom_ops import load_custom_ops
from graphwright.compiler.ir.op import OpDef, Registry
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.shapes import ShapeError, ShapeSpec
from graphwright.compiler.target import Target
from graphwright.errors import DowngradeError, InputError

CheckPasses = Literal["off", "structural", "numeric"]
Allowance = Literal[
    "eager", "host", "uncaptured", "cast", "specialise", "freeze-initializers", "interpreter"
]
ALLOWANCES: tuple[str, ...] = get_args(Allowance)

TUNING = ("off", "quick", "full")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")

# What the interface has room for, and what to do until it exists.
_LATER = {
    "libraries": "no vendor library is ever called now; leave it out",
    "state": "outputs cannot be aliased to inputs yet; feed the state back by hand",
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile.  Build with `CompileOptions.make(**options)`, which converts and checks.

    target: "cpu", "cpu:x86-64-v4", "cuda:sm_90" (see `Target.parse`).
    shapes: grammar text, texts, or {input: dims} and {symbol: range} (see `ir/shapes.py`).
    precision: "fp32" (true float32), "tf32", "fp16", "bf16": see the pass set-precision.  keep_fp32:
    patterns of node names, or names of ops, that stay float32.  weights: "embed".
    graph_buckets: sizes of the symbols for which CUDA graphs are built ahead, "B=1,8,32" (see
    `buckets.py`); graph_miss: what a call of other sizes does, "raise" (the default), "uncaptured"
    (its kernels are launched one by one) or "pad" (to the next bucket, where that changes no result).
    opt: 0 nothing optional, 1 clean-up only, 2 everything (3 is kept for slow passes).
    passes: the text of a pipeline in place of the one that `opt` chooses.
    disable_passes, print_after: names of passes.  stop_after: the last pass to run; then no
    artifact is made and the graph is the result.  max_rewrites: how many rewrites all passes
    together may apply (None: no limit).
    check_passes: what runs after each pass: "structural" the verifier, "numeric" also the
    evaluator on random inputs, "off" nothing.
    allow: which exceptions from "never a silent downgrade" are fine.
    jobs: parallel C++ compilations, 0 for the number of allowed CPUs.  threads: default of the
    artifact's CPU thread count, 0 for the allowed CPUs when it is loaded.
    custom_ops: declarations of ops of your own (or "module:name" of one or several), known to
    this compilation alone; see docs/custom-ops.md.
    cache_dir: compiled kernels are kept there; None for the user's cache folder.  cache: False
    neither reads nor writes it.
    tune: "off": the cost model chooses kernels; "quick" and "full": the best of several by timing on
    this machine's GPU, for tune_budget seconds at most (None: 60 and 900).  lock: a file with the
    choices, or an artifact that holds them; it is followed where it exists, else written.
    trace: a file that gets every pass and rewrite, for `graphwright viz` (docs/trace.md).
    """

    target: Target = field(default_factory=lambda: Target.parse("cpu"))
    shapes: ShapeSpec = field(default_factory=ShapeSpec)
    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    weights: str = "embed"
    graph_buckets: BucketSizes = ()
    graph_miss: str = ""
    opt: int = 2
    passes: str | None = None
    disable_passes: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    stop_after: str | None = None
    max_rewrites: int | None = None
    check_passes: CheckPasses = "structural"
    allow: frozenset[str] = frozenset()
    jobs: int = 0
    threads: int = 0
    cache_dir: Path | None = None
    cache: bool = True
    custom_ops: tuple[OpDef, ...] = ()
    tune: str = "off"
    tune_budget: float | None = None
    lock: Path | None = None
    trace: Path | None = None

    @staticmethod
    def make(**options: Any) -> CompileOptions:
        """From loosely typed values.  Raises InputError or DowngradeError; see the module."""
        return CompileOptions().replaced(**options)

    def replaced(self, **options: Any) -> CompileOptions:
        """These options with some replaced, converted and checked."""
        known = [f.name for f in fields(CompileOptions)]
        for name in options:
            if name in _LATER:
                raise DowngradeError(f"option {name}: {_LATER[name]}")
            if name not in known:
                near = difflib.get_close_matches(name, known + list(_LATER), 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
                raise InputError(f"unknown option {name!r}; {hint}")
        return replace(self, **{n: _convert(n, v) for n, v in options.items()}).checked()

    def checked(self) -> CompileOptions:
        """Itself.  Raises InputError or DowngradeError for what cannot be honoured."""
        self._check_precision()
        if self.weights != "embed":
            if self.weights not in ("external", "strip", "keep"):
                raise InputError(f"weights {self.weights!r}: want embed")
            raise DowngradeError(f"weights={self.weights} is not available yet; use weights=embed")
        self._check_buckets()
        if self.opt not in (0, 1, 2, 3):
            raise InputError(f"opt {self.opt!r}: want 0 (none), 1 (clean-up) or 2 (all)")
        if self.opt == 3:
            raise DowngradeError("opt=3 is for slow passes, of which there are none; use opt=2")
        if self.check_passes not in get_args(CheckPasses):
            raise InputError(
                f"check_passes {self.check_passes!r}: want {', '.join(get_args(CheckPasses))}"
            )
        for name in ("jobs", "threads"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= 4096:
                raise InputError(f"{name} {value!r}: want a number from 1, or 0 for the CPUs")
        if self.max_rewrites is not None and self.max_rewrites < 0:
            raise InputError(f"max_rewrites {self.max_rewrites}: want 0 or more")
        for name in self.allow:
            if name not in ALLOWANCES:
                near = difflib.get_close_matches(name, ALLOWANCES, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"want {', '.join(ALLOWANCES)}"
                raise InputError(f"allow {name!r}: {hint}")
        self._check_tuning()
        if not self.cache and self.cache_dir is not None:
            raise InputError(f"cache_dir {self.cache_dir} has no effect with cache=False")
        return self

    def _check_buckets(self) -> None:
        if self.graph_miss and self.graph_miss not in MISSES:
            raise InputError(f"graph_miss {self.graph_miss!r}: want {', '.join(MISSES)}")
        if self.graph_miss and not self.graph_buckets:
            raise InputError(f"graph_miss={self.graph_miss} has no effect without graph_buckets")
        if self.graph_buckets and self.target.kind != "cuda":
            raise InputError(
                f"graph_buckets has no effect on {self.target.kind}: it has no CUDA graphs"
            )

    def _check_precision(self) -> None:
        if self.precision not in PRECISIONS:
            _refuse_precision(self.precision)
        if self.precision == "tf32" and self.target.kind != "cuda":
            raise DowngradeError(
                f"precision=tf32: {self.target.kind} has no such mode; use precision=fp32"
            )
        if self.keep_fp32 and self.precision not in ("fp16", "bf16"):
            raise InputError(f"keep_fp32 has no effect with precision={self.precision}")
        for name in self.keep_fp32:
            if set(name) & set("+,{}"):
                raise InputError(f"keep_fp32 {name!r}: write ? in place of any of + , {{ }}")

    def _check_tuning(self) -> None:
        if self.tune not in TUNING:
            near = difflib.get_close_matches(str(self.tune), TUNING, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"want {', '.join(TUNING)}"
            raise InputError(f"tune {self.tune!r}: {hint}")
        if self.target.kind != "cuda":
            for name, given in (("tune", self.tune != "off"), ("lock", self.lock is not None)):
                if given:
                    raise DowngradeError(
                        f"{name}: kernels of {self.target} have one way each, nothing is tuned; "
                        "leave it out"
                    )
        if self.tune_budget is not None:
            if self.tune == "off":
                raise InputError("tune_budget has no effect with tune=off")
            if not 0 < self.tune_budget < 1e6:
                raise InputError(f"tune_budget {self.tune_budget!r}: want seconds above 0")
        if self.lock is not None:
            if self.lock.exists() and self.tune != "off":
                raise InputError(
                    f"lock {self.lock} exists and says what to choose, so that tune={self.tune} has "
                    "no effect; delete the file, or leave tune out"
                )
            if not self.lock.exists() and not self.lock.absolute().parent.is_dir():
                raise InputError(f"lock {self.lock}: there is no folder {self.lock.parent}")

    @property
    def registry(self) -> Registry:
        """The ops of this compilation: all of ours and the custom ones."""
        return REGISTRY.extended(self.custom_ops) if self.custom_ops else REGISTRY

    @property
    def effective_jobs(self) -> int:
        """`jobs`, or the number of CPUs that this process may use."""
        return self.jobs or len(os.sched_getaffinity(0))


def _refuse_precision(precision: str) -> None:
    if precision == "auto":
        raise DowngradeError("precision=auto needs a tolerance and inputs, which do not exist yet; "
                             "use precision=fp32")  # fmt: skip
    near = difflib.get_close_matches(precision, PRECISIONS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"want {', '.join(PRECISIONS)}"
    raise InputError(f"precision {precision!r}: {hint}")


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else list(value)
    return tuple(dict.fromkeys(n.strip() for t in texts for n in t.split(",") if n.strip()))


def _target(value: Any) -> Target:
    if isinstance(value, Target):
        return value
    if isinstance(value, str):
        return Target.parse(value)
    raise TypeError(f"want text such as 'cpu', not {type(value).__name__}")


def _convert(name: str, value: Any) -> Any:
    try:
        if name == "target":
            return _target(value)
        if name == "shapes":
            return ShapeSpec.make(value)
        if name in ("disable_passes", "print_after", "keep_fp32"):
            return _names(value)
        if name == "graph_buckets":
            return read_buckets(value)
        if name == "allow":
            return frozenset(_names(value))
        if name == "custom_ops":
            return load_custom_ops(value)
        if name == "tune_budget":
            return None if value is None else float(value)
        if name in ("cache_dir", "trace", "lock"):
            return None if value is None else Path(value).expanduser()
        if name in ("opt", "jobs", "threads", "max_rewrites") and value is not None:
            return int(value)
    except (ShapeError, TypeError, ValueError) as error:
        raise InputError(f"option {name}: {error}") from None
    return value
