"""An ONNX graph as records of the trace format, node by node, without importing it.

For looking at files and comparing them: nothing is checked, lowered or refused.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import numpy_helper

INLINE = 16


def describe(proto: onnx.ModelProto) -> dict[str, Any]:
    """{name, inputs, ops, outputs, output_names}: a graph's record as docs/trace.md says.

    An initializer or Constant node is an op `constant` named after its tensor; an absent optional input is left out
    and said in the attribute `inputs`.
    """
    graph = proto.graph
    return _graph(graph, _types(graph), {})


def _graph(graph: onnx.GraphProto, types: dict[str, str], outer: dict[str, str]) -> dict[str, Any]:
    weights = {t.name for t in graph.initializer}
    given = [v for v in graph.input if v.name not in weights]
    values = dict(outer) | {v.name: f"i{n}" for n, v in enumerate(given)}
    ops: list[dict[str, Any]] = []
    for tensor in graph.initializer:
        values[tensor.name] = str(len(ops))
        ops.append(
            {
                "id": len(ops),
                "op": "constant",
                "attributes": {"value": _tensor(tensor)},
                "out": [[_tensor_type(tensor), tensor.name]],
            }
        )
    for node in graph.node:
        number = len(ops)
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            values[node.output[0]] = str(number)
            ops.append(_constant(node, number))
            continue
        record: dict[str, Any] = {"id": number, "op": _op_name(node)}
        if operands := [values[name] for name in node.input if name in values]:
            record["in"] = operands
        attributes = {
            a.name: _attribute(a) for a in node.attribute if a.type != onnx.AttributeProto.GRAPH
        }
        if "" in node.input:
            attributes["inputs"] = ", ".join(name or "-" for name in node.input)
        if attributes:
            record["attributes"] = attributes
        record["out"] = [[types.get(name, "?"), name] for name in node.output]
        record["from"] = [node.name or _op_name(node)]
        bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        if bodies:
            record["bodies"] = [_graph(body, types | _types(body), {}) for body in bodies]
        ops.append(record)
        for place, name in enumerate(node.output):
            if name:
                values[name] = f"{number}.{place}" if place else str(number)
    return {
        "name": graph.name or "main",
        "inputs": [[v.name, types.get(v.name, "?")] for v in given],
        "ops": ops,
        "outputs": [values[v.name] for v in graph.output if v.name in values],
        "output_names": [v.name for v in graph.output if v.name in values],
    }


def _constant(node: onnx.NodeProto, number: int) -> dict[str, Any]:
    """A Constant node, which is no more of an op than an initializer."""
    attributes = {a.name: _attribute(a) for a in node.attribute}
    tensor = next((a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR), None)
    return {
        "id": number,
        "op": "constant",
        "attributes": attributes,
        "out": [["?" if tensor is None else _tensor_type(tensor), node.output[0]]],
        "from": [node.name or "Constant"],
    }


def _op_name(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _types(graph: onnx.GraphProto) -> dict[str, str]:
    found: dict[str, str] = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.WhichOneof("value") != "tensor_type":
            found[info.name] = str(info.type.WhichOneof("value"))
            continue
        tensor = info.type.tensor_type
        dims = ["?"]
        if tensor.HasField("shape"):
            dims = [
                str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
                for d in tensor.shape.dim
            ]
        found[info.name] = f"{_element(tensor.elem_type)}[{', '.join(dims)}]"
    return found


def _element(code: int) -> str:
    return onnx.TensorProto.DataType.Name(code).lower() if code else "?"


def _tensor_type(tensor: onnx.TensorProto) -> str:
    return f"{_element(tensor.data_type)}[{', '.join(map(str, tensor.dims))}]"


def _tensor(tensor: onnx.TensorProto) -> str:
    """Values of a small tensor, else a digest of the bytes that the file holds for it."""
    count = 1
    for dim in tensor.dims:
        count *= dim
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if count <= INLINE and not external and tensor.data_type != onnx.TensorProto.STRING:
        return f"dense({', '.join(map(str, numpy_helper.to_array(tensor).reshape(-1)))})"
    import hashlib

    if external:
        place = ", ".join(f"{e.key}={e.value}" for e in tensor.external_data)
        return f"external({place})"
    data = tensor.raw_data or tensor.SerializeToString()
    return f'dense<"{hashlib.sha256(data).hexdigest()[:16]}">'


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _tensor(value)
    if isinstance(value, bytes):
        return '"' + value.decode(errors="replace") + '"'
    if isinstance(value, list | tuple) or hasattr(value, "__len__"):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
