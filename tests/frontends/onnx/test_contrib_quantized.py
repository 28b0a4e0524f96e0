"""Quantized ops of com.microsoft through compiled kernels, against ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from contrib_cases import SIZES, Case, Input, check, model_of, octets, real, whole

from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)
u8, i8, f32 = np.uint8, np.int8, np.float32


def constant(kind: type, *shape: int) -> np.ndarray:
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def scales(*shape: int) -> np.ndarray:
    return (0.01 + 0.02 * RNG.random(shape)).astype(f32)


def lstm(
    directions: int,
    kind: type,
    *,
    each: bool,
    inputs: dict[int, Input | np.ndarray],
    **attributes: object,
) -> Case:
    """8 numbers in, 6 hidden units."""
    shape = (directions, 24) if each else (directions,)
    base: list[Input | np.ndarray | None] = [
        real("S", "B", 8), constant(kind, directions, 8, 24), constant(kind, directions, 6, 24),
        RNG.standard_normal((directions, 48)).astype(f32), None, None, None, None,
    ]  # fmt: skip
    for _ in range(2):
        base += [scales(*shape) * f32(0.3), np.full(shape, 0 if kind is i8 else 128, kind)]
    for i, given in inputs.items():
        base[i] = given
    return Case(
        "DynamicQuantizeLSTM", base, {"hidden_size": 6, **attributes}, (0, 1, 2), tolerance=2e-5,
        # One sequence: ONNX Runtime quantizes several together.
        sizes=[{**s, "B": 1} for s in SIZES],
    )  # fmt: skip


PEEPHOLES = RNG.standard_normal((1, 18)).astype(f32)
LSTM = [
    lstm(1, i8, each=False, inputs={}),
    lstm(2, i8, each=True, inputs={5: real(2, "B", 6), 6: real(2, "B", 6)}, direction="bidirectional"),
    lstm(1, u8, each=False, inputs={4: whole("int32", "B", low=1, high=2)}, direction="reverse"),
    lstm(1, i8, each=False, inputs={7: PEEPHOLES}, input_forget=1, clip=0.7),
    lstm(1, i8, each=True, inputs={}, activations=["HardSigmoid", "Relu", "Tanh"], activation_alpha=[0.3], activation_beta=[0.4]),
]  # fmt: skip

S = f32(0.02)


def product(op: str, a: Input, b: np.ndarray, *more: np.ndarray | None) -> Case:
    return Case(op, [a, b, *more])


PRODUCTS = [
    product("MatMulIntegerToFloat", octets("u8", "B", "S", 20), constant(i8, 20, 12), S, scales(12)),
    product("MatMulIntegerToFloat", octets("u8", "S", 20), constant(u8, 20, 12), S, scales(1), u8(7), u8(120)),
    product("MatMulIntegerToFloat", octets("i8", "S", 20), constant(i8, 20, 12), S, scales(12), i8(-7), constant(i8, 12), scales(12)),
    product("DynamicQuantizeMatMul", real("B", "S", 20), constant(i8, 20, 12), scales(12)),
    product("DynamicQuantizeMatMul", real("S", 20), constant(u8, 20, 12), S, u8(130), scales(12)),
    product("DynamicQuantizeMatMul", real("B", "S", 20), constant(i8, 20, 12), scales(12), constant(i8, 12), scales(12)),
    Case("MatMulInteger16", [whole("int16", "S", 9), whole("int16", 9, "T")]),
    Case("QGemm", [octets("u8", "S", 20), S, u8(3), constant(i8, 20, 12), scales(12), constant(i8, 12) * i8(0), constant(u8, 12).astype(np.int32)]),
    Case("QGemm", [octets("u8", 20, "S"), S, u8(3), constant(u8, 12, 20), S, u8(100), None, f32(0.9), u8(127)], {"transA": 1, "transB": 1, "alpha": 0.5}, steps=1),
    Case("QGemm", [octets("i8", "S", 20), S, i8(3), constant(i8, 20, 12), scales(12), i8(0) * constant(i8, 12), constant(i8, 12).astype(np.int32), f32(0.9), i8(5)], steps=1),
    Case("MulInteger", [octets("u8", "S", 4), u8(9), octets("u8", 4), u8(200)], reference=lambda a, za, b, zb: [(a.astype(np.int32) - za) * (b.astype(np.int32) - zb)]),
    Case("MulInteger", [octets("i8", "S", 4), None, octets("i8", 1)], reference=lambda a, za, b: [a.astype(np.int32) * b]),
    Case("ReduceSumInteger", [octets("i8", "S", 4, "T")], {"axes": [0, 2], "keepdims": 1}, reference=lambda a, **_: [a.sum((0, 2), dtype=np.int32, keepdims=True)]),
    Case("ReduceSumInteger", [octets("u8", "S", 4)], {"axes": [-1], "keepdims": 0}, reference=lambda a, **_: [a.sum(1, dtype=np.int32)]),
]  # fmt: skip


def pair(op: str, kind: str, a: tuple[int | str, ...], b: tuple[int | str, ...]) -> Case:
    zero = u8(120) if kind == "u8" else i8(-3)
    wide = f32(0.02) if op == "QLinearAdd" else f32(0.01)
    inputs = [octets(kind, *a), f32(0.015), zero, octets(kind, *b), f32(0.007), zero, wide, zero]
    return Case(op, inputs, steps=1)


def single(op: str, kind: str, scale: float, zero: int, **attributes: object) -> Case:
    of = u8 if kind == "u8" else i8
    given = [octets(kind, "B", "S", 4), f32(0.03), of(7), f32(scale), of(zero)]
    return Case(op, given, attributes, steps=1)


def pool(op: str, *shape: int | str, **attributes: object) -> Case:
    given = [octets("u8", *shape), f32(0.02), u8(100), f32(0.015), u8(90)]
    return Case(op, given, attributes, steps=1)


POINTWISE = [
    pair("QLinearAdd", "u8", ("B", "S", 4), (4,)), pair("QLinearAdd", "i8", ("S", 1), (1, "T")),
    pair("QLinearMul", "u8", ("B", "S", 4), ("B", "S", 4)), pair("QLinearMul", "i8", ("S", "T"), ()),
    single("QLinearSigmoid", "u8", 1 / 256, 0), single("QLinearSigmoid", "i8", 1 / 256, -128),
    single("QLinearLeakyRelu", "u8", 0.025, 30), single("QLinearLeakyRelu", "i8", 0.025, -8, alpha=0.2),
    single("QLinearSoftmax", "u8", 1 / 256, 0, opset=13, axis=-1), single("QLinearSoftmax", "i8", 1 / 256, -128, opset=13, axis=1),
    single("QLinearSoftmax", "u8", 1 / 256, 0, opset=12, axis=1),
    Case("QLinearWhere", [np.array([[True], [False], [True]]), octets("u8", 3, "T"), S, u8(3), octets("u8", "T"), f32(0.03), u8(9), f32(0.025), u8(5)], steps=1),
    Case("QLinearConcat", [f32(0.03), u8(8), octets("u8", "B", "S"), S, u8(3), octets("u8", "B", 4), f32(0.03), u8(8)], {"axis": 1}, steps=1),
    Case("QLinearConcat", [f32(0.03), i8(8), octets("i8", "B", "S"), S, i8(3), octets("i8", "T", "S"), f32(0.01), i8(-8)], {"axis": 0}, steps=1),
    Case("QuantizeLinear", [real("S", 5), f32(0.03), u8(100)]), Case("QuantizeLinear", [real("S", 5), scales(5), constant(i8, 5)], {"axis": 1}),
    Case("QuantizeLinear", [real("S", 5), f32(0.0003), np.uint16(30000)]),
    Case("DequantizeLinear", [octets("u8", "S", 5), f32(0.03), u8(100)]), Case("DequantizeLinear", [octets("i8", "S", 5), scales(5), constant(i8, 5)], {"axis": 1}),
    Case("DequantizeLinear", [whole("int16", "S", 5), f32(0.03), np.int16(-900)]),
]  # fmt: skip
POOLS = [
    pool("QLinearAveragePool", "B", 3, "H", "W", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    pool("QLinearAveragePool", "B", 3, "H", "W", kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1),
    pool("QLinearAveragePool", "B", "H", "W", 3, kernel_shape=[2, 3], channels_last=1),
    pool("QLinearGlobalAveragePool", "B", 3, "H", "W"), pool("QLinearGlobalAveragePool", "B", "H", "W", 3, channels_last=1),
    Case("QLinearReduceMean", [octets("u8", "B", "S", 4), S, u8(3), f32(0.01), u8(9)], {"axes": [1, 2], "keepdims": 0}, steps=1,
         reference=lambda x, s, z, t, o, **_: [np.clip(np.rint((x.astype(f32) - z).mean((1, 2)) * s / t) + o, 0, 255).astype(u8)]),
    Case("NhwcMaxPool", [octets("u8", "B", "H", "W", 3)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    Case("NhwcMaxPool", [octets("i8", "B", "H", "W", 3)], {"kernel_shape": [2, 2], "dilations": [2, 1]}),
    Case("QLinearConv", [octets("u8", "B", "H", "W", 3), S, u8(110), constant(i8, 5, 3, 3, 2), scales(5) * f32(0.1), constant(i8, 5) * i8(0), f32(0.05), u8(120), constant(i8, 5).astype(np.int32)],
         {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "channels_last": 1}, steps=1),
    Case("QLinearConv", [octets("i8", "B", 4, "H", "W"), S, i8(11), constant(i8, 6, 2, 3, 3), f32(0.002), i8(0), f32(0.05), i8(12)], {"group": 2, "strides": [2, 2]}, steps=1),
    Case("QEmbedLayerNormalization", [whole("int32", "B", "S", low=0, high=9), whole("int32", "B", "S", low=0, high=2), constant(u8, 9, 16), constant(u8, 12, 16), constant(u8, 2, 16),
         constant(u8, 16), constant(u8, 16), None, S, S, S, S, S, *[u8(120)] * 5], outputs=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["LSTM", "PRODUCTS", "POINTWISE", "POOLS"])
def test_agrees(name: str, ort_run: Callable[..., list[np.ndarray]]) -> None:
    check(globals()[name], ort_run)


BAD = [
    (Case("QLinearAdd", [octets("u8", "S", 4), scales(4), u8(1), octets("u8", 4), S, u8(1), S, u8(1)]), "want one element"),
    (Case("QLinearAdd", [real("S", 4), S, None, octets("u8", 4), S, u8(1), S, u8(1)]), "want 8-bit integers"),
    (Case("QLinearConcat", [S, u8(1), octets("u8", "S"), S], {"axis": 0}), "three for each part"),
    (Case("MatMulIntegerToFloat", [octets("u8", "S", 20), constant(i8, 20, 12), scales(20), S]), "the scale of A"),
    (Case("QGemm", [octets("u8", "S", 20), S, u8(3), constant(i8, 20, 12), S, i8(0), None, S]), "no y_zero_point"),
    (Case("DynamicQuantizeLSTM", [real("S", "B", 8), constant(i8, 1, 8, 24), constant(i8, 1, 6, 24), None, None, None, None, None, scales(1), constant(i8, 1), scales(1), constant(i8, 1)], {"hidden_size": 7}), "hidden_size"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), BAD, ids=[c.op for c, _ in BAD])
def test_refused(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model_of([case]))
