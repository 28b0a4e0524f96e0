"""Samples of attention: shared heads, masks, lengths, windows, alignments, rows without keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from samples.sample import Sample, integers, normal

LENGTHS = np.int64([6, 3])
ANY = np.array(True)


def attend(
    name: str, *more: np.ndarray, shape: tuple[int, ...] = (2, 4, 4, 5, 6, 8, 7),
    dtype: Any = np.float32, **attributes: Any,
) -> Sample:  # fmt: skip
    """shape: batch, heads, heads of k, queries, keys, head size, head size of v."""
    b, h, g, s, t, d, e = shape
    arrays = (normal(b, h, s, d, key="q"), normal(b, g, t, d, key="k"), normal(b, g, t, e, key="v"))
    arrays = tuple(a.astype(dtype) for a in arrays)
    given = {"scale": 1 / math.sqrt(d), **attributes}
    return Sample("attention", (*arrays, *more), given, name, static=(0, 1, 2, 3) if h != g else ())


def samples() -> Iterator[Sample]:
    yield attend("plain")
    yield attend("lengths", ANY, LENGTHS, causal=True, align="end")
    yield attend("causal", causal=True)
    yield attend("past", causal=True, offset=1)
    yield attend("end", causal=True, align="end")
    yield attend("negative", causal=True, offset=-2)
    yield attend("negative_nan", causal=True, offset=-2, empty="nan")
    shared = (2, 6, 2, 3, 5, 8, 8)
    yield attend("shared", shape=shared, causal=True, offset=2)
    yield attend("one_head", shape=(1, 4, 1, 3, 5, 8, 4))
    mask = integers(0, 4, 2, 1, 5, 6) > 0
    mask[1, 0, 2] = False
    yield attend("mask", mask)
    yield attend("mask_nan", mask, empty="nan")
    yield attend("mask_filled", mask, fill=-10000.0)
    yield attend("mask_keys", integers(0, 2, 6) > 0)
    yield attend("mask_shared", integers(0, 3, 6, 3, 5) > 0, shape=shared)
    yield attend("bias", normal(1, 4, 5, 6, key="bias"))
    lowest = np.where(mask, np.float32(0), np.float32(-math.inf))
    yield attend("bias_infinite", lowest, causal=True, offset=1)
    yield attend("bias_capped", normal(2, 1, 1, 6, key="bias"), softcap=1.5)
    yield attend("capped", softcap=2.0, scale=3.0)
    yield attend("windows", window=(2, 1))
    yield attend("window_left", causal=True, window=(1, -1), align="end")
    yield attend("window_lengths", ANY, LENGTHS.astype(np.int32), window=(1, 0), align="end")
    yield attend("empty_lengths", ANY, np.int64([0, 6]))
    yield attend("large", scale=40.0)
    yield attend("one_query", shape=(2, 4, 4, 1, 37, 16, 16))
    yield attend("longer", shape=(1, 2, 2, 70, 133, 32, 32), causal=True, align="end")
    yield attend("wide", shape=(1, 1, 1, 9, 40, 80, 96))
    yield attend("no_keys", shape=(1, 2, 2, 3, 0, 4, 4))
    yield attend("no_queries", shape=(1, 2, 2, 0, 3, 4, 4))
    infinite = attend("special")
    infinite.arrays[0][0, 0, 0, 0], infinite.arrays[2][1, 2, 3, 1] = np.nan, np.inf
    yield infinite
    garbage = attend("garbage", ANY, LENGTHS)
    for operand in garbage.arrays[1:3]:
        operand[1, :, 3:] = np.nan
    yield garbage
    yield attend("half", normal(2, 1, 5, 6, dtype=np.float16, key="bias"), dtype=np.float16)
    yield attend("f64", mask, dtype=np.float64, causal=True, offset=1)
