"""Random valid ONNX graphs, node by node: every node is run by onnx.reference as it is added.

`random_model(seed)` gives a model with its inputs and the answers of the reference for all outputs.
Equal seeds give equal models.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from fuzz_nodes import MAKERS
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET, IR = 21, 10
MOST_ELEMENTS = 4096
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(slots=True)
class Builder:
    """A graph under construction; `arrays` holds every value as the reference calculates it."""

    rng: random.Random
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def numbers(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Random numbers of a type: floats with few digits, small integers."""
        draws = np.random.default_rng(self.rng.getrandbits(63))
        if dtype.kind == "b":
            return draws.random(shape) < 0.5
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -9
            return draws.integers(low, 10, shape).astype(dtype)
        return (np.round(draws.standard_normal(shape) * 64) / 64).astype(dtype)

    def new_input(self, shape: tuple[int, ...], dtype: np.dtype) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.arrays[name] = self.numbers(shape, dtype)
        return name

    def weight(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(name)
        self.arrays[name] = np.array(array, order="C")
        return name

    def pick(self, accepts: Callable[[np.ndarray], bool]) -> str | None:
        """A value that fits, later ones more likely."""
        fits = [n for n, a in self.arrays.items() if n not in self.weights and accepts(a)]
        if not fits:
            return None
        return self.rng.choice(fits[-4:] if self.rng.random() < 0.7 else fits)

    def add(self, op: str, names: list[str], outputs: int = 1, **attributes: object) -> bool:
        """Adds a node when the reference runs it; whether it did."""
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, names, made, **attributes)
        given = {n: self.arrays[n] for n in names if n}
        got = reference(node, given)
        if got is None or any(a.size > MOST_ELEMENTS for a in got):
            return False
        self.nodes.append(node)
        self.arrays.update(zip(made, got, strict=True))
        return True


def reference(node: onnx.NodeProto, given: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The outputs of one node, or None when the reference refuses it."""
    graph = helper.make_graph(
        [node], "node", [_info(n, a) for n, a in given.items()],
        [onnx.ValueInfoProto(name=n) for n in node.output],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            got = ReferenceEvaluator(model).run(None, given)
    except Exception:  # of any class: a node that the reference cannot run is not drawn
        return None
    if any(not isinstance(a, np.ndarray | np.generic) for a in got):
        return None
    return [np.asarray(a) for a in got]


def _info(name: str, array: np.ndarray, dims: tuple[object, ...] | None = None) -> object:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if dims is None else dims)


def random_model(
    seed: int,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """A model, its inputs by name, and the reference's outputs in order."""
    rng = random.Random(seed)
    b = Builder(rng)
    for _ in range(rng.randint(1, 3)):
        rank = rng.choice([1, 2, 2, 3, 3, 4, 4])
        shape = tuple(rng.choice([1, 2, 3, 4, 5, 8]) for _ in range(rank))
        kind = rng.choice([np.float32] * 6 + [np.float64, np.int64, np.int32, np.uint8, np.bool_])
        b.new_input(shape, np.dtype(kind))
    wanted = rng.randint(3, 14)
    for _ in range(8 * wanted):
        if len(b.nodes) >= wanted:
            break
        rng.choice(MAKERS)(b)
    used = {n for node in b.nodes for n in node.input}
    outputs = [n for node in b.nodes for n in node.output if n not in used]
    inner = [n for node in b.nodes for n in node.output if n in used]
    outputs += rng.sample(inner, min(len(inner), rng.randint(0, 2)))
    sizes: dict[int, str] = {}
    is_dynamic = rng.random() < 0.5

    def dims(array: np.ndarray) -> tuple[object, ...]:
        if not is_dynamic:
            return array.shape
        return tuple(
            sizes.setdefault(d, f"N{d}") if rng.random() < 0.6 and d > 1 else d for d in array.shape
        )

    graph = helper.make_graph(
        b.nodes, f"fuzz{seed}", [_info(n, b.arrays[n], dims(b.arrays[n])) for n in b.inputs],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(b.arrays[n], n) for n in b.weights],
    )  # fmt: skip
    for output in graph.output:
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(
            b.arrays[output.name].dtype
        )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return model, {n: b.arrays[n] for n in b.inputs}, [b.arrays[n] for n in outputs]
