"""Reading a page: picture to text lines, around a text detector and a text recogniser.

The models are passed in as functions from array to array, so that any engine can stand behind.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

Model = Callable[[np.ndarray], np.ndarray]
LINE_HEIGHT = 48  # what the recogniser wants


def normalised(picture: Image.Image) -> np.ndarray:
    """RGB float32 [1, 3, H, W] in -1..1."""
    pixels = np.asarray(picture.convert("RGB"), np.float32) / 255
    return np.ascontiguousarray(((pixels - 0.5) / 0.5).transpose(2, 0, 1)[None])


def enlarged(picture: Image.Image, factor: float, multiple: int = 32) -> Image.Image:
    """The picture resized so that both sides are multiples, as the detector wants."""
    width, height = (max(round(s * factor / multiple), 1) * multiple for s in picture.size)
    return picture.resize((width, height), Image.Resampling.BICUBIC)


def components(mask: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Bounding boxes (left, top, right, bottom) of the 4-connected parts of a bool image."""
    todo = mask.copy()
    boxes: list[tuple[int, int, int, int]] = []
    height, width = mask.shape
    for start_y, start_x in zip(*np.nonzero(mask), strict=True):
        if not todo[start_y, start_x]:
            continue
        todo[start_y, start_x] = False
        stack, ys, xs = [(int(start_y), int(start_x))], [], []
        while stack:
            y, x = stack.pop()
            ys.append(y)
            xs.append(x)
            for near_y, near_x in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                inside = 0 <= near_y < height and 0 <= near_x < width
                if inside and todo[near_y, near_x]:
                    todo[near_y, near_x] = False
                    stack.append((near_y, near_x))
        boxes.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return boxes


def find_lines(page: Image.Image, detector: Model) -> list[Image.Image]:
    """The text lines of a page from top to bottom, cut out."""
    probability = detector(normalised(page))[0, 0]
    lines: list[tuple[int, Image.Image]] = []
    for left, top, right, bottom in components(probability > 0.3):
        height = bottom - top
        if height < 6 or right - left < 2 * height:
            continue
        # The detector marks the middle of a line; letters reach beyond it.
        margin = round(0.35 * height)
        box = (left - margin, top - margin, right + margin, bottom + margin)
        box = (max(box[0], 0), max(box[1], 0), min(box[2], page.width), min(box[3], page.height))
        lines.append((top, page.crop(box)))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def line_array(line: Image.Image) -> np.ndarray:
    """A line as the recogniser wants it: float32 [1, 3, 48, W]."""
    width = max(round(line.width * LINE_HEIGHT / line.height / 8), 2) * 8
    return normalised(line.resize((width, LINE_HEIGHT), Image.Resampling.BICUBIC))


def decode(scores: np.ndarray, characters: str) -> tuple[str, float]:
    """Text and mean confidence from CTC scores [T, classes]: class 0 is blank, the last a space."""
    alphabet = ["", *characters.split("\n"), " "]
    best = scores.argmax(-1)
    kept = [t for t in range(len(best)) if best[t] and (t == 0 or best[t] != best[t - 1])]
    text = "".join(alphabet[best[t]] for t in kept)
    return text.strip(), float(scores.max(-1)[kept].mean()) if kept else 0.0
