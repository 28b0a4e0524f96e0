"""Inputs that look like the real thing for the catalogue's models, at three sizes each.

`sample(model, size=0)` gives {input: array}; sizes 1 and 2 differ wherever the model is dynamic.
Everything follows from the model's name, the size and the seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
Random = np.random.Generator
IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))


def text_image(rng: Random, shape: tuple[int, int, int, int], line_height: int) -> np.ndarray:
    """White pages [N,C,H,W] with rows of letter-like dark strokes, scaled to -1..1."""
    count, _, height, width = shape
    pages = np.ones((count, height, width))
    for page in pages:
        for top in range(line_height // 8, height - line_height // 2, line_height):
            x = line_height // 3
            while x < width * rng.uniform(0.7, 1.0) - line_height:
                letter = page[top : top + 3 * line_height // 4, x : x + line_height // 2]
                stroke = max(line_height // 12, 1)
                letter[:, :stroke] = 0.05
                row = int(rng.integers(0, max(letter.shape[0] - stroke, 1)))
                letter[row : row + stroke] = 0.05
                if rng.random() < 0.5:
                    letter[:, -stroke:] = 0.05
                x += int(line_height * rng.uniform(0.5, 0.9))
    noisy = np.clip(pages + rng.normal(0, 0.02, pages.shape), 0, 1)
    return np.repeat(noisy[:, None], shape[1], 1) * 2 - 1


def photograph(rng: Random, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Smooth gradients, a few flat rectangles and grain, 0..1, [N,C,H,W]."""
    count, channels, height, width = shape
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = rng.uniform(1, 9, (count, channels, 3, 1, 1))
    pictures = 0.5 + 0.4 * np.sin(waves[:, :, 0] * x + waves[:, :, 1] * y + waves[:, :, 2])
    for picture in pictures:
        for _ in range(5):
            top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
            colour = rng.random((channels, 1, 1))
            picture[:, top : top + height // 5, left : left + width // 5] = colour
    return np.clip(pictures + rng.normal(0, 0.02, pictures.shape), 0, 1)


def voice(rng: Random, samples: int, rate: int) -> np.ndarray:
    """A gliding voiced sound with harmonics, -1..1."""
    time = np.arange(samples) / rate
    pitch = rng.uniform(100, 250) * (1 + 0.08 * np.sin(2 * np.pi * 3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    tone = sum(np.sin(k * phase) / k for k in range(1, 7)) * 0.2
    return np.clip(tone * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * time)), -1, 1) + rng.normal(
        0, 0.003, samples
    )


def file_bytes(rng: Random, rows: int) -> np.ndarray:
    """First and last 1024 bytes of text-like files, padded with 256, int32 [rows, 2048]."""
    letters = np.frombuffer(b"import os\ndef main(x):\n    return {'a': x + 1}\n# done\n", np.uint8)
    out = np.full((rows, 2048), 256)
    for row in out:
        size = int(rng.integers(300, 1025))
        row[:size] = rng.choice(letters, size)
        row[-size:] = rng.choice(letters, size)
    return out.astype(np.int32)


def windows(rng: Random, rows: int, high: int) -> np.ndarray:
    """Overlapping windows of 21 character ids, as floats [rows, 21]."""
    text = rng.integers(1, high, rows + 21)
    return np.stack([text[i : i + 21] for i in range(rows)]).astype(np.float32)


def _normalised(picture: np.ndarray) -> np.ndarray:
    mean, deviation = IMAGENET
    return (picture - mean[:, None, None]) / deviation[:, None, None]


# model: (input sizes at 0, 1 and 2; a function of random stream and sizes)
Maker = Callable[..., Feed]
MODELS: dict[str, tuple[list[tuple[int, ...]], Maker]] = {
    "ppocr-v4-rec": (
        [(1, 320), (2, 192), (3, 544)],
        lambda r, n, w: {"x": text_image(r, (n, 3, 48, w), 48)},
    ),
    "ppocr-v4-det": (
        [(1, 480, 960), (2, 320, 480), (1, 640, 768)],
        lambda r, n, h, w: {"x": text_image(r, (n, 3, h, w), 40)},
    ),
    "ppocr-v2-cls": (
        [(1,), (2,), (3,)],
        lambda r, n: {"x": text_image(r, (n, 3, 48, 192), 48)},
    ),
    "ddddocr-common": (
        [(200,), (120,), (340,)],
        lambda r, w: {"input1": text_image(r, (1, 1, 64, w), 64)},
    ),
    "ddddocr-det": ([()] * 3, lambda r: {"images": photograph(r, (1, 3, 416, 416)) * 255}),
    "magika": ([(1,), (2,), (5,)], lambda r, n: {"bytes": file_bytes(r, n)}),
    "basic-pitch": (
        [(1,), (2,), (3,)],
        lambda r, n: {
            "serving_default_input_2:0": np.stack([voice(r, 43844, 22050) for _ in range(n)])[
                ..., None
            ]
        },
    ),
    "silero-vad-static": (
        [()] * 3,
        lambda r: {
            "input": voice(r, 576, 16000)[None],
            "state": r.normal(0, 0.3, (2, 1, 128)),
        },
    ),
    "attacut-c": (
        [(27,), (16,), (90,)],
        lambda r, t: {"input": r.integers(3, 139, (1, t))},
    ),
    "deepcut": (
        [(27,), (16,), (90,)],
        lambda r, t: {"input_1": windows(r, t, 178), "input_2": windows(r, t, 12)},
    ),
    "light-resnet50": (
        [()] * 3,
        lambda r: {"gpu_0/data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
    "light-squeezenet": (
        [()] * 3,
        lambda r: {"data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
    "light-shufflenet": (
        [()] * 3,
        lambda r: {"gpu_0/data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
    "light-inception-v1": (
        [()] * 3,
        lambda r: {"data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
}


def sample(model: str, size: int = 0, seed: int = 0) -> Feed:
    """Inputs of a catalogue model.  Raises KeyError for a model without a rule."""
    sizes, make = MODELS[model]
    rng = np.random.default_rng([seed, size, zlib.crc32(model.encode())])
    feed = make(rng, *sizes[size])
    return {n: _narrowed(v) for n, v in feed.items()}


def _narrowed(value: Any) -> np.ndarray:
    array = np.ascontiguousarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array
