"""One graph of a trace for other tools: Graphviz's DOT and Model Explorer's JSON."""

from __future__ import annotations

import json
from typing import Any

from graphwright.compiler.trace.records import Record, producer_of


def to_dot(graph: Record) -> str:
    """The graph in the DOT language of Graphviz; constants are left out."""
    lines = [f"digraph {json.dumps(graph['name'])} {{", "  node [shape=box, fontname=sans];"]
    for n, (name, type) in enumerate(graph["inputs"]):
        lines.append(f"  i{n} [label={_quoted(name, type)}, shape=oval];")
    drawn = {op["id"] for op in graph["ops"] if op["op"] != "constant"}
    for op in graph["ops"]:
        if op["id"] not in drawn:
            continue
        types = ", ".join(out[0] for out in op.get("out", ()))
        lines.append(f"  n{op['id']} [label={_quoted(title(op), types)}];")
        for reference in op.get("in", ()):
            producer = producer_of(reference)
            if producer is None:
                lines.append(f"  {reference} -> n{op['id']};")
            elif producer in drawn:
                lines.append(f"  n{producer} -> n{op['id']};")
    for n, (reference, name) in enumerate(
        zip(graph["outputs"], graph.get("output_names", ()), strict=False)
    ):
        producer = producer_of(reference)
        lines.append(f"  out{n} [label={_quoted(name)}, shape=oval];")
        lines.append(f"  {reference if producer is None else f'n{producer}'} -> out{n};")
    return "\n".join([*lines, "}"]) + "\n"


def to_model_explorer(graph: Record, label: str) -> list[dict[str, Any]]:
    """Graph collections as Model Explorer (google-ai-edge/model-explorer) loads them from JSON."""
    nodes: list[dict[str, Any]] = []
    for n, (name, type) in enumerate(graph["inputs"]):
        nodes.append(
            {
                "id": f"i{n}",
                "label": name,
                "namespace": "inputs",
                "attrs": [_attribute("type", type)],
            }
        )
    for op in graph["ops"]:
        edges: list[dict[str, str]] = []
        for place, reference in enumerate(op.get("in", ())):
            source, _, index = reference.partition(".")
            edges.append(
                {
                    "sourceNodeId": source,
                    "sourceNodeOutputId": index or "0",
                    "targetNodeInputId": str(place),
                }
            )
        outputs = [
            {"id": str(n), "attrs": [_attribute("tensor_shape", out[0])]}
            for n, out in enumerate(op.get("out", ()))
        ]
        nodes.append(
            {
                "id": str(op["id"]),
                "label": title(op),
                "namespace": _namespace(op),
                "attrs": [_attribute(k, v) for k, v in op.get("attributes", {}).items()],
                "incomingEdges": edges,
                "outputsMetadata": outputs,
            }
        )
    return [{"label": label, "graphs": [{"id": graph["name"] or "graph", "nodes": nodes}]}]


def title(op: Record) -> str:
    """What an op is, in a few words: a region says what it computes."""
    if op["op"] != "fused" or not op.get("bodies"):
        return str(op["op"])
    inner = [o["op"] for o in op["bodies"][0]["ops"] if o["op"] != "constant"]
    return " + ".join(dict.fromkeys(inner))


def _namespace(op: Record) -> str:
    """The module path: that of the first origin that is a path, without its last part."""
    paths = [o for o in op.get("from", ()) if "/" in o]
    return paths[0].strip("/").rpartition("/")[0] if paths else ""


def _attribute(key: str, value: Any) -> dict[str, str]:
    return {"key": key, "value": str(value)}


def _quoted(*lines: str) -> str:
    return json.dumps("\n".join(line for line in lines if line), ensure_ascii=False)
