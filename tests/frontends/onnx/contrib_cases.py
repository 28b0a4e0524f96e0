"""Calls of one op of com.microsoft: many of them compiled as one model, each against ONNX Runtime
(or a function of numpy) under several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import relative_rms

import graphwright as gw

Sizes = Mapping[str, int]
Make = Callable[[np.random.Generator, Sizes], np.ndarray]
SIZES: tuple[dict[str, int], ...] = (
    {"B": 2, "S": 3, "T": 5, "P": 4, "N": 7, "H": 6, "W": 9},
    {"B": 1, "S": 1, "T": 9, "P": 6, "N": 1, "H": 11, "W": 8},
)


@dataclass(frozen=True, slots=True)
class Input:
    """What an input holds: a type, a shape of sizes and names, a way to fill it."""

    dtype: str
    shape: tuple[int | str, ...]
    make: Make

    def array(self, rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        return np.asarray(self.make(rng, sizes)).astype(np.dtype(self.dtype))

    def extents(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.shape)


def real(*shape: int | str, scale: float = 1.0, dtype: str = "float32") -> Input:
    """Normal numbers."""

    def make(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        return rng.standard_normal(made.extents(sizes)) * scale

    made = Input(dtype, shape, make)
    return made


def whole(dtype: str, *shape: int | str, low: int | None = None, high: int | None = None) -> Input:
    """Integers of [low, high), by default all that the type holds."""
    info = np.iinfo(dtype)
    first, last = info.min if low is None else low, info.max + 1 if high is None else high

    def make(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        return rng.integers(first, last, made.extents(sizes))

    made = Input(dtype, shape, make)
    return made


def data(dtype: str, shape: Sequence[int | str], make: Make) -> Input:
    return Input(dtype, tuple(shape), make)


def octets(kind: str, *shape: int | str) -> Input:
    return whole({"u8": "uint8", "i8": "int8"}[kind], *shape)


@dataclass(slots=True)
class Case:
    """One node.  Arrays among the inputs are initializers, None are absent.

    `reference(arrays) -> outputs` stands in where ONNX Runtime has no kernel; `steps` is by how much
    integer results may differ; `domain_opset` of the default domain.
    """

    op: str
    inputs: Sequence[Input | np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[int] = (0,)
    reference: Callable[..., Sequence[np.ndarray]] | None = None
    tolerance: float = 1e-5
    steps: int = 0
    sizes: Sequence[Sizes] = SIZES
    opset: int = 17

    def node_and_values(
        self, prefix: str
    ) -> tuple[onnx.NodeProto, list[Any], list[Any], list[str]]:
        names, inputs, constants = [], [], []
        for i, given in enumerate(self.inputs):
            name = "" if given is None else f"{prefix}x{i}"
            names.append(name)
            if isinstance(given, Input):
                shape = [f"{prefix}{d}" if isinstance(d, str) else d for d in given.shape]
                kind = helper.np_dtype_to_tensor_dtype(np.dtype(given.dtype))
                inputs.append(helper.make_tensor_value_info(name, kind, shape))
            elif given is not None:
                constants.append(numpy_helper.from_array(given, name))
        outputs = [
            f"{prefix}y{i}" if i in self.outputs else "" for i in range(max(self.outputs) + 1)
        ]
        node = helper.make_node(
            self.op, names, outputs, name=f"{prefix}{self.op}", domain="com.microsoft",
            **self.attributes,
        )  # fmt: skip
        return node, inputs, constants, [o for o in outputs if o]

    def feed(self, prefix: str, rng: np.random.Generator, sizes: Sizes) -> dict[str, np.ndarray]:
        return {
            f"{prefix}x{i}": given.array(rng, sizes)
            for i, given in enumerate(self.inputs)
            if isinstance(given, Input)
        }


def model_of(cases: Sequence[Case]) -> onnx.ModelProto:
    """All cases side by side; names of case i begin with `c{i}_`."""
    nodes, inputs, constants, outputs = [], [], [], []
    for i, case in enumerate(cases):
        node, more, fixed, made = case.node_and_values(f"c{i}_")
        nodes.append(node)
        inputs += more
        constants += fixed
        outputs += [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in made]
    for o in outputs:
        o.ClearField("type")
    graph = helper.make_graph(nodes, "cases", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", cases[0].opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def wanted(case: Case, feed: Mapping[str, np.ndarray], run: Callable[..., Any]) -> list[np.ndarray]:
    if case.reference is not None:
        arrays = [
            feed.get(f"c0_x{i}") if isinstance(given, Input) else given
            for i, given in enumerate(case.inputs)
        ]
        return list(case.reference(*arrays, **case.attributes))
    return run(model_of([case]), feed)


def check(cases: Sequence[Case], run: Callable[..., Any], **options: Any) -> None:
    """Raises AssertionError naming every case that differs.  `run(model, feed)` is ONNX Runtime."""
    model = model_of(cases)
    compiled = gw.compile(model, **{"target": "cpu:native", **options})
    problems: list[str] = []
    for turn in range(max(len(c.sizes) for c in cases)):
        rng = np.random.default_rng(17 + turn)
        feeds = [c.feed("c0_", rng, c.sizes[min(turn, len(c.sizes) - 1)]) for c in cases]
        merged = {
            name.replace("c0_", f"c{i}_", 1): array
            for i, feed in enumerate(feeds)
            for name, array in feed.items()
        }
        results = compiled.run(merged)
        for i, (case, feed) in enumerate(zip(cases, feeds, strict=True)):
            want = wanted(case, feed, run)
            got = [results[f"c{i}_y{o}"] for o in case.outputs]
            what = f"{case.op} #{i} {dict(case.attributes)} turn {turn}"
            problems += _differences(case, got, want, what)
    assert not problems, "\n".join(problems)


def _differences(
    case: Case, got: Sequence[np.ndarray], want: Sequence[np.ndarray], what: str
) -> list[str]:
    out: list[str] = []
    if len(got) != len(want):
        return [f"{what}: {len(got)} outputs, want {len(want)}"]
    for o, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape or g.dtype != w.dtype:
            out.append(f"{what}: output {o} is {g.dtype}{g.shape}, want {w.dtype}{w.shape}")
        elif w.dtype.kind in "iub":
            far = int(np.abs(g.astype(np.int64) - w.astype(np.int64)).max(initial=0))
            if far > case.steps:
                out.append(f"{what}: output {o} differs by {far}")
        elif not relative_rms(g, w) < case.tolerance:
            out.append(f"{what}: output {o} is off by {relative_rms(g, w):.2e}")
    return out


F16 = "float16"
BF16 = ml_dtypes.bfloat16
