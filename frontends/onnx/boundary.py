"""Sequences and optional values among a model's inputs and outputs, as tensors of the graph.

What they consist of is written into the metadata for callers (`graphwright/containers.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.types import BOOL, I64, DType, TensorType
from graphwright.containers import KEY
from graphwright.frontends.onnx.containers import Entry, Items, Maybe, Packed, SequenceEntry, Stack
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.tensors import element_type

if TYPE_CHECKING:
    from graphwright.frontends.onnx.importer import Importer

MOST_AXES = 8  # of a sequence's elements whose rank is not declared


class Boundary:
    """Makes the graph's inputs and outputs, and keeps which values they make up."""

    def __init__(self, importer: Importer, graph: Graph) -> None:
        self.importer, self.graph = importer, graph
        self.inputs: list[tuple[str, Any]] = []
        self.outputs: list[tuple[str, Any]] = []
        self.values: list[Value] = []
        self.names: list[str] = []

    def add_tensor(self, name: str, type: TensorType) -> Value:
        """A plain input."""
        self.inputs.append((name, len(self.graph.inputs)))
        value = self.graph.add_input(name, type)
        value.equals = name
        return value

    def add_container(self, name: str, type: onnx.TypeProto) -> Entry:
        """An input that is a sequence or optional.  Raises Refusal for anything else."""
        kind = type.WhichOneof("value")
        if kind == "sequence_type":
            entry, form = self._sequence(name, type.sequence_type)
        elif kind == "optional_type":
            entry, form = self._optional(name, type.optional_type.elem_type)
        else:
            what = (kind or "value without a type").removesuffix("_type")
            raise Refusal(
                f"it is a {what}, only tensors, sequences and optional values can be inputs"
            )
        self.inputs.append((name, form))
        return entry

    def _input(self, name: str, dtype: DType, shape: tuple[Dim, ...]) -> Value:
        taken = {v.name for v in self.graph.inputs}
        while name in taken:
            name += "_"
        return self.graph.add_input(name, TensorType(dtype, shape))

    def _symbol(self, name: str) -> Dim:
        return dims.of(self.importer.fresh_symbol(name))

    def _sequence(self, name: str, type: onnx.TypeProto.Sequence) -> tuple[SequenceEntry, Any]:
        if type.elem_type.WhichOneof("value") != "tensor_type":
            raise Refusal("it is a sequence of other things than tensors, which is not supported")
        tensor = type.elem_type.tensor_type
        dtype = element_type(tensor.elem_type, "it")
        first, length = len(self.graph.inputs), self._symbol(f"{name}.length")
        sizes = [d.dim_value for d in tensor.shape.dim]
        has_shape = tensor.HasField("shape")
        if has_shape and all(sizes):
            return Stack(self._input(f"{name}.rows", dtype, (length, *sizes))), {"stack": first}
        data = self._input(f"{name}.data", dtype, (self._symbol(f"{name}.elements"),))
        width = len(sizes) if has_shape else MOST_AXES
        rank = len(sizes) if has_shape else None
        shapes = self._input(f"{name}.shapes", I64, (length, width))
        return Packed(data, shapes, rank), {"packed": [first, first + 1], "rank": rank}

    def _optional(self, name: str, type: onnx.TypeProto) -> tuple[Maybe, Any]:
        present = len(self.graph.inputs)
        there = self._input(f"{name}.present", BOOL, ())
        content: Value | SequenceEntry
        form: Any
        if type.WhichOneof("value") == "sequence_type":
            content, form = self._sequence(name, type.sequence_type)
        elif type.WhichOneof("value") == "tensor_type":
            tensor = type.tensor_type
            dtype = element_type(tensor.elem_type, "it")
            if not tensor.HasField("shape"):
                raise Refusal("its rank is not declared")
            shape = [d.dim_value or self._symbol(f"{name}.size") for d in tensor.shape.dim]
            form = len(self.graph.inputs)
            content = self._input(name, dtype, tuple(shape))
        else:
            raise Refusal("it is an optional value of another kind than tensor or sequence")
        return Maybe(there, content), {"optional": present, "content": form}

    # -- outputs

    def add_output(self, name: str, entry: Entry, declared: str | None) -> None:
        """`declared`: the kind in the model's own words."""
        if isinstance(entry, Maybe) and declared != "optional_type" and entry.content is not None:
            entry = entry.content
        if isinstance(entry, Value):
            self.outputs.append((name, self._output(name, entry)))
        else:
            self.outputs.append((name, self._form(name, entry)))

    def _output(self, name: str, value: Value) -> int:
        while name in self.names:
            name += "_"
        self.values.append(value)
        self.names.append(name)
        return len(self.values) - 1

    def _form(self, name: str, entry: Entry) -> Any:
        match entry:
            case Value():
                return self._output(name, entry)
            case Items():
                parts = enumerate(entry.values)
                return {"items": [self._output(f"{name}.{i}", v) for i, v in parts]}
            case Stack():
                return {"stack": self._output(f"{name}.rows", entry.tensor)}
            case Packed():
                data = self._output(f"{name}.data", entry.data)
                return {"packed": [data, self._output(f"{name}.shapes", entry.shapes)]}
            case Maybe():
                present = entry.present
                if isinstance(present, Value):
                    present = self._output(f"{name}.present", present)
                content = None if entry.content is None else self._form(name, entry.content)
                return {"optional": present, "content": content}
            case _:
                raise AssertionError(f"{entry} outside of a loop")

    def finish(self) -> None:
        """Declares the graph's outputs, and what sequences and optional values consist of."""
        self.graph.set_outputs(self.values, self.names)
        if any(not isinstance(form, int) for _, form in (*self.inputs, *self.outputs)):
            text = {"inputs": self.inputs, "outputs": self.outputs}
            self.graph.metadata[KEY] = json.dumps(text, separators=(",", ":"))
