"""A part of an ONNX model as a model of its own: what `graphwright reduce` tries."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import onnx
from onnx import helper


class Cutter:
    """Cuts models out of one; the types of what is cut through come from onnx's shape inference."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except (
            Exception
        ):  # a model too broken (or too large) to infer: only its own types are known
            inferred = model.graph
        self._types: dict[str, Any] = {
            v.name: v for v in (*inferred.value_info, *inferred.input, *inferred.output)
        }
        self._reads = [_names_read(n) for n in model.graph.node]
        self._weights = {t.name: t for t in model.graph.initializer}
        self._sparse = {t.values.name: t for t in model.graph.sparse_initializer}

    def __len__(self) -> int:
        return len(self.model.graph.node)

    def cut(self, chosen: Collection[int]) -> onnx.ModelProto | None:
        """The model of these nodes.  What they read from outside becomes an input, what nobody of
        them reads an output.  None where the type of such a value is not known.
        """
        graph = self.model.graph
        nodes = [graph.node[i] for i in sorted(chosen)]
        made = {name for n in nodes for name in n.output if name}
        read = dict.fromkeys(name for i in sorted(chosen) for name in self._reads[i] if name)
        wanted = {v.name for v in graph.output}
        outside = [n for n in read if n not in made]
        weights = [self._weights[n] for n in outside if n in self._weights]
        sparse = [self._sparse[n] for n in outside if n in self._sparse]
        inputs = [n for n in outside if n not in self._weights and n not in self._sparse]
        outputs = [n for node in nodes for n in node.output if n and (n in wanted or n not in read)]
        if not outputs or any(n not in self._types for n in inputs):
            return None
        if any(not self._types[n].type.HasField("tensor_type") for n in inputs):
            return None
        known = [self._types.get(n) or onnx.ValueInfoProto(name=n) for n in outputs]
        small = helper.make_graph(nodes, graph.name or "reduced", [self._types[n] for n in inputs], known,
                                  weights, sparse_initializer=sparse)  # fmt: skip
        out = helper.make_model(small, opset_imports=list(self.model.opset_import))
        out.ir_version = self.model.ir_version
        out.functions.extend(self.model.functions)
        return out


def _names_read(node: onnx.NodeProto) -> list[str]:
    """What a node reads, its subgraphs included (but not what these make themselves)."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            inner = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            inner |= {name for n in graph.node for name in n.output}
            inside = [name for n in graph.node for name in _names_read(n)]
            names += [n for n in (*inside, *(v.name for v in graph.output)) if n not in inner]
    return names
