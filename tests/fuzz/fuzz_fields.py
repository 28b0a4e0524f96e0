"""Damage that keeps a file readable: fields of a model, values of a manifest, words of a text."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import TensorProto

NUMBERS = (0, 1, -1, 2, 3, 7, -9, 100, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
WORDS = ("", "x0", "Relu", "MatMul", "nan", "../../etc/passwd", "\x00", "\u00e9" * 99, "N2")


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def change_model(model: onnx.ModelProto, rng: random.Random) -> None:
    """One field of a model, changed or dropped."""
    graph = model.graph
    nodes = list(nodes_of(graph))
    kind = rng.choice(("attribute", "input", "output", "op", "node", "opset", "type", "weight"))
    node = rng.choice(nodes) if nodes else None
    if kind == "attribute" and node is not None and node.attribute:
        _change_attribute(rng.choice(node.attribute), node, rng)
    elif kind == "input" and node is not None and node.input:
        names = [n for other in nodes for n in other.output] + list(node.input) + list(WORDS)
        at = rng.randrange(len(node.input))
        if rng.random() < 0.2:
            del node.input[at]
        elif rng.random() < 0.2:
            node.input.append(rng.choice(names))
        else:
            node.input[at] = _text(rng.choice(names))
    elif kind == "output" and node is not None and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(
            [node.output[0], "x0", "", "v1_0"]
        )
    elif kind == "op" and node is not None:
        node.op_type = rng.choice([n.op_type for n in nodes] + ["Loop", "Reshape", "NoSuchOp", ""])
        if rng.random() < 0.2:
            node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "mine"))
    elif kind == "node" and nodes:
        at = rng.randrange(len(graph.node))
        if rng.random() < 0.5:
            del graph.node[at]
        else:
            graph.node.append(graph.node[at])
    elif kind == "opset":
        model.opset_import[0].version = rng.choice([*NUMBERS, 6, 7, 11, 12, 18, 99])
    elif kind == "type" and graph.input:
        tensor = rng.choice([*graph.input, *graph.output]).type.tensor_type
        if rng.random() < 0.5:
            tensor.elem_type = rng.choice([0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 99])
        elif tensor.shape.dim:
            dim = rng.choice(tensor.shape.dim)
            dim.dim_value = rng.choice(NUMBERS)
    elif graph.initializer:
        _change_weight(rng.choice(graph.initializer), rng)


def _text(word: str) -> str:
    return word.replace("\x00", "0")


def _change_attribute(
    attribute: onnx.AttributeProto, node: onnx.NodeProto, rng: random.Random
) -> None:
    roll = rng.random()
    if roll < 0.15:
        node.attribute.remove(attribute)
    elif roll < 0.25:
        attribute.name = rng.choice(("axis", "axes", "to", "nothing", "keepdims"))
    elif roll < 0.35:
        attribute.type = rng.choice([0, 1, 2, 3, 4, 6, 7, 8])
    elif attribute.type == onnx.AttributeProto.INTS:
        if attribute.ints and rng.random() < 0.7:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        else:
            attribute.ints.append(rng.choice(NUMBERS))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e38])
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice(WORDS).encode()


def _change_weight(weight: TensorProto, rng: random.Random) -> None:
    roll = rng.random()
    if roll < 0.3 and weight.dims:
        weight.dims[rng.randrange(len(weight.dims))] = rng.choice(NUMBERS)
    elif roll < 0.45:
        weight.dims.append(rng.choice((0, 1, 2)))
    elif roll < 0.6:
        weight.data_type = rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 21, 22, 99])
    elif roll < 0.8 and weight.raw_data:
        data = bytearray(weight.raw_data)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        weight.raw_data = bytes(data)
    elif roll < 0.9:
        weight.raw_data = weight.raw_data[:-1]
    else:
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=rng.choice(WORDS[4:6]))


def change_tree(tree: Any, rng: random.Random) -> None:
    """One value somewhere in a tree of JSON, changed or dropped."""
    places: list[tuple[Any, Any]] = []

    def visit(at: Any) -> None:
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            places.append((at, key))
            visit(at[key])

    visit(tree)
    for _ in range(rng.randint(1, 2)):
        holder, key = rng.choice(places)
        try:
            if rng.random() < 0.15:
                del holder[key]
            elif isinstance(holder[key], int) and rng.random() < 0.8:
                holder[key] = rng.choice([*NUMBERS, holder[key] + 1, holder[key] - 1, 1 << 70])
            else:
                other, at = rng.choice(places)
                choices = [None, {}, [], "", 1.5, True, copy.deepcopy(other[at])]
                holder[key] = rng.choice(choices)
        except (KeyError, IndexError, RecursionError):
            continue


def damaged_text(text: str, rng: random.Random) -> str:
    """Some words of a text swapped, dropped, doubled or replaced."""
    words = re.findall(r"\s+|\w+|.", text)
    for _ in range(rng.randint(1, 3)):
        a, b = rng.randrange(len(words)), rng.randrange(len(words))
        kind = rng.random()
        if kind < 0.4:
            words[a] = words[b]
        elif kind < 0.6:
            del words[a]
        elif kind < 0.8:
            words[a] = str(rng.choice(NUMBERS))
        else:
            words.insert(a, words[b])
    return "".join(words)
