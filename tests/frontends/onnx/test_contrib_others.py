"""Other ops of com.microsoft through compiled kernels, against ONNX Runtime's or their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contrib_cases import Case, Input, Sizes, check, data, model_of, octets, real, whole
from onnx import TensorProto

from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)
f32 = np.float32


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(f32)


def split(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1]


def joined(x: np.ndarray) -> list[np.ndarray]:
    return [np.stack([x.real, x.imag], -1).astype(f32)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def near_identity(*shape: int | str) -> Input:
    def make(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        extents = [sizes[d] if isinstance(d, str) else d for d in shape]
        return rng.standard_normal(extents) + np.eye(int(extents[-1]))[::-1] * 4

    return data("float32", shape, make)


MATH = [
    Case("ComplexMul", [real("B", "S", 2), real("S", 2)], reference=lambda a, b: joined(split(a) * split(b))),
    Case("ComplexMulConj", [real("B", "S", 2), real("B", "S", 2)], reference=lambda a, b: joined(split(a) * split(b).conj())),
    Case("Rfft", [real("B", "S", 12)], {"signal_ndim": 1, "onesided": 1, "normalized": 0}, reference=lambda x, **_: joined(np.fft.rfft(x))),
    Case("Irfft", [real("B", 7, 2)], {"signal_ndim": 1}, reference=lambda x, **_: [np.fft.irfft(split(x)).astype(f32)]),
    Case("Inverse", [near_identity("B", 4, 4)], tolerance=2e-5), Case("Inverse", [near_identity(3, 3)], tolerance=2e-5), Case("Inverse", [near_identity("B", "S", 5, 5)], tolerance=2e-5),
    Case("IsAllFinite", [real("S", 3), np.array([1, np.inf], f32)], reference=lambda *x: [np.array(all(np.isfinite(a).all() for a in x))]),
    Case("IsAllFinite", [real("S", 3), np.array([1, np.inf], f32)], {"isnan_only": 1}, reference=lambda *x, **_: [np.array(True)]),
    Case("GatherND", [real("B", 5, 4), whole("int64", "S", 1, low=0, high=1)]), Case("GatherND", [real(6, 5), whole("int32", "S", 2, low=0, high=5)]),
    Case("Pad", [real("S", 5), np.array([1, 0, 0, 2]), np.array([0.5], f32)]), Case("Pad", [real("S", 5), np.array([0, 2, 0, 1])], {"mode": "reflect"}),
    Case("Range", [np.int64(2), np.int64(11), np.int64(3)]), Case("Range", [np.array([1], np.int32), np.array([5], np.int32)]), Case("Range", [f32(1), f32(3), f32(0.5)]),
    Case("Unique", [data("float32", ("T",), lambda r, s: r.integers(0, 4, s["T"]))], outputs=(0, 1, 2)),
    Case("UnfoldTensor", [real("B", "W", 3)], {"dim": 1, "size": 4, "step": 2}), Case("UnfoldTensor", [real("B", 9)], {"dim": -1, "size": 3}),
    Case("TorchEmbedding", [normal(9, 4), whole("int64", "B", "S", low=0, high=9)], reference=lambda w, i: [w[i]]),
    Case("RestorePadding", [real(4, 5), np.array([[0, 1, 4], [3, 2, 5]], np.int32)], reference=lambda x, o: [np.concatenate([x, np.zeros((2, 5), f32)])[np.argsort(o.reshape(-1))].reshape(2, 3, 5)]),
]  # fmt: skip


def boxes(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
    start = rng.uniform(-0.2, 0.5, (sizes["N"], 2))
    return np.concatenate([start, start + rng.uniform(0.1, 0.7, (sizes["N"], 2))], 1)


def crops(size: tuple[int, int], **attributes: Any) -> Case:
    return Case("CropAndResize", [real(2, 3, "H", "W"), data("float32", ("N", 4), boxes), whole("int32", "N", low=0, high=2), np.array(size, np.int32)], attributes)  # fmt: skip


def characters(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
    out = rng.integers(1, 9, (sizes["N"], 7))
    for i, n in enumerate(rng.integers(1, 8, sizes["N"])):
        out[i, n:] = 0
    return out


IMAGES = [
    crops((3, 4)), crops((1, 5), extrapolation_value=0.7), crops((4, 1), mode="nearest"), crops((3, 3), mode="nearest", extrapolation_value=-1.0),
    Case("ConvTransposeWithDynamicPads", [real("B", 2, "H", "W"), normal(2, 3, 3, 3), np.array([1, 0, 1, 1]), normal(3)], {"strides": [2, 1]}),
    Case("ConvTransposeWithDynamicPads", [real("B", 2, "H", "W"), normal(2, 3, 2, 3), np.array([0, 1, 0, 2])], {"kernel_shape": [2, 3], "dilations": [1, 2]}),
    Case("WordConvEmbedding", [data("int32", ("N", 7), characters), normal(6, 1, 3, 5), normal(6), normal(9, 5)], {"conv_window_size": 3, "embedding_size": 6, "char_embedding_size": 5}),
]  # fmt: skip


def rms(x: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon)


def swiglu(
    gate: np.ndarray,
    up: np.ndarray | None = None,
    *,
    limit: float = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
) -> list[np.ndarray]:
    if up is None:
        gate, up = np.split(gate, 2, -1)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return [(gate * sigmoid(activation_alpha * gate) * (up + activation_beta)).astype(f32)]


def buckets(
    table: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    *,
    max_distance: int,
    is_bidirectional: int = 0,
) -> list[np.ndarray]:
    count, heads = table.shape
    out = np.zeros((1, heads, queries.item(), keys.item()), f32)
    for q in range(queries.item()):
        for k in range(keys.item()):
            gap, own, base = k - q, count, 0
            if is_bidirectional:
                own //= 2
                base, gap = (own if gap > 0 else 0), abs(gap)
            else:
                gap = max(-gap, 0)
            exact = own // 2
            if gap >= exact:
                far = exact + int(
                    np.log(f32(gap / exact)) / np.log(f32(max_distance / exact)) * (own - exact)
                )
                gap = min(far, own - 1)
            out[0, :, q, k] = table.reshape(heads, count)[:, base + gap]
    return [out]


def gated(
    q: np.ndarray,
    qb: np.ndarray,
    rel: np.ndarray,
    w: np.ndarray,
    b: np.ndarray,
    eco: np.ndarray,
    *,
    num_heads: int,
) -> list[np.ndarray]:
    x = (q + qb).reshape(*q.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)
    u, r = np.split(sigmoid((x @ w + b).reshape(*x.shape[:3], 2, -1).sum(-1)), 2, -1)
    return [((u * (r * eco - 1) + 2) * rel).astype(f32)]


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def float8(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    sa: np.ndarray,
    sb: np.ndarray,
    *_: np.ndarray,
    **__: Any,
) -> list[np.ndarray]:
    out = a.astype(f32) @ b.astype(f32).T * sa * sb
    return [np.maximum(out + c, 0).astype(np.float16)]


F8 = ml_dtypes.float8_e4m3fn
GATES = [
    Case("BiasDropout", [real("B", "S", 4), normal(4), real("B", "S", 4)], reference=lambda x, b, r: [x + b + r]),
    Case("BitmaskDropout", [real("S", 4)], reference=lambda x: [x]),
    Case("FusedMatMulActivation", [real("B", "S", 6), normal(6, 5)], {"activation": "Relu", "alpha": 0.5}, reference=lambda a, b, **_: [np.maximum(a @ b * f32(0.5), 0)]),
    Case("FusedMatMulActivation", [real("S", 6), normal(5, 6)], {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1}, reference=lambda a, b, **_: [np.where(a @ b.T < 0, f32(0.2), f32(1)) * (a @ b.T)]),
    Case("GemmFastGelu", [real("S", 6), normal(6, 5), normal(5)], reference=lambda x, w, b: [tanh_gelu(x @ w + b).astype(f32)]),
    Case("GemmFloat8", [real("S", 16).array(RNG, {"S": 3}).astype(F8), normal(8, 16).astype(F8), normal(8), f32(0.5), f32(2.0)], {"transB": 1, "beta": 1.0, "activation": "RELU", "dtype": TensorProto.FLOAT16}, reference=float8, tolerance=1e-3),
    Case("ScaledSiLU", [real("S", 6)], {"alpha": 1.7}), Case("ScaledSiLU", [real("S", 6), f32(0.3)]),
    Case("SwiGLU", [real("S", 6), real("S", 6)], reference=swiglu), Case("SwiGLU", [real("B", "S", 6)], {"limit": 0.8, "activation_alpha": 1.7, "activation_beta": 1.0}, reference=swiglu),
    Case("GatedRMSNorm", [real("B", "S", 12), normal(4), real("B", "S", 12)], {"epsilon": 1e-5, "activation": "silu"}), Case("GatedRMSNorm", [real("S", 12), normal(12), real("S", 12)], {"epsilon": 1e-5, "activation": "sigmoid"}),
    Case("BranchwiseRMSNorm", [real("B", 3, 8), normal(3, 8)], {"epsilon": 1e-5}), Case("BranchwiseRMSNorm", [real("B", 24), normal(24)], {"epsilon": 1e-5, "num_branches": 3}), Case("BranchwiseRMSNorm", [real("B", 3, 8), normal(8)], {"epsilon": 1e-5}),
    Case("GatedAdd", [real("B", "S", 6), real("B", "S", 6), real("B", "S", 1)]),
    Case("RelativePositionBias", [normal(8, 3), np.array([11]), np.array([11])], {"max_distance": 6}, reference=buckets),
    Case("RelativePositionBias", [normal(8, 3), np.array([9]), np.array([9])], {"max_distance": 6, "is_bidirectional": 1}, reference=buckets),
    Case("GatedRelativePositionBias", [real("B", "S", 16), normal(16), real(1, 2, "S", "S"), normal(8, 6), normal(6), normal(1, 2, 1, 1)], {"num_heads": 2}, reference=gated),
    Case("GemmaRotaryEmbedding", [real("B", "S", 8), *[real("B", 2, "S", 8, dtype="float16")] * 4], outputs=(0, 1), tolerance=2e-3,
         reference=lambda e, q, qr, k, kr: [(a * np.cos(e)[:, None] + b * np.sin(e)[:, None]).astype(np.float16) for a, b in ((q, qr), (k, kr))]),
]  # fmt: skip


def experts(
    *more: np.ndarray | None,
    k: int = 1,
    hidden: int = 6,
    inner: int = 10,
    factor: int = 1,
    **attributes: Any,
) -> Case:
    given = [
        real("B", "S", hidden),
        real("BS", 4),
        normal(4, factor * inner, hidden),
        *(more or (None,)),
    ]
    given[4:4] = [normal(4, hidden, inner), normal(4, hidden)]
    sizes = ({"B": 2, "S": 3, "BS": 6}, {"B": 1, "S": 1, "BS": 1})
    return Case("MoE", given, {"k": k, **attributes}, sizes=sizes)


def mixture(
    x: np.ndarray,
    logits: np.ndarray,
    w1: np.ndarray,
    s1: np.ndarray,
    b1: np.ndarray,
    w2: np.ndarray,
    s2: np.ndarray,
    b2: np.ndarray,
    *,
    k: int,
    **_: Any,
) -> list[np.ndarray]:
    """The text of QMoE for 8 bits in blocks, where ONNX Runtime's kernel rounds activations to 8 bits."""
    first, second = (
        ((w.astype(np.float64) - 128).reshape(*s.shape, -1) * s[..., None]).reshape(w.shape)
        for w, s in ((w1, s1), (w2, s2))
    )
    out = np.zeros(x.shape)
    for n, row in enumerate(logits):
        best = np.argsort(-row)[:k]
        shares = np.exp(row[best]) / np.exp(row[best]).sum()
        for e, share in zip(best, shares, strict=True):
            inner = first[e] @ x[n] + b1[e]
            out[n] += share * (second[e] @ (inner[::2] * sigmoid(inner[::2]) * inner[1::2]) + b2[e])
    return [out.astype(f32)]


def quantized_experts(
    bits: int, block: int, *, zeros: bool = False, k: int = 2, **attributes: Any
) -> Case:
    """hidden 32, inner 64, 4 experts, swiglu of interleaved halves."""

    def weights(rows: int, depth: int) -> list[np.ndarray]:
        shape = (4, rows, depth // block) if block else (4, rows)
        return [
            RNG.integers(0, 256, (4, rows, depth * bits // 8)).astype(np.uint8),
            (0.01 + 0.02 * RNG.random(shape)).astype(f32),
        ]

    first, second = weights(128, 32), weights(32, 64)
    points: list[np.ndarray | None] = []
    if zeros:
        points = [
            None,
            None,
            None,
            *(
                RNG.integers(0, 256, (4, rows, -(-depth // block * bits // 8))).astype(np.uint8)
                for rows, depth in ((128, 32), (32, 64))
            ),
        ]
    given = [real("N", 32), real("N", 4), *first, normal(4, 128), *second, normal(4, 32), *points]
    more = {"block_size": block} if block else {}
    return Case("QMoE", given, {"k": k, "expert_weight_bits": bits, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, **more, **attributes}, reference=mixture if (bits, block) == (8, 32) else None)  # fmt: skip


EXPERTS = [
    experts(), experts(k=2, normalize_routing_weights=1, activation_type="gelu"), experts(normal(4, 10), k=3, activation_type="silu"),
    experts(normal(4, 20), k=2, factor=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=2.0), experts(k=2, activation_type="identity"),
    quantized_experts(4, 0), quantized_experts(8, 32), quantized_experts(4, 16, zeros=True),
]  # fmt: skip


@pytest.mark.parametrize("name", ["MATH", "IMAGES", "GATES", "EXPERTS"])
def test_agrees(name: str, ort_run: Callable[..., list[np.ndarray]]) -> None:
    check(globals()[name], ort_run)


BAD = [
    (Case("ComplexMul", [real("S", 3), real("S", 2)]), "parts"), (Case("Rfft", [real("S", 8)], {"signal_ndim": 2}), "signal_ndim"), (Case("Irfft", [real("S", 5, 2)], {"signal_ndim": 1, "onesided": 0}), "two-sided"),
    (Case("Inverse", [real("S", "S")]), "known size"), (crops((0, 3)), "crop_size"), (Case("UnfoldTensor", [real("S", 3)], {"size": 0}), "positive"),
    (Case("BiasDropout", [real("S", 4), normal(4), None, None, np.bool_(True)]), "training mode"), (Case("BitmaskDropout", [real("S", 4)], outputs=(0, 1)), "for training"),
    (Case("GatedAdd", [real("S", 4), real("S", 4), real("S", 5), normal(5, 1)]), "projected gate"), (Case("GatedRMSNorm", [real("S", 4), normal(4), real("S", 4)], {"activation": "relu"}), "silu, swish"),
    (experts(use_sparse_mixer=1), "use_sparse_mixer"), (experts(activation_type="geglu"), "geglu"), (quantized_experts(8, 0, quant_type="fp8"), "quant_type"), (quantized_experts(8, 0, weights_prepacked=1), "execution provider"),
    (Case("SparseAttention", [real("S", 4)]), "blocks of keys"), (Case("PagedAttention", [real("S", 4)]), "pages"), (Case("BeamSearch", [octets("u8", "S")], {"eos_token_id": 1}), "search over sequences"),
    (Case("QOrderedMatMul", [octets("i8", "S", 4)]), "GPU library"), (Case("Tokenizer", [octets("i8", "S", 4)]), "strings"), (Case("SoftmaxCrossEntropy", [real("S", 4)]), "training"), (Case("LinearAttention", [real("S", 4)]), "no op LinearAttention"),
    (Case("RemovePadding", [real("B", "S", 4)]), "how many tokens"), (Case("EPContext", [real("S", 4)]), "other hardware"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "reason"), BAD, ids=[f"{c.op}-{i}" for i, (c, _) in enumerate(BAD)]
)
def test_refused(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model_of([case]))
