"""Random nodes with bodies (If, Loop, Scan), with sequences, and of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from fuzz_nodes import Maker
from fuzz_wide import F32, draws, finite, ints, whole
from onnx import TensorProto, helper

POINTWISE = ("Relu", "Abs", "Neg", "Tanh", "Sigmoid", "Identity", "Softsign")


def _value(name: str, kind: int = TensorProto.FLOAT, dims: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def branch(b: Any) -> bool:
    """If, with captures, its condition from data."""
    x = b.pick(finite())
    if x is None:
        return False
    test = b.chain(
        [
            ("ReduceSum", [x], {"keepdims": 0}),
            ("Greater", [0, b.weight(np.array(0, np.float32))], {}),
        ]
    )
    if not test:
        return False
    condition, n = b.last(), len(b.nodes)
    other = b.weight(b.numbers(b.arrays[x].shape[-1:], F32))
    sides = []
    for side in ("then", "else"):
        name = f"{side}{n}"
        ops = b.rng.sample(POINTWISE, 2)
        nodes = [
            helper.make_node(ops[0], [x], [f"{name}_a"]),
            helper.make_node(b.rng.choice(("Add", "Mul")), [f"{name}_a", other], [f"{name}_b"]),
            helper.make_node(ops[1], [f"{name}_b"], [f"{name}_c"]),
        ]
        if side == "else" and b.rng.random() < 0.4 and b.arrays[x].ndim:  # of another size
            nodes.append(
                helper.make_node("Concat", [f"{name}_c", f"{name}_c"], [f"{name}_d"], axis=0)
            )
        sides.append(helper.make_graph(nodes, name, [], [_value(nodes[-1].output[0])]))
    return b.add("If", [condition], captures=[x, other], then_branch=sides[0], else_branch=sides[1])


def loop(b: Any) -> bool:
    """A trip count, perhaps an early end, a carried value and a scan output."""
    x = b.pick(finite())
    if x is None or b.arrays[x].size == 0:
        return False
    n = f"loop{len(b.nodes)}"
    other = b.weight(b.numbers(b.arrays[x].shape[-1:], F32) / np.float32(4))
    trips = b.weight(np.array(b.rng.choice([0, 1, 2, 5]), np.int64))
    nodes = [
        helper.make_node("Add", [f"{n}_s", other], [f"{n}_t"]),
        helper.make_node(b.rng.choice(POINTWISE), [f"{n}_t"], [f"{n}_u"]),
    ]
    if b.rng.random() < 0.5:
        nodes.append(helper.make_node("Identity", [f"{n}_c"], [f"{n}_k"]))
    else:
        nodes += [
            helper.make_node("Constant", [], [f"{n}_l"], value_int=b.rng.randint(0, 3)),
            helper.make_node("Less", [f"{n}_i", f"{n}_l"], [f"{n}_k"]),
        ]
    outputs = [_value(f"{n}_k", TensorProto.BOOL, []), _value(f"{n}_u")]
    count = 1
    if b.rng.random() < 0.6 and int(b.arrays[trips]):
        scanned = b.rng.choice(("u", "r"))
        if scanned == "r":
            nodes.append(helper.make_node("ReduceSum", [f"{n}_u"], [f"{n}_r"], keepdims=0))
        else:
            nodes.append(helper.make_node("Identity", [f"{n}_u"], [f"{n}_r"]))
        outputs.append(_value(f"{n}_r"))
        count = 2
    kind = [_value(f"{n}_i", TensorProto.INT64, []), _value(f"{n}_c", TensorProto.BOOL, [])]
    body = helper.make_graph(nodes, n, [*kind, _value(f"{n}_s")], outputs)
    condition = b.weight(np.array(True))
    return b.add("Loop", [trips, condition, x], count, captures=[other], body=body)


def scan(b: Any) -> bool:
    x = b.pick(finite(2, 3))
    if x is None or b.arrays[x].size == 0:
        return False
    n, shape = f"scan{len(b.nodes)}", b.arrays[x].shape
    first = b.weight(b.numbers(shape[1:], F32))
    nodes = [
        helper.make_node(b.rng.choice(("Add", "Max", "Mul")), [f"{n}_s", f"{n}_x"], [f"{n}_t"]),
        helper.make_node(b.rng.choice(POINTWISE), [f"{n}_t"], [f"{n}_u"]),
        helper.make_node("Identity", [f"{n}_u"], [f"{n}_y"]),
    ]
    body = helper.make_graph(
        nodes, n, [_value(f"{n}_s", dims=shape[1:]), _value(f"{n}_x", dims=shape[1:])],
        [_value(f"{n}_u", dims=shape[1:]), _value(f"{n}_y", dims=shape[1:])],
    )  # fmt: skip
    given: dict[str, Any] = {"num_scan_inputs": 1, "body": body}
    if b.rng.random() < 0.3:
        given["scan_input_directions"] = [1]
    return b.add("Scan", [first, x], 2, **given)


def sequence(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0 and a.dtype.kind in "fi" and max(a.shape, default=0) > 1)
    if x is None:
        return False
    axis = b.rng.randrange(b.arrays[x].ndim)
    style = b.rng.choice(("at", "concat", "insert", "erase", "length", "stack"))
    keep = 1 if b.rng.random() < 0.7 else 0
    if b.rng.random() < 0.5:
        steps = [("SplitToSequence", [x], {"axis": axis, "keepdims": keep})]
    else:
        steps = [("SequenceConstruct", [x, x, x], {})]
    one = ints(b, b.rng.choice([0, -1, 1]))
    if style == "at":
        steps.append(("SequenceAt", [0, one], {}))
    elif style == "length":
        steps.append(("SequenceLength", [0], {}))
    else:
        if style == "insert":
            steps += [("SequenceAt", [0, one], {}), ("SequenceInsert", [0, 1], {})]
        elif style == "erase":
            steps.append(("SequenceErase", [0, one], {}))
        new = {"new_axis": 1} if style == "stack" else {}
        steps.append(("ConcatFromSequence", [len(steps) - 1], {"axis": 0, **new}))
    return b.chain(steps)


def microsoft(b: Any) -> bool:
    x = b.pick(finite(2, 3))
    if x is None or b.arrays[x].size == 0:
        return False
    shape = b.arrays[x].shape
    op = b.rng.choice(
        ("FusedMatMul", "BiasGelu", "FastGelu", "QuickGelu", "SkipLayerNormalization", "MatMulNBits",
         "SkipSimplifiedLayerNormalization", "QLinearAdd", "QLinearMul", "QLinearSigmoid",
         "QLinearLeakyRelu", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MultiHeadAttention",
         "QLinearConcat", "QLinearSoftmax", "Gelu")
    )  # fmt: skip

    def row() -> str:
        return b.weight(b.numbers(shape[-1:], F32))

    def scalar(number: float, dtype: Any = np.float32) -> str:
        return b.weight(np.array(number, dtype))

    def add(names: list[str], **given: Any) -> bool:
        return b.add(op, names, domain="com.microsoft", **given)

    if op == "FusedMatMul":
        w = b.weight(b.numbers((5, shape[-1]), F32))
        return add([x, w], transB=1, alpha=b.rng.choice([1.0, 0.5]))
    if op in ("BiasGelu", "FastGelu"):
        return add([x, row()])
    if op in ("QuickGelu", "Gelu"):
        return add([x], **({"alpha": 1.702} if op == "QuickGelu" else {}))
    if op.startswith("Skip"):
        skip = b.weight(b.numbers(shape, F32))
        if len(shape) != 3:
            return False
        return add([x, skip, row()] + ([row()] if "Simplified" not in op else []), epsilon=1e-3)
    if op == "DynamicQuantizeMatMul":
        w = whole(b, (shape[-1], 8), np.int8)
        return add([x, w, scalar(0.02), scalar(0, np.int8)])
    if op == "MultiHeadAttention":
        if len(shape) != 3:
            return False
        heads = b.rng.choice([h for h in (1, 2, 4) if shape[-1] % h == 0])
        k, v = (b.weight(b.numbers((shape[0], 4, shape[-1]), F32)) for _ in range(2))
        return add([x, k, v], num_heads=heads)
    if op == "MatMulNBits":
        k, n = shape[-1], 6
        w = b.weight(draws(b).integers(0, 256, (n, -(-k // 32), 16), np.uint8))
        scales = b.weight((draws(b).random((n, -(-k // 32))) * 0.1).astype(np.float32))
        return add([x, w, scales], K=k, N=n, bits=4, block_size=32)
    kind = b.rng.choice((np.uint8, np.int8))
    scale, zero = scalar(0.0517), scalar(b.rng.randint(0, 9), kind)
    if not b.add("QuantizeLinear", [x, scale, zero]):
        return False
    q = b.last()
    to = [scalar(0.0831), scalar(3, kind)]  # scales without ties
    if op == "MatMulIntegerToFloat":
        w = whole(b, (shape[-1], 8), np.int8)
        return add([q, w, scale, scalar(0.01), zero, scalar(0, np.int8)])
    if op in ("QLinearAdd", "QLinearMul"):
        other = whole(b, shape[-1:], kind)
        return add([q, scale, zero, other, scalar(0.03), scalar(1, kind), *to])
    if op == "QLinearConcat":
        return add([*to, q, scale, zero, q, scale, zero], axis=b.rng.randrange(len(shape)))
    if op == "QLinearSoftmax":
        low = scalar(1 / 256), scalar(0 if kind is np.uint8 else -128, kind)
        return add([q, scale, zero, *low], opset=13, axis=-1)
    return add([q, scale, zero, *to], **({"alpha": 0.1} if "Leaky" in op else {}))


BODIES: tuple[Maker, ...] = (branch, loop, loop, scan, sequence, sequence, microsoft, microsoft)
