"""Ops of com.microsoft that ONNX Runtime's optimizer fuses, through compiled kernels, against its own
(or, where it has none on a CPU, their text)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contrib_cases import Case, check, model_of, real, whole

from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)
f32 = np.float32
erf = np.vectorize(math.erf)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(f32)


X, B8 = real("B", "S", 8), normal(8)
GELUS = [
    Case("Gelu", [X]), Case("BiasGelu", [X, B8]), Case("FastGelu", [X]), Case("FastGelu", [X, B8]), Case("QuickGelu", [X]), Case("QuickGelu", [X], {"alpha": 0.9}),
    Case("BiasSplitGelu", [X, B8], reference=lambda x, b: [((x + b)[..., :4] * 0.5 * (x + b)[..., 4:] * (1 + erf((x + b)[..., 4:] / np.sqrt(2)))).astype(f32)]),
    Case("BiasAdd", [X, B8, X], reference=lambda x, b, s: [x + b + s]),
    Case("CDist", [real("S", 6), real("T", 6)], {"metric": "sqeuclidean"}), Case("CDist", [real("S", 6), real("T", 6)], {"metric": "euclidean"}),
    Case("ExpandDims", [X, np.int32(1)]), Case("ExpandDims", [X, np.int32(-1)]), Case("Trilu", [real("B", "S", "T"), np.int64(1)]), Case("Trilu", [real("S", "T")], {"upper": 0}),
    Case("GridSample", [real("B", 2, "H", "W"), real("B", 4, 3, 2, scale=0.6)], {"mode": "bilinear", "padding_mode": "border", "align_corners": 1}),
    Case("CausalConvWithState", [real("B", 6, "S"), normal(6, 1, 4), normal(6), real("B", 6, 3)], {"activation": "silu"}, outputs=(0, 1)),
    Case("CausalConvWithState", [real("B", 6, "S"), normal(6, 1, 3)], {"activation": "none"}, outputs=(0, 1)),
]  # fmt: skip

IMAGE = real("B", 3, "H", "W")


def last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


def nhwc(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, z: np.ndarray | None = None, **_: Any
) -> list[np.ndarray]:
    """A 3x3 convolution with pads of 1 and, with z, a Relu."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    out = np.einsum("bhwcij,ocij->bhwo", windows, w) + b
    return [(out if z is None else np.maximum(out + z, 0)).astype(f32)]


PRODUCTS = [
    Case("FusedMatMul", [real("B", "S", 6), real("B", 6, "T")], {"alpha": 0.5}), Case("FusedMatMul", [real("B", 6, "S"), normal(5, 6)], {"transA": 1, "transB": 1}),
    Case("FusedMatMul", [real("S", "B", 6), real("B", 6, 5)], {"transBatchA": 1}), Case("FusedMatMul", [real("S", "B", 6), real("T", "B", 6)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    Case("TransposeMatMul", [real(6, "S"), normal(6, 5)], {"transA": 1, "alpha": 2.0}),
    Case("FusedGemm", [real("S", 6), normal(6, 5), normal(5)], {"activation": "Relu"}), Case("FusedGemm", [real(6, "S"), normal(5, 6), real("S", 5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0, "activation": "LeakyRelu", "activation_alpha": 0.2}),
    Case("FusedConv", [IMAGE, normal(4, 3, 3, 3), normal(4)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": "Relu"}),
    Case("FusedConv", [IMAGE, normal(4, 3, 3, 3), normal(4), real("B", 4, "H", "W")], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": "Relu"}),
    Case("FusedConv", [IMAGE, normal(4, 3, 2, 2)], {"kernel_shape": [2, 2], "strides": [2, 1], "activation": "Clip", "activation_params": [-0.5, 0.7]}),
    Case("NhwcConv", [real("B", "H", "W", 3), normal(4, 3, 3, 3), normal(4)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, reference=nhwc),
    Case("NhwcFusedConv", [real("B", "H", "W", 3), normal(4, 3, 3, 3), normal(4), real("B", "H", "W", 4)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": "Relu"}, reference=nhwc),
]  # fmt: skip


def bias_softmax(
    x: np.ndarray, b: np.ndarray, *, axis: int, is_inner_broadcast: int
) -> list[np.ndarray]:
    if is_inner_broadcast:
        first = axis - (x.ndim - b.ndim)
        b = b.reshape(*b.shape[:first], *[1] * (x.ndim - b.ndim), *b.shape[first:])
    rows = (x + b).reshape(*x.shape[:axis], -1)
    e = np.exp(rows - rows.max(-1, keepdims=True))
    return [(e / e.sum(-1, keepdims=True)).reshape(x.shape).astype(f32)]


def group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    skip: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    groups: int,
    activation: int,
    epsilon: float,
    channels_last: int = 1,
) -> list[np.ndarray]:
    total = x if skip is None else x + skip + (0 if bias is None else bias)
    moved = np.moveaxis(total, -1, 1) if channels_last else total
    flat = moved.reshape(len(x), groups, -1).astype(np.float64)
    out = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + epsilon)
    out = out.reshape(moved.shape) * gamma[:, None, None] + beta[:, None, None]
    out = out / (1 + np.exp(-out)) if activation else out
    out = (np.moveaxis(out, 1, -1) if channels_last else out).astype(f32)
    return [out] if skip is None else [out, total]


TABLES = [np.cos(normal(16, 4)), np.sin(normal(16, 4))]
WIDE = real("B", "H", "W", 8)
NORMS = [
    Case("BiasSoftmax", [real("B", "S", "T"), real("T")], {"axis": 2, "is_inner_broadcast": 0}, reference=bias_softmax), Case("BiasSoftmax", [real("B", 2, "S", "T"), real("B", 2, "T")], {"axis": 3, "is_inner_broadcast": 1}, reference=bias_softmax),
    Case("BiasSoftmax", [real("B", "S", 4), real("S", 4)], {"axis": 1, "is_inner_broadcast": 0}, reference=bias_softmax),
    Case("SkipLayerNormalization", [X, X, B8, B8], {"epsilon": 0.01}), Case("SkipLayerNormalization", [X, X, B8, None, B8], outputs=(0, 3)), Case("SkipLayerNormalization", [X, real("S", 8), B8, B8, B8], outputs=(0, 3)),
    Case("SkipSimplifiedLayerNormalization", [X, X, B8], {"epsilon": 0.001}, outputs=(0, 3)), Case("SkipSimplifiedLayerNormalization", [X, X, B8, B8]),
    Case("EmbedLayerNormalization", [whole("int32", "B", "S", low=0, high=5), whole("int32", "B", "S", low=0, high=2), normal(5, 8), normal(12, 8), normal(2, 8), B8, B8], outputs=(0, 1)),
    Case("EmbedLayerNormalization", [whole("int32", "B", "S", low=0, high=5), None, normal(5, 8), normal(12, 8), None, B8, B8, whole("int32", "B", "S", low=0, high=2)], {"epsilon": 0.001}, outputs=(0, 1, 2)),
    Case("GroupNorm", [WIDE, B8, B8], {"groups": 2, "activation": 1, "epsilon": 1e-5}, reference=group_norm), Case("GroupNorm", [real("B", 8, "H", "W"), B8, B8], {"groups": 4, "activation": 0, "epsilon": 1e-5, "channels_last": 0}, reference=group_norm),
    Case("SkipGroupNorm", [WIDE, B8, B8, WIDE, B8], {"groups": 2, "activation": 1, "epsilon": 1e-5}, (0, 1), reference=group_norm),
    Case("RotaryEmbedding", [real("B", "S", 16), whole("int64", "B", "S", low=0, high=16), *TABLES]), Case("RotaryEmbedding", [real("B", "S", 16), whole("int64", 1, low=2, high=3), *TABLES], {"interleaved": 1}),
    Case("RotaryEmbedding", [real("B", 2, "S", 8), whole("int64", "B", "S", low=0, high=16), *TABLES]), Case("RotaryEmbedding", [real("B", "S", 32), whole("int64", "B", "S", low=0, high=16), *TABLES], {"num_heads": 2, "rotary_embedding_dim": 8}),
]  # fmt: skip


@pytest.mark.parametrize("name", ["GELUS", "PRODUCTS", "NORMS"])
def test_agrees(name: str, ort_run: Callable[..., list[np.ndarray]]) -> None:
    check(globals()[name], ort_run)


BAD = [
    (Case("FusedConv", [IMAGE, normal(4, 3, 3, 3)], {"activation": "Abs"}), "activation 'Abs'"), (Case("CDist", [real("S", 6), real("T", 6)], {"metric": "cosine"}), "metric"),
    (Case("GroupNorm", [WIDE, B8, B8], {"groups": 2, "activation": 2}), "activation is 2"), (Case("SkipLayerNormalization", [X, X, B8, B8], outputs=(0, 1)), "for training"),
    (Case("RotaryEmbedding", [real("B", "S", 16), whole("int64", "B", "S"), *TABLES], {"scale": 2.0}), "scale"), (Case("CausalConvWithState", [real("B", 6, "S"), normal(6, 1, 4)], {"activation": "relu"}), "activation"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "reason"), BAD, ids=[f"{c.op}-{i}" for i, (c, _) in enumerate(BAD)]
)
def test_refused(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model_of([case]))
