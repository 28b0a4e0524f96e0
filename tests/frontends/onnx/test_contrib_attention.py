"""Attention ops of com.microsoft through compiled kernels, against ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx.parser
import pytest
from contrib_cases import Case, Input, Sizes, check, data, model_of, octets, real, whole
from onnx_models import relative_rms

import graphwright as gw
from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)
f32 = np.float32
N, D = 2, 8  # heads and their size
HID = N * D


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(f32)


W, WB = normal(6, 3 * HID), normal(3 * HID)
HEADS = {"num_heads": N}


def lengths(kind: str, high: str, *, least: int = 1) -> Input:
    """[B] lengths, at most the size `high`; or of left-padded sequences [2 B], ends and starts."""

    def make(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        ends = rng.integers(least, sizes[high] + 1, sizes["B"])
        return ends if kind == "ends" else np.concatenate([ends, rng.integers(0, ends)])

    return data("int32", ("B",) if kind == "ends" else ("BB",), make)


def mask(*shape: int | str) -> Input:
    """0 and 1; every query sees the first key: where none counts, scores of -10000 lose digits."""

    def make(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        out = rng.integers(0, 2, [sizes[d] if isinstance(d, str) else d for d in shape])
        out[..., 0] = 1
        return out

    return data("int32", shape, make)


def attention(
    *more: Input | np.ndarray | None,
    outputs: tuple[int, ...] = (0,),
    sizes: Any = None,
    **attributes: Any,
) -> Case:
    case = Case(
        "Attention", [real("B", "S", 6), W, *(more or (WB,))], {**HEADS, **attributes}, outputs
    )
    if sizes:
        case.sizes = sizes
    return case


PAST = real(2, "B", N, "P", D)
BOTH = ({"B": 2, "S": 3, "P": 4, "BB": 4, "SP": 7}, {"B": 1, "S": 1, "P": 6, "BB": 2, "SP": 7})
ATTENTION = [
    attention(WB, mask("B", "S")), attention(WB, mask("B", "S", "S"), unidirectional=1), attention(WB, lengths("ends", "S")),
    attention(None), attention(WB, None, None, real("B", N, "S", "S")), attention(WB, None, None, real(1, 1, "S", "S"), scale=0.4),
    Case("Attention", [real(2, "S", 6), W, WB, np.array([3, 2, 1, 0], np.int32)], HEADS, sizes=({"S": 3},)),
    attention(WB, None, PAST, outputs=(0, 1), unidirectional=1), attention(WB, mask("B", "SP"), PAST, outputs=(0, 1), unidirectional=1, sizes=BOTH),
    attention(WB, mask("B", "S", "SP"), PAST, outputs=(0, 1), sizes=BOTH), attention(WB, lengths("ends", "SP"), PAST, outputs=(0, 1), sizes=BOTH),
    attention(WB, None, outputs=(0, 1)),
    Case("Attention", [real("B", "S", 6), normal(6, 2 * HID + N * 4), normal(2 * HID + N * 4)], {**HEADS, "qkv_hidden_sizes": [HID, HID, N * 4]}),
]  # fmt: skip

octs = RNG.integers(-128, 128, (6, 3 * HID)).astype(np.int8)
S, QS = f32(0.02), (0.01 + 0.02 * RNG.random(3 * HID)).astype(f32)
QATTENTION = [
    Case("QAttention", [octets("u8", "B", "S", 6), octs, WB, S, S, None, np.uint8(120), np.int8(3)], {**HEADS, "unidirectional": 1}),
    Case("QAttention", [octets("u8", "B", "S", 6), octs, WB, S, QS, mask("B", "S"), np.uint8(120), np.zeros(3 * HID, np.int8)], HEADS),
    Case("QAttention", [octets("u8", "B", "S", 6), octs, WB, S, S, None, np.uint8(120), np.int8(0), PAST], {**HEADS, "unidirectional": 1}, (0, 1)),
]  # fmt: skip


def multi(
    *given: Input | np.ndarray | None,
    outputs: tuple[int, ...] = (0,),
    sizes: Any = None,
    **attributes: Any,
) -> Case:
    case = Case("MultiHeadAttention", given, {**HEADS, **attributes}, outputs)
    if sizes:
        case.sizes = sizes
    return case


Q, K = real("B", "S", HID), real("B", "T", HID)
CACHE = real("B", N, "P", D)
MULTI = [
    multi(Q, K, K, WB), multi(Q, K, K, None, lengths("ends", "T")), multi(Q, K, K, WB, mask("B", "T")), multi(Q, K, K, None, mask("B", "S", "T")),
    multi(Q, K, K, None, None, real(1, N, "S", "T"), scale=0.7), multi(Q, K, K, outputs=(0, 1, 2)),
    multi(Q, real("B", N, "T", D), real("B", N, "T", D)), multi(Q, real("B", N, "T", D), real("B", N, "T", D), WB),
    multi(Q, Q, Q, None, None, None, CACHE, CACHE, outputs=(0, 1, 2), unidirectional=1),
    multi(Q, Q, Q, WB, mask("B", "SP"), real("B", 1, "S", "SP"), CACHE, CACHE, outputs=(0, 1, 2), sizes=BOTH),
    multi(Q, K, real("B", "T", N * 4), normal(2 * HID + N * 4)),
]  # fmt: skip


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def packed_multi(qkv: np.ndarray, *_: Any, **__: Any) -> list[np.ndarray]:
    q, k, v = (qkv[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    out = softmax(q @ k.swapaxes(2, 3) / np.sqrt(D)) @ v
    return [out.transpose(0, 2, 1, 3).reshape(*qkv.shape[:2], HID).astype(f32)]


def packed(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, _: np.ndarray, ends: np.ndarray, **__: Any
) -> list[np.ndarray]:
    out = []
    for start, end in pairwise(ends):
        q, k, v = np.split(
            (x[start:end] @ w + b).reshape(end - start, 3, N, D).transpose(1, 2, 0, 3), 3
        )
        own = softmax(q[0] @ k[0].swapaxes(1, 2) / np.sqrt(D)) @ v[0]
        out.append(own.transpose(1, 0, 2).reshape(-1, HID))
    return [np.concatenate(out).astype(f32)]


ENDS = np.array([0, 2, 3, 7], np.int32)
PACKED = [
    Case("MultiHeadAttention", [real("B", "S", N, 3, D)], HEADS, reference=packed_multi),
    Case("PackedAttention", [real(7, 6), W, WB, np.zeros((3, 4), np.int32), ENDS], HEADS, reference=packed),
    Case("PackedMultiHeadAttention", [real(7, HID), real(7, HID), real(7, HID), None, np.zeros((3, 4), np.int32), ENDS], HEADS,
         reference=lambda q, k, v, _n, _o, ends, **_: packed(np.concatenate([q, k, v], 1), np.eye(3 * HID, dtype=f32), f32(0), q, ends)),
]  # fmt: skip

ONE, BUFFER = real("B", 1, HID), real("B", N, 9, D)
PLACE = whole("int32", 1, low=4, high=5)
SHARED = {**HEADS, "past_present_share_buffer": 1}


def scores(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    _m: None,
    _b: None,
    pk: np.ndarray,
    pv: np.ndarray,
    **_: Any,
) -> list[np.ndarray]:
    q, k, v = (x.reshape(len(x), -1, N, D).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)
    out = softmax(q @ k.swapaxes(2, 3) / np.sqrt(D)) @ v
    return [out.transpose(0, 2, 1, 3).reshape(len(q), -1, HID).astype(f32), k, v]


DECODER = [
    Case("DecoderMaskedMultiHeadAttention", [ONE, ONE, ONE, None, None, CACHE, CACHE], HEADS, (0, 1, 2), reference=scores),
    Case("DecoderMaskedMultiHeadAttention", [ONE, ONE, ONE, None, None, BUFFER, BUFFER, PLACE], SHARED, (0, 1, 2)),
    Case("DecoderMaskedMultiHeadAttention", [ONE, ONE, ONE, mask("B", "P1"), real("B", N, 1, "P1"), BUFFER, BUFFER, PLACE, None, None, WB], SHARED, (0, 1, 2),
         sizes=({"B": 2, "P1": 5}, {"B": 1, "P1": 5})),
    Case("DecoderMaskedMultiHeadAttention", [ONE, real("B", N, "T", D), real("B", N, "T", D)], HEADS,
         reference=lambda q, k, v, **_: scores(q, *(x[:, :, :0].reshape(len(q), -1, HID) for x in (k, v)), None, None, k, v)[:1]),
    multi(Q, Q, Q, None, None, None, BUFFER, BUFFER, PLACE, outputs=(0, 1, 2), unidirectional=1),
]  # fmt: skip

G, GD = 2, 32  # heads of keys and values of a group query, and their size; 4 of queries
GROUPS = {"num_heads": 4, "kv_num_heads": G}
TABLES = [np.cos(normal(16, GD // 2)), np.sin(normal(16, GD // 2))]
GQ, GK = real("B", "S", 4 * GD), real("B", "S", G * GD)
GCACHE = real("B", G, "P", GD)


def ends_of(length: Callable[[Sizes], int], *, ragged: bool = False) -> tuple[Input, Input]:
    """seqlens_k and total_sequence_length; `ragged`: sequences from the second on are shorter."""

    def seqlens(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        total = length(sizes)
        return np.array([total - 1 - (i if ragged else 0) for i in range(sizes["B"])])

    return data("int32", ("B",), seqlens), data(
        "int32", (), lambda _, sizes: np.asarray(length(sizes))
    )


def group(
    *more: Input | np.ndarray | None,
    prompt: bool,
    ragged: bool = False,
    cache: bool = True,
    queries: Any = (GQ, GK, GK),
    **attributes: Any,
) -> Case:
    ends = ends_of((lambda s: s["S"]) if prompt else (lambda s: s["S"] + s["P"]), ragged=ragged)
    pasts = [GCACHE, GCACHE] if cache else [None, None]
    # ONNX Runtime takes several new tokens behind a past of one sequence alone.
    first = {"B": 2, "S": 3, "P": 0, "T": 3} if prompt else {"B": 1, "S": 3, "P": 5, "T": 8}
    sizes = (first, {"B": 2, "S": 1, "P": 0 if prompt else 6, "T": 1 if prompt else 7})
    return Case("GroupQueryAttention", [*queries, *pasts, *ends, *more], {**GROUPS, **attributes}, (0, 1, 2), sizes=sizes)  # fmt: skip


PACKED_QUERY = (real("B", "S", (4 + 2 * G) * GD), None, None)
BIAS = real("B", 1, "S", "T")
GROUP = [
    group(prompt=True), group(prompt=True, cache=False), group(prompt=False), group(*TABLES, prompt=True, do_rotary=1), group(*TABLES, prompt=False, do_rotary=1),
    group(*TABLES, prompt=False, do_rotary=1, rotary_interleaved=1, scale=0.5), group(prompt=False, queries=PACKED_QUERY),
    group(*TABLES, prompt=False, queries=PACKED_QUERY, do_rotary=1, local_window_size=3), group(prompt=True, local_window_size=1), group(prompt=False, softcap=2.5),
    group(prompt=False, smooth_softmax=1), group(prompt=True, smooth_softmax=1, local_window_size=2),
    group(None, None, None, None, normal(4), prompt=False), group(None, None, None, BIAS, prompt=False), group(None, None, None, BIAS, normal(4), prompt=False, softcap=3.0),
    group(np.cos(normal(16, 8)), np.sin(normal(16, 8)), prompt=False, do_rotary=1),
    group(*TABLES, whole("int64", "B", "S", low=0, high=9), prompt=False, do_rotary=1),
]  # fmt: skip
# One new token for sequences of several lengths; a buffer that is longer than they are.
RAGGED = [group(prompt=False, ragged=True), group(*TABLES, prompt=False, ragged=True, do_rotary=1)]
for _case in RAGGED:
    _case.sizes = ({"B": 2, "S": 1, "P": 5}, {"B": 3, "S": 1, "P": 6})


@pytest.mark.parametrize(
    "name", ["ATTENTION", "QATTENTION", "MULTI", "PACKED", "DECODER", "GROUP", "RAGGED"]
)
def test_agrees(name: str, ort_run: Callable[..., list[np.ndarray]]) -> None:
    check(globals()[name], ort_run)


# What a decoder looks like in a file: both lengths follow from the attention mask.
DECODER_TEXT = """
g (float[B, S, 128] q, float[B, S, 64] k, int64[B, T] mask, float[B, 2, P, 32] pk, float[B, 2, P, 32] pv)
    => (float[a] y, float[b] nk, float[c] nv) <int64[1] axis = {1}, int64 one = {1}, int64 i = {1}> {
  sum = ReduceSum<keepdims=0>(mask, axis)
  less = Sub(sum, one)
  lengths = Cast<to=6>(less)
  shape = Shape(mask)
  width = Gather(shape, i)
  total = Cast<to=6>(width)
  y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, k, pk, pv, lengths, total)
}"""


def test_lengths_from_a_mask(ort_run: Callable[..., list[np.ndarray]]) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(header + DECODER_TEXT)
    compiled = gw.compile(model, target="cpu:native")
    for batch, steps, past in ((1, 3, 4), (2, 1, 6), (2, 4, 0)):
        held = np.ones((batch, past + steps), np.int64)
        held[1:, : min(past, 2)] = 0
        cache = normal(batch, 2, past, 32)
        feed = {"q": normal(batch, steps, 128), "k": normal(batch, steps, 64), "mask": held, "pk": cache, "pv": cache}  # fmt: skip
        got = list(compiled.run(feed).values())
        for g, w in zip(got, ort_run(model, feed), strict=True):
            assert g.shape == w.shape
            assert relative_rms(g, w) < 1e-5


BAD = [
    (multi(Q), "its key is missing"), (multi(Q, K), "its value is missing"),
    (multi(Q, Q, Q, None, None, None, CACHE, CACHE, None, whole("int32", "B", 1, "P")), "cache indirection"),
    (attention(WB, None, PAST, None, np.zeros(1, np.int32), past_present_share_buffer=1), "past sequence length"),
    (attention(WB, do_rotary=1), "do_rotary"),
    (group(prompt=False, k_quant_type="PER_TENSOR"), "quantized caches"), (group(prompt=False, sliding_window_cache=1), "window's size"),
    (Case("GroupQueryAttention", [GQ, GK, GK, None, None, lengths("ends", "S"), np.int32(3)], {"num_heads": 4, "kv_num_heads": 3}), "multiple of kv_num_heads"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "reason"), BAD, ids=[f"{c.op}-{i}" for i, (c, _) in enumerate(BAD)]
)
def test_refused(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model_of([case]))
