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


def character_ids(rng: Random, rows: int, length: int, low: int, high: int) -> np.ndarray:
    """Ids of characters or word pieces in [low, high), int64 [rows, length]."""
    return rng.integers(low, high, (rows, length))


def phonemes(rng: Random, rows: int, length: int) -> np.ndarray:
    """A start, ids with a 0 between each two, and a stop, int64 [rows, length]."""
    out = rng.integers(3, 150, (rows, length))
    out[:, 1::2] = 0
    out[:, 0], out[:, -1] = 1, 2
    return out


def frames(rng: Random, rows: int) -> np.ndarray:
    """A voice at 16 kHz in rows of 576 samples, each 512 after the one before."""
    sound = voice(rng, rows * 512 + 576, 16000)
    return np.stack([sound[i * 512 : i * 512 + 576] for i in range(rows)])


def spectrogram(rng: Random, rows: int) -> np.ndarray:
    """Log-mel-like pictures of speech [rows, 80, 800]: ridges that come and go."""
    band, time = np.arange(80)[:, None], np.arange(800)[None]
    ridges = np.cos(band / 3 + np.sin(time / 40)) * np.exp(-band / 50) * (np.sin(time / 60) > -0.3)
    return np.clip(ridges + rng.normal(0, 0.15, (rows, 80, 800)), -0.6, 1.4)


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
    "silero-vad": (
        [(1,), (2,), (3,)],
        lambda r, n: {
            "input": frames(r, n),
            "state": r.normal(0, 0.3, (2, n, 128)),
            "sr": np.array(16000),
        },
    ),
    "silero-vad-half": (
        [(1,), (2,), (3,)],
        lambda r, n: {"input": frames(r, n), "state": r.normal(0, 0.3, (2, n, 128))},
    ),
    "silero-vad-sequence": (
        [(44,), (26,), (75,)],
        lambda r, t: {
            "input": frames(r, t),
            "h": np.zeros((1, 1, 128)),
            "c": np.zeros((1, 1, 128)),
        },
    ),
    "smart-turn-int8": ([(1,), (2,), (3,)], lambda r, n: {"input_features": spectrogram(r, n)}),
    "piper-joe": (
        [(1, 31), (1, 19), (1, 53)],
        lambda r, n, t: {
            "input": phonemes(r, n, t),
            "input_lengths": np.full(n, t),
            "scales": np.array([0.0, 1.0, 0.0]),  # no noise: one answer
        },
    ),
    "minilm-int8": (
        [(1, 13), (2, 8), (3, 22)],
        lambda r, n, t: {
            "input_ids": character_ids(r, n, t, 1000, 30522),
            "attention_mask": np.ones((n, t), np.int64),
            "token_type_ids": np.zeros((n, t), np.int64),
        },
    ),
    "tashkeel-rawi-int8": (
        [(1, 31), (2, 19), (3, 53)],
        lambda r, n, t: {"input": character_ids(r, n, t, 2, 302)},
    ),
    "tashkeel-ensemble-int8": (
        [(1, 31), (2, 19), (3, 53)],
        lambda r, n, t: {"input": character_ids(r, n, t, 2, 236)},
    ),
    "tashkeel-bilstm-int8": (
        [(1, 31), (2, 19), (3, 53)],
        lambda r, n, t: {"input_ids": character_ids(r, n, t, 2, 40)},
    ),
    "arabic-romanizer-encoder": (
        [(1, 7), (2, 4), (3, 12)],
        lambda r, n, t: {
            "src": character_ids(r, n, t, 30, 148),
            "src_mask": np.zeros((n, t), bool),
        },
    ),
    "arabic-romanizer-decoder": (
        [(1, 1, 7), (2, 2, 4), (3, 5, 12)],
        lambda r, n, t, s: {
            "prefix": character_ids(r, n, t, 30, 148),
            "memory": np.clip(r.normal(0, 0.4, (n, s, 256)), -1, 1),
            "src_mask": np.zeros((n, s), bool),
            "hidden": np.clip(r.normal(0, 0.4, (n, 2, 256)), -1, 1),
        },
    ),
    "oskut-deepcut": (
        [(27,), (16,), (90,)],
        lambda r, t: {"inputs": windows(r, t, 178), "inputs_1": windows(r, t, 12)},
    ),
    "ddddocr-common-old": (
        [(200,), (120,), (340,)],
        lambda r, w: {"input1": text_image(r, (1, 1, 64, w), 64)},
    ),
    "light-alexnet": (
        [()] * 3,
        lambda r: {"data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
    "light-vgg19": (
        [()] * 3,
        lambda r: {"data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
    "light-zfnet512": (
        [()] * 3,
        lambda r: {"gpu_0/data_0": _normalised(photograph(r, (1, 3, 224, 224)))},
    ),
}


def sample(model: str, size: int = 0, seed: int = 0) -> Feed:
    """Inputs of a catalogue model.  Raises KeyError for a model without a rule."""
    sizes, make = MODELS[model]
    rng = np.random.default_rng([seed, size, zlib.crc32(model.encode())])
    feed = make(rng, *sizes[size])
    return {n: _narrowed(v) for n, v in feed.items()}


def _narrowed(value: Any) -> np.ndarray:
    array = np.ascontiguousarray(value).reshape(np.shape(value))  # a scalar stays one
    return array.astype(np.float32) if array.dtype == np.float64 else array
