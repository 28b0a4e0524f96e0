"""LSTM and GRU against a float64 loop: directions, initial states, lengths, batch-first input."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error
from test_matmul import SOURCE

from graphwright.compiler.codegen.cpp.packing import pack_gemm_b, panel_shape


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(kind, x, w, r, wb, rb, h0, c0, peephole, lengths, reverse, linear):
    """float64 layer; x [T, B, I], w [D, G*H, I]; returns y [T, D, B, H], h [D, B, H], c [D, B, H]."""
    steps, batch, _ = x.shape
    directions, hidden = w.shape[0], r.shape[2]
    y = np.zeros((steps, directions, batch, hidden))
    hs, cs = np.zeros((2, directions, batch, hidden))
    for d, b in itertools.product(range(directions), range(batch)):
        h, c = h0[d, b].astype(np.float64), c0[d, b].astype(np.float64)
        order = list(range(lengths[b]))
        if (directions == 2 and d == 1) or (directions == 1 and reverse):
            order.reverse()
        for t in order:
            xs = np.split(w[d].astype(np.float64) @ x[t, b] + wb[d], 4 if kind == "lstm" else 3)
            if kind == "lstm":
                p = np.split(peephole[d].astype(np.float64), 3)
                hs_ = np.split(r[d].astype(np.float64) @ h + rb[d], 4)
                i, o, f, g = (a + e for a, e in zip(xs, hs_, strict=True))
                i, f = sigmoid(i + p[0] * c), sigmoid(f + p[2] * c)
                c = f * c + i * np.tanh(g)
                h = sigmoid(o + p[1] * c) * np.tanh(c)
            else:
                rz, rr, rh = np.split(r[d].astype(np.float64), 3)
                bz, br, bh = np.split(rb[d].astype(np.float64), 3)
                z, q = sigmoid(xs[0] + rz @ h + bz), sigmoid(xs[1] + rr @ h + br)
                inner = q * (rh @ h + bh) if linear else rh @ (q * h) + bh
                h = (1 - z) * np.tanh(xs[2] + inner) + z * h
            y[t, d, b] = h
        hs[d, b], cs[d, b] = h, c
    return y, hs, cs


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("kind,linear", [("lstm", False), ("gru", False), ("gru", True)])
@pytest.mark.parametrize(
    "steps,batch,size,hidden,directions,options",
    [
        (5, 1, 10, 16, 1, "bias"),
        (7, 2, 3, 17, 1, "bias reverse states"),
        (6, 3, 20, 24, 2, "bias states lengths"),
        (4, 5, 8, 33, 2, "batch-first peephole"),
        (3, 1, 64, 192, 1, "bias states"),
        (2, 2, 5, 1, 2, ""),
    ],
)
def test_recurrent_matches_float64(
    isa, kind, linear, steps, batch, size, hidden, directions, options
):
    library, shape = Library(build(SOURCE, isa=isa)), panel_shape(isa)
    rng = np.random.default_rng([steps, batch, size, hidden])
    gates = 4 if kind == "lstm" else 3
    x = Guarded(rng.standard_normal((steps, batch, size)))
    w = rng.standard_normal((directions, gates * hidden, size)).astype(np.float32) / 3
    r = rng.standard_normal((directions, gates * hidden, hidden)).astype(np.float32) / 3
    wb, rb = rng.standard_normal((2, directions, gates * hidden)).astype(np.float32)
    if "bias" not in options:
        wb[...] = rb[...] = 0
    states = rng.standard_normal((2, directions, batch, hidden)).astype(np.float32)
    h0, c0 = states if "states" in options else states * 0
    peephole = rng.standard_normal((directions, 3 * hidden)).astype(np.float32)
    if "peephole" not in options:
        peephole[...] = 0
    lengths = np.full(batch, steps, np.int32)
    if "lengths" in options:
        lengths[:] = rng.integers(1, steps + 1, batch)
    expected = reference(
        kind, x.array, w, r, wb, rb, h0, c0, peephole, lengths, "reverse" in options, linear
    )

    packed_w = np.concatenate([pack_gemm_b(m.T, shape=shape) for m in w])
    if kind == "gru" and not linear:
        parts = [p for m in r for p in (m[: 2 * hidden], m[2 * hidden :])]
    else:
        parts = list(r)
    packed_r = np.concatenate([pack_gemm_b(m.T, shape=shape) for m in parts])
    bias = np.zeros((directions, 4 * hidden), np.float32)
    bias[:, : gates * hidden] = wb + rb
    if kind == "gru" and linear:
        bias[:, 2 * hidden : 3 * hidden] = wb[:, 2 * hidden :]
        bias[:, 3 * hidden :] = rb[:, 2 * hidden :]
    size_of = library.lib.recurrent_workspace
    size_of.restype, size_of.argtypes = ctypes.c_int64, [ctypes.c_int64] * 5
    workspace = Guarded(shape=(size_of(gates, steps, batch, hidden, directions),))
    source, strides = x.array, (batch * size, size)
    if "batch-first" in options:
        source = Guarded(x.array.transpose(1, 0, 2)).array
        strides = (size, steps * size)
    given = [
        bias if "bias" in options else None,
        h0 if "states" in options else None,
        c0 if "states" in options else None,
        lengths if "lengths" in options else None,
    ]
    scalars = [steps, batch, size, hidden, directions, "reverse" in options, linear, *strides]
    for pool in (True, False):
        y = Guarded(shape=expected[0].shape)
        h, c = Guarded(shape=expected[1].shape), Guarded(shape=expected[2].shape)
        buffers = [source, packed_w, packed_r, *given, y.array, h.array, c.array]
        buffers += [peephole if "peephole" in options else None, workspace.array]
        library.call(kind, buffers, scalars, pool=pool)
        assert y.intact() and h.intact() and c.intact() and workspace.intact()
        assert relative_error(y.array, expected[0]) < 1e-6
        assert relative_error(h.array, expected[1]) < 1e-6
        if kind == "lstm":
            assert relative_error(c.array, expected[2]) < 1e-6
    library.close()
