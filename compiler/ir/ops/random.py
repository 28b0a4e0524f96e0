"""Random numbers from a generator without state: a number is a function of seed, stream and position.

The generator is Philox4x32-10 (J. Salmon and others, Parallel random numbers: as easy as 1, 2, 3,
2011).  Its key is the seed, its counter (block low, block high, stream, 0); a block gives four words
of 32 bits, so that word i of a stream is word i % 4 of block i // 4, whoever calculates it.

With a seed the stream is 0: a call gives the same numbers each time and on every device.  Without
one the key is 0 and each draw takes the next stream of the loaded model's library, so that calls
differ and a process repeats itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Effect,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.precision import results
from graphwright.compiler.ir.types import F32, DType, TensorType

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
# Bits of a uniform number, at most those of the element type's fraction: it stays below one.
UNIFORM_BITS = {"f64": 53, "f16": 11, "bf16": 8}


def key_of(seed: float | None) -> tuple[int, int]:
    """The two words of a seed: the bits of its float64."""
    if seed is None:
        return (0, 0)
    bits = int(np.float64(seed).view(np.uint64))
    return bits & 0xFFFFFFFF, bits >> 32


def philox_words(count: int, key: tuple[int, int], stream: int) -> np.ndarray:
    """The first `count` words of a stream: u32."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    words = [blocks & low, blocks >> np.uint64(32)]
    words += [np.full_like(blocks, stream), np.zeros_like(blocks)]
    keys = [np.uint64(k) for k in key]
    for _ in range(10):
        a = words[0] * np.uint64(_MULTIPLIERS[0])
        b = words[2] * np.uint64(_MULTIPLIERS[1])
        words = [
            (b >> np.uint64(32)) ^ words[1] ^ keys[0],
            b & low,
            (a >> np.uint64(32)) ^ words[3] ^ keys[1],
            a & low,
        ]
        keys = [(k + np.uint64(w)) & low for k, w in zip(keys, _WEYL, strict=True)]
    return np.stack(words, axis=1).reshape(-1)[:count].astype(np.uint32)


class _Random(OpDef):
    kind = Kind.SOURCE
    effect = Effect.RANDOM

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        dtype = attributes["dtype"]
        if not dtype.is_float or dtype.bits < 16:
            raise InferenceError(f"{self.name}: dtype is {dtype}, want a float type of 16 or more")
        return [TensorType(dtype, attributes["shape"])]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        shape = context.sizes(attributes["shape"])
        stream = 0
        if attributes["seed"] is None and context.rng is not None:
            stream = int(context.rng.integers(2**32))
        key, count = key_of(attributes["seed"]), int(np.prod(shape))
        drawn = self.draw(key, stream, count, attributes)
        return results([drawn.reshape(shape)], context)

    def draw(
        self, key: tuple[int, int], stream: int, count: int, attributes: Attributes
    ) -> np.ndarray:
        """`count` samples of this distribution in float64; each random op has its own."""
        raise NotImplementedError(f"{self.name}: draw")


class RandomUniform(_Random):
    """Independent numbers in [low, high), before rounding.  `seed` None: from the model's stream.

    Word i, shortened to the fraction of the element type, is the number of element i; for f64 it is
    made of words 2i and 2i + 1.
    """

    name = "random_uniform"
    attributes = {
        "shape": Attribute("dims"),
        "dtype": Attribute("dtype", F32),
        "low": Attribute("float", 0.0),
        "high": Attribute("float", 1.0),
        "seed": Attribute("float", None),
    }

    def draw(
        self, key: tuple[int, int], stream: int, count: int, attributes: Attributes
    ) -> np.ndarray:
        dtype: DType = attributes["dtype"]
        bits = UNIFORM_BITS.get(dtype.name, 24)
        if bits > 32:
            pairs = philox_words(2 * count, key, stream).reshape(-1, 2).astype(np.float64)
            high, low = np.floor(pairs[:, 0] / 32), np.floor(pairs[:, 1] / 64)
            unit = (high * 2**26 + low) * 2.0**-53
        else:
            unit = (philox_words(count, key, stream) >> np.uint32(32 - bits)) * 2.0**-bits
        return attributes["low"] + unit * (attributes["high"] - attributes["low"])


class RandomNormal(_Random):
    """Independent normal numbers.  `seed` None: from the model's stream.

    Elements 2i and 2i + 1 are Box and Muller's pair of words 2i and 2i + 1, calculated in float64.
    """

    name = "random_normal"
    attributes = {
        "shape": Attribute("dims"),
        "dtype": Attribute("dtype", F32),
        "mean": Attribute("float", 0.0),
        "scale": Attribute("float", 1.0),
        "seed": Attribute("float", None),
    }

    def draw(
        self, key: tuple[int, int], stream: int, count: int, attributes: Attributes
    ) -> np.ndarray:
        words = philox_words(count + count % 2, key, stream).reshape(-1, 2).astype(np.float64)
        radius = np.sqrt(-2 * np.log((words[:, 0] + 1) * 2.0**-32))
        angle = 2 * np.pi * (words[:, 1] * 2.0**-32)
        pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return attributes["mean"] + pairs.reshape(-1)[:count] * attributes["scale"]


OPS: tuple[OpDef, ...] = (RandomUniform(), RandomNormal())
