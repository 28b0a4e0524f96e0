"""ONNX's own backend tests as cases: node, simple, pytorch-operator, pytorch-converted and light.

All of them come with the onnx package.  A case whose shapes or axes come from graph inputs is there
twice: as it is, and "NAME (frozen)", with these inputs as initializers, the way exporters write them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
# Inputs that set shapes or axes: usually constants, in node tests graph inputs.
SHAPE_INPUTS = {
    "AffineGrid": (1,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,), "CumSum": (1,),
    "DFT": (1, 2), "Expand": (1,), "MelWeightMatrix": (0, 1, 2, 3, 4), "OneHot": (1,),
    "Pad": (1, 3), "Range": (0, 1, 2), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceSum": (1,),
    "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "Slice": (1, 2, 3, 4), "Split": (1,),
    "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Unsqueeze": (1,), "Upsample": (1,),
}  # fmt: skip
DataSets = Sequence[tuple[Sequence[Any], Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Case:
    """One test.  `path`: where a stored model lies; else it is `held`: a model and its data sets."""

    name: str
    kind: str
    rtol: float
    atol: float
    path: Path | None = None
    held: tuple[onnx.ModelProto, DataSets] | None = None

    def load(self) -> tuple[onnx.ModelProto, DataSets]:
        """The model and ((inputs, outputs), ...), arrays in the order of the graph's names."""
        if self.held is not None:
            model, sets = self.held
            return model, [([value_of(x) for x in i], [value_of(x) for x in o]) for i, o in sets]
        assert self.path is not None
        if self.kind == "light":
            return _load_light(self.path)
        model = onnx.load(self.path / "model.onnx")
        folders = sorted(self.path.glob("test_data_set_*"))
        graph = model.graph
        return model, [
            (list(_stored(f, "input", graph.input)), list(_stored(f, "output", graph.output)))
            for f in folders
        ]


def value_of(value: Any) -> Any:
    """An array, a list of values, or None; element types that numpy lacks come as TensorProtos."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if value is None or isinstance(value, str | dict):
        return value
    if isinstance(value, list | tuple):
        return [value_of(v) for v in value]
    return np.asarray(value)


def _stored(folder: Path, what: str, values: Sequence[onnx.ValueInfoProto]) -> Iterator[Any]:
    for i, info in enumerate(values):
        path = folder / f"{what}_{i}.pb"
        if not path.exists():
            return
        data = path.read_bytes()
        if info.type.HasField("sequence_type"):
            yield numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        elif info.type.HasField("optional_type"):
            yield numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        else:
            yield numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _load_light(path: Path) -> tuple[onnx.ModelProto, DataSets]:
    """Large models with constant weights; the input ramps from 0 to 1."""
    model = onnx.load(path)
    (info,) = (i for i in model.graph.input if i.name in input_names(model))
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    ramp = (np.arange(count).reshape(shape) / count).astype(np.float32)
    stored = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
    return model, [([ramp], [numpy_helper.to_array(stored)])]


def input_names(model: onnx.ModelProto) -> list[str]:
    """The graph inputs that are not initializers."""
    held = {t.name for t in model.graph.initializer}
    return [i.name for i in model.graph.input if i.name not in held]


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """Every case, node tests first, by name."""
    from onnx.backend.test.case.node import collect_testcases

    cases: list[Case] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for c in sorted(collect_testcases(None), key=lambda c: c.name):
            case = Case(c.name, "node", c.rtol, c.atol, held=(c.model, c.data_sets))
            cases.append(case)
            frozen = freeze(case)
            if frozen is not None:
                cases.append(frozen)
    data = Path(onnx.backend.test.__file__).parent / "data"
    for kind in KINDS[1:-1]:
        for folder in sorted((data / kind).iterdir()):
            if (folder / "model.onnx").exists():
                cases.append(Case(folder.name, kind, 1e-3, 1e-7, path=folder))
    for path in sorted((data / "light").glob("*.onnx")):
        cases.append(Case(f"test_{path.stem}", "light", 1e-3, 1e-5, path=path))
    return tuple(cases)


def freeze(case: Case) -> Case | None:
    """The case with the inputs that set shapes as initializers; None when there is no such input."""
    assert case.held is not None
    model, sets = case.held
    fixed = _inputs_for_shapes(model)
    names = [i.name for i in model.graph.input]
    if len(sets) != 1 or not fixed or len(sets[0][0]) != len(names):
        return None
    inputs, outputs = sets[0]
    given = {n: value_of(v) for n, v in zip(names, inputs, strict=True)}
    if any(not isinstance(given[n], np.ndarray) for n in fixed):
        return None
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    frozen.graph.initializer.extend(numpy_helper.from_array(given[n], n) for n in sorted(fixed))
    del frozen.graph.input[:]
    frozen.graph.input.extend(i for i in model.graph.input if i.name not in fixed)
    rest = [v for n, v in zip(names, inputs, strict=True) if n not in fixed]
    return Case(
        f"{case.name} (frozen)", "node", case.rtol, case.atol, held=(frozen, [(rest, outputs)])
    )


def _inputs_for_shapes(model: onnx.ModelProto) -> set[str]:
    """The graph inputs that shapes and axes are computed from."""
    makers = {o: n for n in model.graph.node for o in n.output}
    stack = [
        node.input[p]
        for node in model.graph.node
        for p in SHAPE_INPUTS.get(node.op_type, ())
        if p < len(node.input)
    ]
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name in makers and makers[name].op_type not in ("Shape", "Size"):
            stack += makers[name].input
        found.add(name)
    return found & {i.name for i in model.graph.input}
