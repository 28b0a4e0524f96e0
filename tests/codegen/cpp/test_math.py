"""gw/math.h: error in ulp against libm in double, special values, and that the loops vectorise."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from harness import FLAGS, INCLUDE, Library, build, isas

SOURCE = Path(__file__).parent / "math_kernels.cpp"
FUNCTIONS = [
    "exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "sin", "cos", "tan",
    "floor", "ceil", "trunc", "round_even", "pow",
]  # fmt: skip
EXACT = {"sqrt", "floor", "ceil", "trunc", "round_even"}
BITS = 1 << 32


@pytest.fixture(scope="module", params=isas())
def library(request):
    made = Library(build(SOURCE, isa=request.param))
    yield made
    made.close()


def worst(library: Library, name: str, first: int, stride: int, count: int, multiplier: int = 1):
    at, error = np.zeros(2, np.float32), np.zeros(1)
    scalars = [FUNCTIONS.index(name), first, stride, count, multiplier]
    library.call("worst_error", [at, error], scalars)
    return float(error[0]), at


def check_sweep(library: Library, name: str, stride: int) -> None:
    limit = 0.5 if name in EXACT else 2.0
    error, at = worst(library, name, 0, stride, BITS // stride)
    assert error <= limit, f"{name}: {error} ulp at {at}"


@pytest.mark.parametrize("name", [f for f in FUNCTIONS if f != "pow"])
def test_within_two_ulp_over_all_magnitudes(library, name):
    check_sweep(library, name, 10007)


@pytest.mark.parametrize("name", [f for f in FUNCTIONS if f != "pow"])
def test_within_two_ulp_where_branches_meet(library, name):
    for centre in (
        2.0**-25,
        0.625,
        0.93,
        math.sqrt(0.5),
        1.0,
        math.sqrt(2),
        4.0,
        10.0,
        88.7,
        104.0,
    ):
        for sign in (0, 0x80000000):
            first = int(np.float32(centre).view(np.uint32)) - 8192 + sign
            error, at = worst(library, name, first, 1, 16384)
            assert error <= 2.0, f"{name}: {error} ulp at {at}"


def test_pow_within_two_ulp(library):
    for multiplier in (1, 3, 0x9E3779B1, 0x10001, 77):
        error, at = worst(library, "pow", 12345, 9973, BITS // 9973, multiplier)
        assert error <= 2.0, f"{error} ulp at {at}"
    # Bases near 1 and exponents of ordinary size, where results are neither 0 nor infinite.
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(0, 2, 20000)).astype(np.float32)
    y = rng.normal(0, 10, x.size).astype(np.float32)
    out = np.full_like(x, np.nan)
    library.call("v_pow", [x, out, y], [x.size])
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    normal = (exact > 1e-37) & (exact < 3e38)
    assert normal.sum() > 10000
    assert (np.abs(out[normal] / exact[normal] - 1) < 2**-23).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [f for f in FUNCTIONS if f != "pow"])
def test_within_two_ulp_dense(library, name):
    check_sweep(library, name, 67)


def call(library: Library, name: str, *operands) -> np.ndarray:
    arrays = [np.asarray(o, np.float32) for o in operands]
    out = np.full_like(arrays[0], 7.0)
    library.call(f"v_{name}", [arrays[0], out, *arrays[1:]], [out.size])
    return out


# fmt: off
SPECIAL = np.array([
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45,
    1e-38, 3e38, -3e38, 16777216.0, 16777217.0, -8388609.0, 0.99999994, 1.0000001, 1e-40,
], np.float32)
# fmt: on


def test_special_pairs(library):
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
        got = call(library, "pow", x, y)
        close = np.isclose(got, expected, rtol=3e-7, atol=3e-45, equal_nan=True)
        same_sign = np.isnan(got) | (np.signbit(got) == np.signbit(expected))
        wrong = ~(close & same_sign)
        assert not wrong.any(), [*zip(x[wrong], y[wrong], got[wrong], expected[wrong], strict=True)]
        assert np.array_equal(call(library, "maximum", x, y), np.maximum(x, y), equal_nan=True)
        assert np.array_equal(call(library, "minimum", x, y), np.minimum(x, y), equal_nan=True)


def test_relu_keeps_nan(library):
    out = call(library, "relu", SPECIAL)
    assert np.array_equal(out, np.maximum(SPECIAL, 0), equal_nan=True)


@pytest.mark.parametrize("isa", isas())
def test_loops_are_vectorised(isa):
    command = ["g++", *FLAGS, f"-march={isa}", f"-I{INCLUDE}", "-S", "-o", "-", str(SOURCE)]
    assembly = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    register = "%zmm" if isa == "x86-64-v4" else "%ymm"
    for name in [*FUNCTIONS, "maximum", "minimum", "relu"]:
        body = re.search(rf"^v_{name}:(.*?)^\t\.size\tv_{name}", assembly, re.M | re.S)
        assert body, name
        if isa == "x86-64-v4":  # GCC may prefer 256-bit registers
            wide = "%zmm" in body[1] or "%ymm" in body[1]
        else:
            wide = register in body[1]
        assert wide, f"{name} is not vectorised for {isa}"
        assert not re.search(r"\bcall\b|@PLT", body[1]), f"{name} calls a function"
