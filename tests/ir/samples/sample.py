"""One call of one op on concrete arrays, and the one-op graph that makes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import Dim, Symbol, of
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import TensorType, dtype_of


@dataclass(frozen=True, slots=True)
class Sample:
    """`static`: operands whose extents stay numbers in a dynamic graph (kernels of convolutions)."""

    op: str
    arrays: tuple[np.ndarray, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    static: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", tuple(np.asarray(a) for a in self.arrays))

    def __str__(self) -> str:
        return f"{self.op}-{self.name}" if self.name else self.op


def graph_of(
    sample: Sample,
    *others: Sample,
    dynamic: bool = False,
    constants: Collection[int] = (),
    registry: Registry = REGISTRY,
) -> Graph:
    """A graph with the op alone; its inputs are the operands, `constants` (by index) are embedded.

    `dynamic`: every extent above 1 becomes a symbol, the same one for equal extents, also in the
    attributes that are dims; `sample.arrays` bind the symbols to the extents again.  Other samples
    are calls beside it; inputs and outputs follow one another.
    """
    graph = Graph("sample", registry=registry)
    results: list[Value] = []
    for s in (sample, *others):
        results += _call(graph, s, dynamic, constants)
    graph.set_outputs(results, [f"y{i}" for i in range(len(results))])
    return graph


def _call(
    graph: Graph, sample: Sample, dynamic: bool, constants: Collection[int]
) -> Sequence[Value]:
    symbols: dict[int, Dim] = {}
    if dynamic:
        extents = {
            n
            for i, a in enumerate(sample.arrays)
            if i not in sample.static and i not in constants
            for n in a.shape
            if n > 1
        }
        symbols = {n: of(Symbol(f"n{n}", min=1, max=4096)) for n in sorted(extents)}
    values: list[Value] = []
    for i, array in enumerate(sample.arrays):
        if i in constants:
            values.append(graph.create("constant", (), {"value": Literal.dense(array)}).result)
            continue
        shape = tuple(n if i in sample.static else symbols.get(n, n) for n in array.shape)
        type = TensorType(dtype_of(array), shape)
        values.append(graph.add_input(f"x{len(graph.inputs)}", type))
    attributes = dict(sample.attributes)
    for name, attribute in graph.registry[sample.op].attributes.items():
        given = attributes.get(name)
        if attribute.type == "dims" and given is not None and name in ("shape", "sizes", "dims"):
            attributes[name] = tuple(symbols.get(d, d) for d in given)
        elif attribute.type == "dim" and isinstance(given, int):
            attributes[name] = symbols.get(given, given)
    return graph.create(sample.op, values, attributes).results


def rng(*key: object) -> np.random.Generator:
    """A generator seeded by text, so that a sample never changes because another was added."""
    return np.random.default_rng(list("/".join(map(str, key)).encode()))


def normal(*shape: int, dtype: Any = np.float32, key: str = "") -> np.ndarray:
    return np.asarray(rng("normal", shape, key).standard_normal(shape)).astype(dtype)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int64, key: str = "") -> np.ndarray:
    """Integers in [low, high)."""
    return np.asarray(rng("integers", shape, key).integers(low, high, shape)).astype(dtype)
