"""Random valid ONNX graphs, node by node: every node is run by onnx.reference as it is added.

`random_model(seed)` gives a model with its inputs and the answers of the reference for all outputs.
Equal seeds give equal models.  Seeds from WIDE_FROM on draw from all nodes (quantized, recurrent,
bodies, sequences, com.microsoft, which ONNX Runtime answers), small types, several opsets, empty
tensors and scalars, extreme integers, NaN and infinities; those below keep the graphs of old.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from fuzz_bodies import BODIES
from fuzz_nodes import MAKERS
from fuzz_wide import WIDE
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET, IR = 21, 10
WIDE_FROM = 10_000
OPSETS = (13, 15, 16, 17, 18, 19, 20, 21, 21, 22, 23, 24)
MOST_ELEMENTS = 4096
KINDS: list[Any] = [np.float32] * 6 + [np.float64, np.int64, np.int32, np.uint8, np.bool_]


@dataclass(slots=True)
class Builder:
    """A graph under construction; `arrays` holds every value as the reference calculates it."""

    rng: random.Random
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    scales: dict[str, tuple[str, str]] = field(default_factory=dict)  # of quantized values
    opset: int = OPSET
    strange: bool = False  # inputs hold NaN, infinities and extreme integers

    def last(self) -> str:
        """The last output of the last node."""
        return self.nodes[-1].output[-1]

    @staticmethod
    def number_of(dtype: np.dtype) -> int:
        return helper.np_dtype_to_tensor_dtype(dtype)

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
        self.arrays[name] = self.fresh(shape, dtype)
        return name

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Numbers for an input."""
        made = self.numbers(shape, dtype)
        if self.strange and made.size:
            draws = np.random.default_rng(self.rng.getrandbits(40))
            where = draws.random(shape) < 0.2
            if dtype.kind == "f":
                odd = [np.nan, np.inf, -np.inf, -0.0, 1e4, np.finfo(dtype).tiny]
            elif dtype.kind in "iu":
                odd = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
            else:
                return made
            made = np.where(where, draws.choice(np.array(odd, dtype), shape), made)
        return made

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

    def add(
        self,
        op: str,
        names: list[str],
        outputs: int = 1,
        *,
        captures: Sequence[str] = (),
        **attributes: object,
    ) -> bool:
        """Adds a node when the reference runs it; whether it did."""
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        return self._take([helper.make_node(op, names, made, **attributes)], captures)

    def chain(self, steps: Sequence[tuple[str, list[str | int], dict[str, object]]]) -> bool:
        """Adds nodes together or none; an operand that is a number is the output of that step."""
        made = [f"v{len(self.nodes) + i}_0" for i in range(len(steps))]
        nodes = [
            helper.make_node(op, [made[n] if isinstance(n, int) else n for n in names], [out], **given)
            for (op, names, given), out in zip(steps, made, strict=True)
        ]  # fmt: skip
        return self._take(nodes, ())

    def _take(self, nodes: list[onnx.NodeProto], captures: Sequence[str]) -> bool:
        inside = {n for node in nodes for n in node.output}
        needed = [n for node in nodes for n in node.input if n and n not in inside]
        given = {n: self.arrays[n] for n in [*needed, *captures]}
        got = reference(nodes, given, self.opset)
        arrays = {n: a for n, a in (got or {}).items() if a is not None}
        if nodes[-1].output[-1] not in arrays or any(
            a.size > MOST_ELEMENTS for a in arrays.values()
        ):
            return False
        self.nodes += nodes
        self.arrays.update(arrays)
        return True


def reference(
    nodes: list[onnx.NodeProto], given: dict[str, np.ndarray], opset: int
) -> dict[str, np.ndarray | None] | None:
    """All outputs of some nodes (None for a sequence), or None when the reference refuses them."""
    names = [o for n in nodes for o in n.output]
    graph = helper.make_graph(
        nodes, "node", [_info(n, a) for n, a in given.items()],
        [onnx.ValueInfoProto(name=n) for n in names],
    )  # fmt: skip
    model = _model(graph, opset)
    try:
        if needs_runtime(nodes):
            got = onnx_runtime(model, given)
        else:
            if not all(has_schema(n, given, opset) for n in nodes):
                return None
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                got = ReferenceEvaluator(model).run(None, given)
    except Exception:  # of any class: a node that the reference cannot run is not drawn
        return None
    if len(names) == 1 and not isinstance(got[0], np.ndarray | np.generic):
        return None
    return {
        n: np.asarray(a) if isinstance(a, np.ndarray | np.generic) else None
        for n, a in zip(names, got, strict=True)
    }


def needs_runtime(nodes: Sequence[onnx.NodeProto]) -> bool:
    """Whether onnx.reference has no answer, or a wrong one: its Loop joins scan outputs, not stacks."""
    return any(n.domain or n.op_type == "Loop" for n in nodes)


def has_schema(node: onnx.NodeProto, given: dict[str, np.ndarray], opset: int) -> bool:
    """Whether the opset has such a node: attributes, number of inputs, types of the known ones."""
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    if not schema.min_input <= len(node.input) <= schema.max_input:
        return False
    if any(a.name not in schema.attributes for a in node.attribute):
        return False
    for i, name in enumerate(node.input):
        if name in given and schema.inputs:
            kind = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
            number = helper.np_dtype_to_tensor_dtype(given[name].dtype)
            text = f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
            if text not in allowed.get(kind, [kind]):
                return False
    return True


def onnx_runtime(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's answers, calculated as the file says."""
    import onnxruntime as ort

    ways = ort.SessionOptions()
    ways.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ways.intra_op_num_threads, ways.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), ways)
    return session.run(None, given)


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    sets = [helper.make_opsetid("", opset)]
    if any(n.domain for n in graph.node):
        sets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=sets, ir_version=IR)


def _info(name: str, array: np.ndarray, dims: tuple[object, ...] | None = None) -> object:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if dims is None else dims)


def random_model(
    seed: int,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """A model, its inputs by name, and the reference's outputs in order."""
    rng = random.Random(seed)
    b, makers = Builder(rng), MAKERS
    ranks, extents, kinds = [1, 2, 2, 3, 3, 4, 4], [1, 2, 3, 4, 5, 8], KINDS
    if seed >= WIDE_FROM:
        b.opset, b.strange = rng.choice(OPSETS), rng.random() < 0.2
        makers = (*WIDE, *BODIES, *rng.sample(MAKERS, 12))
        kinds = [*KINDS, np.float32, np.float32, np.float16, np.int8, np.uint64]
        if rng.random() < 0.2:
            ranks, extents = [0, *ranks], [0, *extents]
    for _ in range(rng.randint(1, 3)):
        rank = rng.choice(ranks)
        shape = tuple(rng.choice(extents) for _ in range(rank))
        kind = rng.choice(kinds)
        b.new_input(shape, np.dtype(kind))
    wanted = rng.randint(3, 14)
    for _ in range(8 * wanted):
        if len(b.nodes) >= wanted:
            break
        rng.choice(makers)(b)
    used = {n for node in b.nodes for n in node.input}
    made = [n for node in b.nodes for n in node.output if n in b.arrays]
    outputs = [n for n in made if n not in used]
    inner = [n for n in made if n in used]
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
    model = _model(graph, b.opset)
    return model, {n: b.arrays[n] for n in b.inputs}, [b.arrays[n] for n in outputs]


def other_sizes(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray] | None:
    """Inputs with other sizes for the named dims; None when all are fixed.  The model may refuse them."""
    b = Builder(random.Random(seed))
    sizes: dict[str, int] = {}
    feed: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = tuple(
            sizes.setdefault(d.dim_param, b.rng.choice([1, 2, 3, 5, 6, 7, 9]))
            if d.dim_param
            else d.dim_value
            for d in tensor.shape.dim
        )
        feed[value.name] = b.numbers(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feed if sizes else None


def answers(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The reference's outputs, or None when it refuses the model or the sizes.

    None for com.microsoft too: ONNX Runtime's kernels may crash on sizes that do not fit.
    """
    if any(n.domain for n in model.graph.node):
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if needs_runtime(model.graph.node):
                return onnx_runtime(model, feed)
            return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feed)]
    except Exception:  # of any class: sizes that do not fit
        return None
