"""Convolutions against float64: odd channels, borders, strides, dilations, groups, 1-D to 3-D."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error

from graphwright.compiler.codegen.cpp.packing import (
    pack_conv_weight,
    pack_depthwise_weight,
    panel_shape,
)

SOURCE = Path(__file__).parent / "conv_kernels.cpp"


@dataclass(frozen=True)
class Case:
    """Sizes of one convolution; axes are (depth, height, width), ci and co belong to one group."""

    size: tuple[int, int, int]
    ci: int
    co: int
    kernel: tuple[int, int, int] = (1, 1, 1)
    n: int = 1
    groups: int = 1
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    pad: tuple[int, int, int] = (0, 0, 0)
    pad_end: tuple[int, int, int] | None = None
    out: tuple[int, int, int] = field(init=False)

    def __post_init__(self):
        ends = self.pad if self.pad_end is None else self.pad_end
        sizes = zip(self.size, self.kernel, self.stride, self.dilation, self.pad, ends, strict=True)
        out = tuple((i + p + e - (k - 1) * d - 1) // s + 1 for i, k, s, d, p, e in sizes)
        object.__setattr__(self, "out", out)

    def scalars(self) -> list[int]:
        rest = (self.size, self.out, self.kernel, self.stride, self.dilation, self.pad)
        return [self.n, self.groups, self.ci, self.co, *itertools.chain(*rest)]


def square(size, ci, co, k, **options) -> Case:
    """A 2-D case from scalars."""
    height, width = size if isinstance(size, tuple) else (size, size)
    kh, kw = k if isinstance(k, tuple) else (k, k)
    for name in ("stride", "dilation"):
        if name in options:
            options[name] = (1, options[name], options[name])
    if "pad" in options:
        options["pad"] = (0, options["pad"], options["pad"])
    return Case((1, height, width), ci, co, (1, kh, kw), **options)


def reference(x: np.ndarray, w: np.ndarray, case: Case) -> np.ndarray:
    """float64 convolution: x [N, D, H, W, C], w [O, I/g, KD, KH, KW] -> [N, OD, OH, OW, O]."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    after = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - i - p)
        for i, o, k, s, d, p in zip(
            case.size, case.out, case.kernel, case.stride, case.dilation, case.pad, strict=True
        )
    ]
    padded = np.pad(x, [(0, 0), *zip(case.pad, after, strict=True), (0, 0)])
    out = np.zeros((case.n, *case.out, case.groups, case.co))
    for position in itertools.product(*[range(k) for k in case.kernel]):
        window = padded
        for axis in range(3):
            start = position[axis] * case.dilation[axis]
            stop = start + (case.out[axis] - 1) * case.stride[axis] + 1
            window = window.take(range(start, stop, case.stride[axis]), axis=axis + 1)
        grouped = window.reshape(*window.shape[:4], case.groups, case.ci)
        weights = w[(..., *position)].reshape(case.groups, case.co, case.ci)
        out += np.einsum("ndhwgi,goi->ndhwgo", grouped, weights)
    return out.reshape(case.n, *case.out, case.groups * case.co)


CASES = [
    square(7, 64, 32, 1),
    square((5, 9), 17, 33, 1, n=2),
    square(14, 32, 48, 1, stride=2),
    square(32, 3, 24, 7, stride=2, pad=3),
    square((9, 61), 3, 16, 3, pad=1),
    square((6, 40), 1, 17, 3, pad=1, n=2),
    square((4, 50), 1, 8, (3, 5), pad=2),
    square((8, 30), 4, 40, 5, stride=2, pad=2),
    square(7, 48, 32, 3, pad=1),
    square(14, 16, 33, 3, pad=1),
    square((3, 30), 24, 17, 3, pad=1),
    square((2, 2), 20, 5, 3, pad=1),
    square((1, 1), 8, 8, 5, pad=2),
    square((26, 31), 17, 3, 3, stride=2, pad=1),
    square((30, 33), 16, 16, 3, dilation=2, pad=2),
    square((30, 33), 3, 16, 3, dilation=3, pad=3),
    square(12, 8, 12, 3, groups=4, pad=1),
    square(9, 17, 3, 1, groups=3),
    square((5, 70), 1, 3, 3, groups=3, pad=1),
    square(20, 3, 7, 4, pad=1),
    Case((1, 10, 11), 5, 6, (1, 3, 3), pad=(0, 2, 0), pad_end=(0, 0, 1)),
    Case((1, 1, 200), 1, 18, (1, 1, 25), stride=(1, 1, 4)),
    Case((1, 1, 100), 12, 20, (1, 1, 5), pad=(0, 0, 2), dilation=(1, 1, 3)),
    Case((1, 1, 300), 1, 33, (1, 1, 256), stride=(1, 1, 64), pad=(0, 0, 96)),
    Case((1, 1, 40), 64, 24, (1, 1, 1)),
    Case((5, 6, 7), 3, 9, (3, 3, 3), pad=(1, 1, 1), n=2),
    Case((6, 5, 26), 8, 16, (3, 2, 3), stride=(2, 1, 1), pad=(1, 0, 1)),
    Case((9, 9, 9), 2, 4, (7, 7, 7), pad=(3, 3, 3)),
    Case((3, 4, 5), 6, 2, (2, 2, 2), dilation=(2, 1, 2), groups=2),
]
DEPTHWISE = [
    square((c % 5 + 4, 23), 1, 1, k, groups=c, stride=s, pad=k // 2, n=1 + c % 2)
    for c, k, s in itertools.product((1, 3, 16, 17, 24, 40, 64), (3, 5), (1, 2))
] + [
    square((3, 3), 1, 1, 5, groups=20, pad=2),
    square((12, 30), 1, 1, 3, groups=33, dilation=2, pad=2),
    square((6, 8), 1, 3, 3, groups=7, pad=1),
    square((6, 9), 1, 2, 2, groups=40, stride=2),
    square((7, 7), 1, 1, 7, groups=8, pad=3),
    Case((1, 1, 90), 1, 1, (1, 1, 9), groups=18, pad=(0, 0, 4)),
    Case((4, 5, 6), 1, 1, (3, 3, 3), groups=19, pad=(1, 1, 1)),
]


@pytest.fixture(scope="module", params=isas())
def kernels(request):
    library = Library(build(SOURCE, isa=request.param))
    yield library, panel_shape(request.param)
    library.close()


def check(kernels, case: Case, name: str = "conv") -> None:
    library, shape = kernels
    rng = np.random.default_rng(case.scalars())
    x = Guarded(rng.standard_normal((case.n, *case.size, case.groups * case.ci)))
    w = rng.standard_normal((case.groups * case.co, case.ci, *case.kernel)).astype(np.float32)
    bias = Guarded(rng.standard_normal(case.groups * case.co))
    expected = reference(x.array, w, case) + bias.array
    if name == "conv":
        packed = Guarded(pack_conv_weight(w, groups=case.groups, shape=shape))
    else:
        packed = Guarded(pack_depthwise_weight(w, shape=shape))
    results = []
    for pool in (True, False):
        out = Guarded(shape=expected.shape)
        library.call(
            name, [x.array, packed.array, bias.array, out.array], case.scalars(), pool=pool
        )
        assert out.intact()
        assert relative_error(out.array, expected) < 1e-6, case
        results.append(out.array)
    assert np.array_equal(*results), "the result depends on the number of threads"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_matches_float64(kernels, case):
    check(kernels, case)


@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise_matches_float64(kernels, case):
    check(kernels, case, "depthwise")


@pytest.mark.slow
@pytest.mark.parametrize("ci,co", list(itertools.product((1, 3, 17, 32), (1, 3, 17, 64))))
def test_conv_grid(kernels, ci, co):
    sizes = itertools.product((1, 4, 13, 27), (1, 2, 3, 5), (1, 2, 3), (1, 2), (0, 1, 2))
    for size, k, stride, dilation, pad in sizes:
        if size + 2 * pad >= (k - 1) * dilation + 1:
            check(
                kernels,
                square((size, size + 3), ci, co, k, stride=stride, dilation=dilation, pad=pad),
            )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang not installed")
@pytest.mark.parametrize("isa", isas())
def test_clang_build_agrees(isa):
    library = Library(build(SOURCE, isa=isa, compiler="zig"))
    for case in CASES:
        check((library, panel_shape(isa)), case)
    for case in DEPTHWISE:
        check((library, panel_shape(isa)), case, "depthwise")
    library.close()
