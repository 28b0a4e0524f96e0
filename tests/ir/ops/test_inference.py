"""Result types over symbols, what stays open as a constraint, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from graphwright.compiler.ir import dim_parser
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.op import InferenceError
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.types import DTYPES

SYMBOLS = "B, S, H, W, K in 1..8"


def make(op: str, types: str, attributes: dict[str, Any]) -> Graph:
    """A graph with the op alone; types are separated by semicolons, dims in attributes are text."""
    inputs = "\n".join(
        f"  input %x{i}: {t.strip()}" for i, t in enumerate(types.split(";")) if t.strip()
    )
    graph = parse_graph(f"graph @g({SYMBOLS}) {{\n{inputs}\n  return\n}}", registry=REGISTRY)
    given = dict(attributes)
    for name, attribute in REGISTRY[op].attributes.items():
        value = given.get(name)
        if attribute.type == "dims" and isinstance(value, str):
            given[name] = tuple(dim_parser.parse(d, graph.symbols) for d in value.split(","))
        elif attribute.type == "dim" and isinstance(value, str):
            given[name] = dim_parser.parse(value, graph.symbols)
        elif attribute.type == "dtype" and isinstance(value, str):
            given[name] = DTYPES[value]
    graph.create(op, graph.inputs, given)
    return graph


def conv(
    strides: Any = (1, 1), low: Any = "1,1", high: Any = None, dilations: Any = (1, 1), **more: Any
) -> dict[str, Any]:
    return {"strides": strides, "low": low, "high": high or low, "dilations": dilations, **more}


X = "f32[B, 3, H, W]"
GOOD = [
    ("add", "f32[B, 1, S]; f32[H, 1]", {}, "f32[B, H, S]", []),
    ("add", "f32[B]; f32[S]", {}, "f32[max(B, S)]", ["B broadcast S"]),
    ("less", "i64[B]; i64[1]", {}, "bool[B]", []),
    ("where", "bool[B, 1]; f16[S]; f16[]", {}, "f16[B, S]", []),
    ("cast", "f32[B]", {"dtype": "i8"}, "i8[B]", []),
    ("quantize", "f32[B, 4]; f32[4]; i8[4]", {"dtype": "i8"}, "i8[B, 4]", []),
    ("reshape", "f32[B, S, 8]", {"shape": "B, 2, 4*S"}, "f32[B, 2, 4*S]", []),
    ("reshape", "f32[B, S]", {"shape": "H"}, "f32[H]", ["B*S == H"]),
    ("transpose", X, {"permutation": (0, 2, 3, 1)}, "f32[B, H, W, 3]", []),
    ("broadcast_to", "f32[1, S]", {"shape": "B, H, S"}, "f32[B, H, S]", []),
    ("broadcast_to", "f32[B]", {"shape": "S"}, "f32[S]", ["B broadcast S"]),
    ("slice", "f32[S]", {"starts": "0", "sizes": "S", "steps": (1,)}, "f32[S]", []),
    ("slice", "f32[S + 4]", {"starts": "4", "sizes": "S", "steps": (1,)}, "f32[S]", []),
    ("slice", "f32[S]", {"starts": "S - 1", "sizes": "S", "steps": (-1,)}, "f32[S]", []),
    ("concat", "f32[B, S]; f32[B, 2]; f32[B, H]", {"axis": 1}, "f32[B, H + S + 2]", []),
    ("pad", "f32[B, H]", {"low": "0, W", "high": "0, 1"}, "f32[B, H + W + 1]", []),
    ("gather", "f32[100, 64]; i64[B, S]", {"axis": 0}, "f32[B, S, 64]", []),
    ("gather_nd", "f32[B, H, W, 4]; i64[B, S, 2]", {"batch_dims": 1}, "f32[B, S, 4]", []),
    ("one_hot", "i64[B, S]; f32[2]", {"axis": 1, "depth": "H"}, "f32[B, H, S]", []),
    ("reduce_sum", X, {"axes": (2, 3), "keepdims": True}, "f32[B, 3, 1, 1]", []),
    ("reduce_mean", X, {"axes": (1,)}, "f32[B, H, W]", []),
    ("arg_max", "f32[B, 7]", {"axis": 1, "keepdims": False}, "i64[B]", []),
    ("arg_max", "f32[B, S]", {"axis": 1}, "i64[B, 1]", ["S > 0"]),
    ("matmul", "f32[B, 1, S, 64]; f32[H, 64, K]", {}, "f32[B, H, S, K]", []),
    ("matmul", "f32[S]; f32[B, S, K]", {}, "f32[B, K]", []),
    ("matmul_integer", "u8[B, S, 64]; i8[64, K]; u8[]; i8[1, K]", {}, "i32[B, S, K]", []),
    ("matmul_integer", "u8[B, S]; i8[S, K]; u8[B, 1]; i8[]", {}, "i32[B, K]", []),
    (
        "conv_integer",
        "u8[B, 3, H, W]; i8[8, 3, 3, 3]; u8[]; i8[8]",
        conv(),
        "i32[B, 8, H, W]",
        [],
    ),
    ("conv", f"{X}; f32[8, 3, 3, 3]; f32[8]", conv(), "f32[B, 8, H, W]", []),
    (
        "conv",
        f"{X}; f32[8, 3, 3, 3]",
        conv(strides=(2, 2)),
        "f32[B, 8, ((H + 1) floordiv 2), ((W + 1) floordiv 2)]",
        [],
    ),
    (
        "conv",
        f"{X}; f32[8, 3, 3, 3]",
        conv(low="0,0", dilations=(2, 1)),
        "f32[B, 8, H - 4, W - 2]",
        ["H >= 4", "W >= 2"],
    ),
    (
        "conv_transpose",
        f"{X}; f32[3, 8, 2, 2]",
        conv(strides=(2, 2), low="0,0", output_padding=(0, 1)),
        "f32[B, 8, 2*H, 2*W + 1]",
        [],
    ),
    (
        "max_pool",
        X,
        conv(strides=(2, 2), low="0,0", kernel=(2, 2)),
        "f32[B, 3, (H floordiv 2), (W floordiv 2)]",
        [],
    ),
    (
        "max_pool",
        "f32[1, 1, 5]",
        conv((2,), "1", "1", (1,), kernel=(2,), ceil_mode=True),
        "f32[1, 1, 3]",
        [],
    ),
    ("resize", X, {"sizes": "B, 3, 2*H, S"}, "f32[B, 3, 2*H, S]", ["W > 0"]),
    ("top_k", "f32[B, 8]", {"k": "K", "axis": 1}, "f32[B, K], i64[B, K]", []),
    ("layer_norm", "f32[B, S, 64]; f32[64]; f32[64]", {"axis": 2}, "f32[B, S, 64]", []),
    (
        "lstm",
        "f32[S, B, 16]; f32[2, 32, 16]; f32[2, 32, 8]; f32[2, 64]; f32[2, B, 8]; f32[2, B, 8]",
        {"direction": "bidirectional"},
        "f32[S, 2, B, 8], f32[2, B, 8], f32[2, B, 8]",
        [],
    ),
    ("full", "", {"value": 0, "dtype": "i64", "shape": "B, S + 1"}, "i64[B, S + 1]", []),
    ("iota", "", {"size": "S", "start": 3}, "i64[S]", []),
    ("from_dims", "", {"dims": "B, S, 4"}, "i64[3]", []),
]


@pytest.mark.parametrize("op, types, attributes, want, constraints", GOOD)
def test_result_types(
    op: str, types: str, attributes: dict[str, Any], want: str, constraints: list[str]
) -> None:
    graph = make(op, types, attributes)
    (made,) = graph.ops
    assert ", ".join(str(r.type) for r in made.results) == want
    assert [str(c).partition(" (")[0] for c in graph.constraints] == constraints


BAD = [
    ("add", "f32[2]; f16[2]", {}, "add: operands are f32 and f16, want one element type"),
    ("add", "f32[2]; f32[3]", {}, "add: extents 2 and 3 do not broadcast"),
    ("exp", "i32[2]", {}, "exp: operand is i32, want float"),
    ("logical_and", "f32[2]; f32[2]", {}, "logical_and: operand is f32, want bool"),
    ("where", "f32[2]; f32[2]; f32[2]", {}, "where: condition is f32, want bool"),
    ("elu", "f32[2]", {"beta": 1.0}, "elu has no attribute 'beta'; it has: alpha"),
    ("cast", "f32[2]", {}, "cast needs the attribute 'dtype' (dtype)"),
    ("quantize", "f32[2]; f32[]; u8[]", {"dtype": "i8"}, "quantize: zero point is u8, want i8"),
    ("reshape", "f32[2, 3]", {"shape": (7,)}, "reshape: number of elements: want 6 == 7"),
    ("transpose", "f32[2, 3]", {"permutation": (0, 0)}, "(0, 0) is not a permutation of the axes"),
    ("broadcast_to", "f32[3]", {"shape": (4,)}, "broadcast_to: axis 0: want 3 == 4"),
    (
        "slice",
        "f32[5]",
        {"starts": (2,), "sizes": (4,), "steps": (1,)},
        "slice: axis 0: last element: want 5 < 5",
    ),
    (
        "slice",
        "f32[5]",
        {"starts": (0,), "sizes": (2,), "steps": (0,)},
        "slice: axis 0: step 0, want an int other than 0",
    ),
    ("concat", "f32[2, 3]; f32[3, 3]", {"axis": 1}, "concat: axis 0 of input 1: want 3 == 2"),
    ("concat", "f32[2]", {"axis": 1}, "concat: axis 1, want 0 to 0 for rank 1"),
    ("pad", "f32[2]", {"low": (2,), "high": (0,), "mode": "reflect"}, "reflected: want 2 < 2"),
    ("pad", "f32[2]", {"low": (0,), "high": (0,), "mode": "odd"}, "mode is 'odd', want one of"),
    ("gather", "f32[2]; f32[1]", {}, "gather: indices are f32, want an integer type"),
    ("gather_nd", "f32[2]; i64[1, 2]", {}, "gather_nd: index tuples of 2 for 1 axes"),
    ("reduce_sum", "f32[2, 3]", {"axes": (1, 1)}, "reduce_sum: axes (1, 1) name an axis twice"),
    ("reduce_sum", "bool[2]", {"axes": (0,)}, "reduce_sum: operand is bool[2], want a number type"),
    ("matmul", "f32[2, 3]; f32[4, 2]", {}, "matmul: contracted axes: want 3 == 4"),
    ("matmul", "f32[2]; f32[]", {}, "matmul: b is f32[], want rank 1 or more"),
    (
        "matmul_integer",
        "f32[2, 3]; i8[3, 2]; f32[]; i8[]",
        {},
        "matmul_integer: a is f32[2, 3], want i8 or u8 or i16",
    ),
    (
        "matmul_integer",
        "u8[2, 3]; i8[3, 2]; i8[]; i8[]",
        {},
        "matmul_integer: the zero point of a is i8, want u8 as a is",
    ),
    (
        "matmul_integer",
        "u8[2, 3]; i8[3, 2]; u8[2, 3]; i8[]",
        {},
        "the zero point of a along its contracted axis: want 3 == 1",
    ),
    (
        "conv_integer",
        "u8[1, 3, 8, 8]; i8[8, 3, 3, 3]; u8[]; i8[3]",
        conv(),
        "conv_integer: axis 0 of w_zero: want 3 == 8",
    ),
    (
        "conv",
        "f32[1, 4, 8, 8]; f32[8, 3, 3, 3]",
        conv(),
        "conv: channels of x and w: want 4 == 3",
    ),
    ("conv", "f32[1, 4, 8, 8]; f32[6, 1, 3, 3]", conv(groups=4), "4 groups do not divide 6"),
    (
        "conv",
        "f32[1, 3, 2, 9]; f32[8, 3, 5, 5]",
        conv(low="0,0"),
        "windows of 5 by 1 on spatial axis 0: want 2 >= 4",
    ),
    ("conv", "f32[1, 3, 8]; f32[8, 3, 5]", conv(), "strides has 2 entries, want 1"),
    ("resize", "i32[2]", {"sizes": (4,), "mode": "linear"}, "operand is i32[2], want a float type"),
    (
        "resize",
        "f32[2]",
        {"sizes": (4,), "coordinates": "odd"},
        "coordinates is 'odd', want one of",
    ),
    ("top_k", "f32[3]", {"k": 4, "axis": 0}, "k against the extent of axis 0: want 4 <= 3"),
    (
        "rnn",
        "f32[4, 2, 3]; f32[1, 5, 3]; f32[1, 5, 5]; f32[1, 10]; f32[1, 2, 5]",
        {"activations": ("odd",)},
        "activation 'odd' is unknown; known: tanh",
    ),
    (
        "rnn",
        "f32[4, 2, 3]; f32[1, 5, 3]; f32[1, 5, 5]; f32[1, 5]; f32[1, 2, 5]",
        {},
        "rnn: axis 1 of bias: want 5 == 10",
    ),
    ("iota", "", {"size": 3, "step": 0.5}, "iota: step is 0.5, want an int for i64"),
]


@pytest.mark.parametrize("op, types, attributes, message", BAD)
def test_refusals(op: str, types: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InferenceError) as error:
        make(op, types, attributes)
    assert message in str(error.value)
