"""Real inputs of published models, and how what they return is read: text, labels, boundaries, speech.

`REAL[model]` is (feeds, read): feeds of the model, and a function from an output list of each feed to
the decision, something that can be compared with `==`.  Pictures of text are drawn, the recording of a
spoken word and the scan of a page come with the catalogue.
"""

from __future__ import annotations

import json
import sys
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
from fetch_models import fetch  # noqa: E402

Feed = dict[str, np.ndarray]
Read = Callable[[list[np.ndarray]], Any]
Case = tuple[list[Feed], Read]
RATE = 16000


def text_line(text: str, height: int, channels: int) -> np.ndarray:
    """Black letters on white, [1, channels, height, width], -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=int(height * 0.7))
    width = int(font.getlength(text)) + height // 2
    picture = Image.new("L", (width, height), 255)
    ImageDraw.Draw(picture).text((height // 4, height // 10), text, fill=0, font=font)
    gray = np.asarray(picture, np.float32) / 255
    return np.repeat((gray[None, None] - 0.5) / 0.5, channels, 1)


def speech(seconds: float) -> np.ndarray:
    """The recorded word at the end of so many seconds, -1 to 1."""
    (path,) = fetch(["wav-ready"])
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (RATE, 1)
        word = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    out = np.zeros(int(seconds * RATE), np.float32)
    out[-len(word) :] = word[: len(out)]
    return out


def frames(sound: np.ndarray) -> np.ndarray:
    """Chunks of 512 samples, each after the last 64 of the one before."""
    padded = np.concatenate([np.zeros(64, np.float32), sound])
    return np.stack([padded[i : i + 576] for i in range(0, len(sound) - 511, 512)])


def log_mel(sound: np.ndarray, bands: int = 80, window: int = 400, hop: int = 160) -> np.ndarray:
    """Whisper's features [bands, frames]: normalised sound, power spectrum, Slaney's mels, log10."""
    x = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
    x = np.pad(x.astype(np.float64), window // 2, mode="reflect")
    rows = np.lib.stride_tricks.sliding_window_view(x, window)[::hop]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(rows * hann, axis=1)) ** 2

    def mel(
        hertz: np.ndarray,
    ) -> np.ndarray:  # linear to 1000 Hz, 27 steps for a factor of 6.4 above
        above = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
        return np.where(hertz < 1000, 3 * hertz / 200, above)

    def hertz(mels: np.ndarray) -> np.ndarray:
        return np.where(mels < 15, 200 * mels / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))

    edges = hertz(np.linspace(0, float(mel(np.array(RATE / 2))), bands + 2))
    at = np.linspace(0, RATE / 2, window // 2 + 1)
    up = (at[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    down = (edges[2:] - at[:, None]) / np.diff(edges)[1:]
    filters = np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))
    log = np.log10(np.maximum(power @ filters, 1e-10)).T[:, :-1]
    return ((np.maximum(log, log.max() - 8) + 4) / 4).astype(np.float32)


def ctc(scores: np.ndarray) -> list[int]:
    """The ids read from scores [steps, classes]: repetitions and blanks (0) left out."""
    best = scores.argmax(-1).reshape(-1).tolist()
    return [b for a, b in zip([0, *best], best, strict=False) if b and b != a]


def _characters(path: Path) -> list[str]:
    import onnx

    model = onnx.load(path, load_external_data=False)
    held = {p.key: p.value for p in model.metadata_props}["character"].splitlines()
    return ["", *held, " "]


def ppocr_rec(path: Path) -> Case:
    names = _characters(path)
    lines = ("Hello 2026 Graph", "Invoice No. 4711", "compile once, run anywhere")
    return [{"x": text_line(t, 48, 3)} for t in lines], lambda out: "".join(
        names[i] for i in ctc(out[0])
    ).strip()


def ddddocr(path: Path) -> Case:
    lines = ("aB3dE", "7xq2", "graph", "K9m4T")
    return [{"input1": text_line(t, 64, 1)} for t in lines], lambda out: ctc(out[0][:, 0])


def page(size: tuple[int, int]) -> np.ndarray:
    """A scan of printed text, [height, width, 3], 0 to 1."""
    from PIL import Image

    (path,) = fetch(["img-page"])
    return np.asarray(Image.open(path).convert("RGB").resize(size[::-1]), np.float32) / 255


def ppocr_det(path: Path) -> Case:
    mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    x = ((page((384, 768)) - mean) / deviation).transpose(2, 0, 1)[None]
    # Whether there is text at each point, but for points that are as good as undecided.
    return [{"x": x}], lambda out: np.where(np.abs(out[0] - 0.3) < 1e-4, -1, out[0] > 0.3).tolist()


def ppocr_cls(path: Path) -> Case:
    line = text_line("upright or not", 48, 3)[..., :192]
    line = np.pad(line, [(0, 0)] * 3 + [(0, 192 - line.shape[-1])], constant_values=1)
    turned = np.ascontiguousarray(line[..., ::-1, ::-1])
    return [{"x": line}, {"x": turned}], lambda out: out[0].argmax(-1).tolist()


def ddddocr_det(path: Path) -> Case:
    x = (page((416, 416)) * 255).transpose(2, 0, 1)[None]
    return [{"images": np.ascontiguousarray(x)}], lambda out: int(out[0][0, :, 4].argmax())


def magika(path: Path) -> Case:
    labels = json.loads((path.parent / "config.min.json").read_text())["target_labels_space"]
    files = [Path(__file__), ROOT / "pyproject.toml", ROOT / "scripts" / "models.json"]
    feeds: list[Feed] = []
    for file in files:
        data = file.read_bytes().strip()
        row = np.full(2048, 256, np.int32)
        head, tail = data[:1024].lstrip(), data[-1024:].rstrip()
        row[: len(head)], row[2048 - len(tail) :] = list(head), list(tail)
        feeds.append({"bytes": row[None]})
    return feeds, lambda out: labels[int(out[0].argmax())]


def _speaks(out: list[np.ndarray]) -> list[bool]:
    return (out[0].reshape(-1) > 0.5).tolist()


def silero(path: Path) -> Case:
    rows = frames(speech(2))
    state = np.zeros((2, len(rows), 128), np.float32)
    if path.parent.name == "silero-vad-sequence":
        zero = np.zeros((1, 1, 128), np.float32)
        return [{"input": rows, "h": zero, "c": zero}], _speaks
    if path.parent.name == "silero-vad-static":
        return [{"input": r[None], "state": state[:, :1]} for r in rows[-24:]], _speaks
    feed = {"input": rows, "state": state}
    return [feed | ({"sr": np.array(RATE)} if path.parent.name == "silero-vad" else {})], _speaks


def smart_turn(path: Path) -> Case:
    sounds = [speech(8), np.roll(speech(8), -4 * RATE), np.roll(speech(8), -RATE // 2)]
    feeds = [{"input_features": log_mel(s)[None]} for s in sounds]
    return feeds, lambda out: bool(out[0].item() > 0.5)


def romanized(name: str, encode: Callable[..., Any], step: Callable[..., Any]) -> str:
    """A name in Latin letters: encoder, then the decoder's likeliest token until it ends."""
    (path,) = fetch(["arabic-romanizer-encoder"])
    tokens = json.loads((path.parent / "vocab.json").read_text())["tokens"]
    number = {t: i for i, t in enumerate(tokens)}
    ids = [number["<UNK_COUNTRY>"], number["<ROLE_UNKNOWN>"], *(number[c] for c in name), 2]
    memory, mask, hidden = encode(
        {"src": np.array([ids]), "src_mask": np.zeros((1, len(ids)), bool)}
    )
    prefix = [1]
    while len(prefix) < 32 and prefix[-1] != 2:
        feed = {"prefix": np.array([prefix]), "memory": memory, "src_mask": mask, "hidden": hidden}
        scores, hidden = step(feed)
        prefix.append(int(scores[0].argmax()))
    return "".join(tokens[i] for i in prefix[1:-1])


def tashkeel(path: Path) -> Case:
    files = sorted(path.parent.glob("*.json"))
    held = json.loads(files[0].read_text()) if files else {}
    number = held.get("char_to_idx", {})
    text = "ذهب الولد الى المدرسة في الصباح"
    ids = [number.get(c, 1) for c in text] if number else list(range(5, 5 + len(text)))
    name = "input_ids" if path.parent.name == "tashkeel-bilstm-int8" else "input"
    return [{name: np.array([ids])}], _best


def _best(out: list[np.ndarray]) -> Any:
    first = out[0]
    return first.tolist() if first.dtype.kind == "i" else first.argmax(-1).tolist()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (x.astype(np.float64).reshape(-1) for x in (a, b))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def minilm(path: Path) -> Case:
    sentences: Sequence[Sequence[int]] = (
        [101, 7592, 2088, 102],  # hello world
        [
            101,
            1996,
            4248,
            2829,
            4419,
            14523,
            2058,
            1996,
            13971,
            3899,
            102,
        ],  # the quick brown fox ...
        [101, 1037, 4937, 4520, 2006, 1996, 13523, 102],  # a cat sits on the mat
    )
    feeds = [
        {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "token_type_ids": np.zeros((1, len(ids)), np.int64),
        }
        for ids in sentences
    ]
    return feeds, lambda out: out[0].mean(1)


REAL: dict[str, Callable[[Path], Case]] = {
    "ddddocr-common": ddddocr,
    "ddddocr-common-old": ddddocr,
    "ddddocr-det": ddddocr_det,
    "magika": magika,
    "minilm-int8": minilm,
    "ppocr-v2-cls": ppocr_cls,
    "ppocr-v4-det": ppocr_det,
    "ppocr-v4-rec": ppocr_rec,
    "silero-vad": silero,
    "silero-vad-half": silero,
    "silero-vad-sequence": silero,
    "silero-vad-static": silero,
    "smart-turn-int8": smart_turn,
    "tashkeel-bilstm-int8": tashkeel,
    "tashkeel-ensemble-int8": tashkeel,
    "tashkeel-rawi-int8": tashkeel,
}
