"""`check_passes=numeric`: after every pass the graph must still compute what it did before it.

The evaluator runs the graph on seeded random inputs before the first pass and after each; outputs
are compared as ||after - before|| / ||before||.  Slow: for tests and for finding a wrong rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes.base import Listener, PassResult
from graphwright.containers import Values
from graphwright.errors import CompileError

TOLERANCE = 1e-5  # of float64 arithmetic: what folding constants in fp32 may differ by
LARGEST = 64  # sizes of dynamic dims: moderate ones are as telling and much quicker


class NumericCheck(Listener):
    """Raises CompileError naming the pass that changed the results by more than `tolerance`.

    `tell` is told (pass, distance) after every pass that changed the graph.
    """

    def __init__(
        self,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        tell: Callable[[str, float], None] | None = None,
    ) -> None:
        self.tolerance, self.seed, self.tell = tolerance, seed, tell
        self._want: Sequence[np.ndarray] | None = None
        self._feed: dict[str, np.ndarray] = {}

    def before_pass(self, name: str, graph: Graph) -> None:
        if self._want is None:
            self._feed = random_feed(graph, self.seed)
            self._want = evaluate(graph, list(self._feed.values()), compute=np.float64)

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        if not result.changed or self._want is None:
            return
        got = evaluate(graph, list(self._feed.values()), compute=np.float64)
        if self.tell is not None:
            pairs = zip(got, self._want, strict=True)
            self.tell(name, max((distance(a, b) for a, b in pairs), default=0.0))
        for output, a, b in zip(graph.output_names, got, self._want, strict=True):
            error = distance(a, b)
            if not error <= self.tolerance:
                raise CompileError(
                    f"pass {name} changed the output {output!r}: its distance from before is "
                    f"{error:.2g} of its norm, allowed {self.tolerance:.0e}; "
                    f"--disable-pass {name} avoids it, --max-rewrites N finds the rewrite"
                )
        self._want = got


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """||got - want|| / ||want||, infinite when shapes, NaNs or infinities differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else float("inf")
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    norm = float(np.linalg.norm(b[finite]))
    error = float(np.linalg.norm(a[finite] - b[finite]))
    return error / norm if norm else error


def random_feed(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Random inputs in small sizes: normal floats; integers and bools 0 or 1, legal as indices.
    Sequences of any arrays have elements of one number each.
    """
    rng = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    for number, symbol in enumerate(graph.symbols.values()):
        step = symbol.multiple_of
        # Different symbols get different sizes where their ranges allow it.
        wish = min(symbol.typical, LARGEST) // step * step - number % 4 * step
        least = -(-max(symbol.min, 1) // step) * step
        sizes[symbol.name] = min(max(wish, least), symbol.max)
    values = Values.of(graph.metadata)
    packed = values.packed_inputs() if values is not None else []
    for data, table, _ in packed:
        length = dims.evaluate(graph.inputs[table].type.shape[0], sizes)
        sizes[str(graph.inputs[data].type.shape[0])] = length
    feed: dict[str, np.ndarray] = {}
    for value in graph.inputs:
        shape = tuple(dims.evaluate(d, sizes) for d in value.type.shape)
        dtype = value.type.dtype
        if dtype.kind in ("float", "complex"):
            feed[value.name] = rng.standard_normal(shape).astype(dtype.numpy)
        else:
            feed[value.name] = rng.integers(0, 2, shape).astype(dtype.numpy)
    for _, table, rank in packed:
        extents = feed[graph.inputs[table].name]
        extents[:] = 1
        extents[:, 1 if rank is None else rank :] = -1
    return feed
