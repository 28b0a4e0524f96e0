"""Weights of few bits of com.microsoft through compiled kernels, against ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from contrib_cases import Case, Input, check, model_of, real, whole

from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)
f32 = np.float32


def octets(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def scales(*shape: int, dtype: type = f32) -> np.ndarray:
    return (0.01 + 0.02 * RNG.random(shape)).astype(dtype)


def grouped(
    a: np.ndarray, b: np.ndarray, s: np.ndarray, zeros: np.ndarray, group: np.ndarray, **_: int
) -> list[np.ndarray]:
    """By the text: column k has the scale and zero point of block g_idx[k].  With packed zero points
    ONNX Runtime's kernel for this deprecated input gives something else."""

    def low_high(x: np.ndarray) -> np.ndarray:
        return np.stack([x & 15, x >> 4], -1).reshape(len(x), -1).astype(np.float64)

    w = low_high(b.reshape(len(b), -1)) - low_high(zeros)[:, : s.shape[1]][:, group]
    return [(a @ (w * s[:, group]).T).astype(f32)]


def n_bits(
    bits: int,
    block: int,
    depth: int,
    *,
    zeros: str = "",
    flat: bool = False,
    group: bool = False,
    bias: bool = False,
    a: Input | None = None,
    dtype: type = f32,
    **attributes: int,
) -> Case:
    count, blocks = 24, -(-depth // block)
    shape = (count * blocks,) if flat else (count, blocks)
    more: list[np.ndarray | None] = [None, None, None]
    if zeros == "packed":
        width = -(-blocks * bits // 8)
        more[0] = octets(count * width) if flat else octets(count, width)
    elif zeros:
        more[0] = (7 + RNG.random(shape)).astype(dtype)
    if group:
        more[1] = RNG.permutation(np.arange(depth) // block).astype(np.int32)
    if bias:
        more[2] = scales(count, dtype=dtype)
    given = a or real("B", "S", depth, dtype=np.dtype(dtype).name)
    inputs = [given, octets(count, blocks, block * bits // 8), scales(*shape, dtype=dtype), *more]
    while inputs[-1] is None:
        inputs.pop()
    tolerance = 5e-3 if dtype is np.float16 else 1e-5
    return Case("MatMulNBits", inputs, {"bits": bits, "block_size": block, "K": depth, "N": count, **attributes}, tolerance=tolerance, reference=grouped if group and zeros else None)  # fmt: skip


N_BITS = [
    n_bits(4, 32, 96), n_bits(4, 16, 40, zeros="packed"), n_bits(4, 128, 200, zeros="floats", bias=True), n_bits(8, 32, 64, zeros="packed"),
    n_bits(8, 16, 48), n_bits(2, 32, 96, zeros="packed", accuracy_level=1), n_bits(2, 64, 128), n_bits(4, 32, 96, a=real("T", 96)),
    n_bits(4, 16, 64, group=True), n_bits(4, 16, 64, group=True, zeros="packed"), n_bits(4, 32, 64, zeros="packed", dtype=np.float16, bias=True),
]  # fmt: skip


def bnb4(kind: int, block: int) -> Case:
    depth, count = 48, 20
    blocks = -(-depth * count // block)
    given = [real("B", "S", depth), octets(depth * count // 2), scales(blocks)]
    return Case(
        "MatMulBnb4", given, {"K": depth, "N": count, "block_size": block, "quant_type": kind}
    )


def gather(
    table: np.ndarray,
    shape: tuple[int, ...],
    zeros: np.ndarray | None = None,
    *,
    indices: Input | None = None,
    dtype: type = f32,
    **attributes: int,
) -> Case:
    given = [
        table,
        indices or whole("int64", "B", "S", low=0, high=9),
        scales(*shape, dtype=dtype),
        *([] if zeros is None else [zeros]),
    ]
    return Case(
        "GatherBlockQuantized", given, attributes, tolerance=1e-3 if dtype is np.float16 else 1e-6
    )


I4 = RNG.integers(-8, 8, (9, 48)).astype(ml_dtypes.int4)
GATHER = [
    bnb4(0, 16), bnb4(1, 64), bnb4(1, 32),
    gather(octets(9, 24), (9, 3), block_size=16, bits=4), gather(octets(9, 24), (9, 3), octets(9, 2), block_size=16, bits=4), gather(octets(9, 40), (9, 3), octets(9, 3), block_size=16, bits=8),
    gather(octets(9, 4, 24), (9, 4, 2), block_size=32, bits=4, quantize_axis=2, indices=whole("int32", "S", low=-9, high=9)), gather(octets(9, 16), (9, 4), octets(9, 1), block_size=16, bits=2),
    gather(octets(9, 24), (9, 3), block_size=16, bits=4, dtype=np.float16), gather(I4, (9, 3), block_size=16), gather(I4, (9, 3), RNG.integers(-8, 8, (9, 3)).astype(ml_dtypes.int4), block_size=16),
    gather(RNG.integers(-8, 8, (20, 9)).astype(ml_dtypes.int4), (2, 9), block_size=16, quantize_axis=0, gather_axis=1),
]  # fmt: skip


@pytest.mark.parametrize("name", ["N_BITS", "GATHER"])
def test_agrees(name: str, ort_run: Callable[..., list[np.ndarray]]) -> None:
    check(globals()[name], ort_run)


BAD = [
    (n_bits(4, 32, 96, weight_prepacked=1), "execution provider"), (n_bits(4, 32, 96, a=real("S", 95)), "K"),
    (Case("MatMulNBits", [real("S", 64), octets(8, 2, 20), scales(8, 2)], {"bits": 5, "block_size": 32, "K": 64, "N": 8}), "bits is 5"),
    (Case("MatMulBnb4", [real("S", 48), octets(480), scales(60)], {"K": 48, "N": 20, "block_size": 16, "quant_type": 2}), "quant_type"),
    (gather(octets(9, 24), (9, 3), block_size=16, gather_axis=1), "both 1"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), BAD, ids=[r for _, r in BAD])
def test_refused(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model_of([case]))
