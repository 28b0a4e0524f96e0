"""Reading, running and judging a golden case; also used on random graphs."""

from __future__ import annotations

import difflib
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from graphwright.compiler.ir.dims import Dim, Expr, prove, substitute, symbols_of
from graphwright.compiler.ir.dims import evaluate as evaluate_dim
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.types import DType
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.target import Target


@dataclass
class Case:
    path: Path
    pipeline: str
    before: str
    after: str
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Case:
        parts = re.split(r"^---\n", path.read_text(), flags=re.MULTILINE)
        assert len(parts) in (2, 3), f"{path.name}: want header --- graph --- graph"
        options: dict[str, str] = {}
        for line in parts[0].splitlines():
            if line.strip() and not line.startswith("#"):
                key, colon, value = line.partition(":")
                assert colon, f"{path.name}: header line {line!r} is no 'key: value'"
                options[key.strip()] = value.strip()
        known = {"pipeline", "tolerance", "zeros", "range", "positive", "target"}
        assert set(options) <= known, f"{path.name}: unknown header {set(options) - known}"
        assert parts[0].lstrip().startswith("#"), f"{path.name}: say what the case shows"
        after = parts[2] if len(parts) == 3 else ""
        return Case(path, options["pipeline"], parts[1], after, options)


def check_case(case: Case, *, accept: bool) -> str | None:
    """Raises AssertionError; returns the new text when accepting a changed one."""
    before = parse_graph(case.before, registry=REGISTRY)
    verify(before)
    graph = before.clone()
    target = Target.parse(case.options.get("target", "cpu"))
    pipeline = Pipeline.parse(case.pipeline)
    assert str(Pipeline.parse(str(pipeline))) == str(pipeline)
    pipeline.run(graph, target)
    after = print_graph(graph)
    again = parse_graph(after, registry=REGISTRY)
    verify(again)
    assert print_graph(again) == after, "printing and parsing the result changed it"
    if after != case.after and not accept:
        diff = difflib.unified_diff(
            case.after.splitlines(), after.splitlines(), "expected", "result", lineterm=""
        )
        raise AssertionError("\n".join([f"{case.pipeline} made another graph", *diff]))
    tolerance = float(case.options["tolerance"]) if "tolerance" in case.options else None
    seed = zlib.crc32(case.path.name.encode())
    low, _, high = case.options.get("range", "").partition("..")
    compare(
        before,
        graph,
        seed=seed,
        tolerance=tolerance,
        zeros="zeros" not in case.options,
        span=(int(low), int(high)) if low else None,
        positive=case.options.get("positive", "").split(),
    )
    return after if after != case.after else None


def compare(
    before: Graph,
    after: Graph,
    *,
    seed: int,
    tolerance: float | None = None,
    zeros: bool = True,
    span: tuple[int, int] | None = None,
    positive: list[str] | tuple[str, ...] = (),
) -> None:
    """Evaluates both graphs under two bindings and raises AssertionError where they differ."""
    rng = np.random.default_rng(seed)
    for binding in bindings(before, rng):
        feed = {}
        for value in before.inputs:
            shape = tuple(evaluate_dim(d, binding) for d in value.type.shape)
            array = sample(value.type.dtype, shape, rng, special=tolerance is None, span=span)
            if value.name in positive:
                array = np.abs(array) + np.asarray(0.1, array.dtype)
            feed[value.name] = array
        want = evaluate(before, feed)
        got = evaluate(after, feed)
        assert len(want) == len(got)
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            why = difference(w, g, tolerance, zeros)
            assert why is None, f"output {i} under {binding}: {why}"


def difference(
    want: np.ndarray, got: np.ndarray, tolerance: float | None, zeros: bool
) -> str | None:
    """None when the arrays agree, else in what they do not."""
    if (want.dtype, want.shape) != (got.dtype, got.shape):
        return f"{got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    exact = tolerance is None or want.dtype.kind in "biu"
    if want.dtype.kind not in "biufc":
        want, got = want.astype(np.float32), got.astype(np.float32)
    if exact:
        same = (want == got) | ((want != want) & (got != got))
        if zeros and want.dtype.kind == "f":
            same &= (np.signbit(want) == np.signbit(got)) | (want != want)
        if same.all():
            return None
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        return (
            f"{np.count_nonzero(~same)} elements differ, first at {at}: {got[at]}, want {want[at]}"
        )
    w, g = want.astype(np.float64), got.astype(np.float64)
    if not np.isfinite(w).all():
        return "the graph before gives numbers that are not finite; choose other inputs"
    error = float(np.linalg.norm(g - w) / max(float(np.linalg.norm(w)), 1e-30))
    return None if error <= tolerance else f"relative error {error:.3g}, allowed {tolerance:g}"


def bindings(graph: Graph, rng: np.random.Generator) -> list[dict[str, int]]:
    """Two different bindings (one when there are no symbols) that satisfy the constraints."""
    used = list(symbols_of(d for v in graph.inputs for d in v.type.shape))
    if not used:
        return [{}]
    found: list[dict[str, int]] = []
    for attempt in range(2000):
        sizes: dict[str, int] = {}
        for symbol in used:
            step = symbol.multiple_of
            low = -(-max(symbol.min, 1) // step) * step
            high = min(symbol.max, low + (4 if attempt < 500 else 12) * step)
            sizes[symbol.name] = int(rng.integers(low // step, high // step + 1)) * step
        if attempt < 1000 and sizes in found:
            continue
        if all(_holds(c.left, str(c.relation), c.right, sizes) for c in graph.constraints):
            found.append(sizes)
            if len(found) == 2:
                return found
    raise AssertionError(f"no sizes satisfy {[str(c) for c in graph.constraints]}")


def _holds(left: Dim, relation: str, right: Dim, sizes: dict[str, int]) -> bool:
    known = [d for d in (left, right) if isinstance(d, Expr)]
    values = {s: sizes[s.name] for s in symbols_of(known) if s.name in sizes}
    a, b = substitute(left, values), substitute(right, values)
    if relation == "broadcast":
        return a == b or a == 1 or b == 1
    return prove(a, relation, b) is not False  # type: ignore[arg-type]


def sample(
    dtype: DType,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    special: bool,
    span: tuple[int, int] | None = None,
) -> np.ndarray:
    """Random values; `special` mixes in NaN, infinities, zeros of both signs, extreme integers."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low, high = span if span else (0 if dtype.kind == "uint" else -5, 5)
        array = rng.integers(low, high + 1, shape).astype(dtype.numpy)
        if special and span is None and dtype.bits >= 8 and array.size:
            info = np.iinfo(dtype.numpy)
            flat = array.reshape(-1)
            flat[rng.integers(0, array.size, array.size // 4 + 1)] = info.max
            flat[rng.integers(0, array.size, array.size // 4 + 1)] = info.min
        return array
    array = rng.standard_normal(shape).astype(dtype.numpy)
    if special and array.size:
        flat = array.reshape(-1)
        odd = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -2.5, 7.0)
        for number in odd:
            flat[rng.integers(0, flat.size)] = number
        if flat.size > 16:
            flat[: len(odd)] = np.asarray(odd, dtype.numpy)
    return array
