"""Published torch weights compiled, and what they are for: similar sentences, a pitch, a face, speech."""

from __future__ import annotations

import re
import sys
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")
safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
Image = pytest.importorskip("PIL.Image", reason="needs pillow")

from torch_published import Crepe, MiniLM, ProposalNet, RefineNet, SileroVad  # noqa: E402

import graphwright as gw  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from fetch_models import FetchError, fetch  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.models]


def path_of(name: str) -> Path:
    try:
        return fetch([name])[0]
    except FetchError as error:
        pytest.skip(str(error))


def loaded(module: torch.nn.Module, name: str) -> torch.nn.Module:
    """The module with its published weights, all of them."""
    path = path_of(name)
    if path.suffix == ".safetensors":
        weights = safetensors.load_file(path)
    else:
        weights = torch.load(path, weights_only=True)
    known = module.state_dict()
    missing = [n for n in known if n not in weights]
    assert not missing
    module.load_state_dict({n: weights[n] for n in known})
    return module.eval().requires_grad_(False)


def apart(got: torch.Tensor, want: torch.Tensor) -> float:
    assert got.shape == want.shape and got.dtype == want.dtype
    return float((got.double() - want.double()).norm() / want.double().norm())


def word_pieces(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Ids of a text in small letters, with those of its ends."""
    ids = [vocabulary["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocabulary:
                    break
            else:
                raise ValueError(f"no word piece begins {word[start:]!r}")
            ids.append(vocabulary[piece])
            start = end
    return [*ids, vocabulary["[SEP]"]]


def padded(lists: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    most = max(map(len, lists))
    ids = torch.tensor([[*ids, *[0] * (most - len(ids))] for ids in lists])
    return ids, torch.tensor([[i < len(ids) for i in range(most)] for ids in lists]).long()


def test_similar_sentences_are_near_with_minilm() -> None:
    module = loaded(MiniLM(), "minilm-torch")
    lines = (path_of("minilm-torch").parent / "vocab.txt").read_text().splitlines()
    vocabulary = {line: i for i, line in enumerate(lines)}
    texts = [
        "A man is eating food.", "Someone has a meal.", "The cheetah runs behind its prey.",
        "A big cat is hunting an antelope.", "The stock market fell sharply today.",
    ]  # fmt: skip
    inputs = padded([word_pieces(t, vocabulary) for t in texts])
    compiled = gw.compile(
        module, inputs, shapes={"ids": "BxS[1..128]", "mask": "BxS"}, target="cpu:native"
    )
    vectors = compiled(*inputs)
    assert apart(vectors, module(*inputs)) < 1e-5
    likeness = vectors @ vectors.T - torch.eye(5)
    assert likeness[0].argmax() == 1 and likeness[1].argmax() == 0
    assert likeness[2].argmax() == 3 and likeness[3].argmax() == 2
    assert likeness[4].max() < 0.3 < likeness[0, 1]
    # Alone and without padding a sentence has the same vector: another batch, another length.
    alone = compiled(*padded([word_pieces(texts[1], vocabulary)]))
    assert apart(alone[0], vectors[1]) < 1e-5


def test_pitches_of_tones_with_crepe() -> None:
    module = loaded(Crepe(), "crepe-tiny")
    tones = torch.tensor([110.0, 261.63, 440.0, 880.0])
    time = torch.arange(1024) / 16000
    # Five harmonics: an instrument rather than a sine.
    frames = sum((2 * torch.pi * tones[:, None] * k * time).sin() / k for k in range(1, 6))
    frames = (frames - frames.mean(1, keepdim=True)) / frames.std(1, keepdim=True)
    compiled = torch.compile(module, backend="graphwright", fullgraph=True)
    with torch.no_grad():
        weights = compiled(frames)
        assert apart(weights, module(frames)) < 1e-5
    cents = 20.0 * weights.argmax(1) + 1997.3794084376191
    found = 10 * 2 ** (cents / 1200)
    assert ((found / tones).log2().abs() * 1200 < 25).all(), found  # a quarter of a semitone


def test_a_face_is_found_with_mtcnn() -> None:
    picture = Image.open(path_of("img-grace-hopper")).convert("RGB")
    propose = loaded(ProposalNet(), "mtcnn-pnet")
    refine = loaded(RefineNet(), "mtcnn-rnet")

    def tensor(image: Image.Image) -> torch.Tensor:
        pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)
        return (torch.from_numpy(pixels.copy())[None] - 127.5) / 128

    scales = [12 / size for size in (150, 180, 220)]  # faces of so many pixels
    # Even sides: torch.export fixes the parity of what a pooling that rounds up halves.
    images = [
        tensor(
            picture.resize((2 * round(picture.width * s / 2), 2 * round(picture.height * s / 2)))
        )
        for s in scales
    ]
    sides = {axis: 2 * torch.export.Dim(f"half{axis}", min=8, max=64) for axis in (2, 3)}
    compiled = gw.compile(
        propose, (images[0],), dynamic_shapes={"image": sides}, target="cpu:native"
    )
    found: list[tuple[float, int, int, int]] = []
    for scale, image in zip(scales, images, strict=True):
        boxes, chances = compiled(image)
        want_boxes, want = propose(image)
        assert apart(boxes, want_boxes) < 1e-5 and apart(chances, want) < 1e-5
        best = int(chances[0, 1].argmax())
        y, x = divmod(best, chances.shape[-1])
        found.append((float(chances[0, 1, y, x]), *(round(v / scale) for v in (2 * x, 2 * y, 12))))
    chance, left, top, size = max(found)
    assert chance > 0.9
    assert 130 < left + size / 2 < 340 and 60 < top + size / 2 < 280  # where her face is
    crops = torch.cat([
        tensor(picture.crop(box).resize((24, 24)))
        for box in [(left, top, left + size, top + size), (380, 20, 500, 140), (10, 450, 130, 570)]
    ])  # fmt: skip
    refined = torch.compile(refine, backend="graphwright", fullgraph=True)
    with torch.no_grad():
        _, chances = refined(crops)
        assert apart(chances, refine(crops)[1]) < 1e-5
    assert chances[0, 1] > 0.7 and (chances[1:, 1] < 0.3).all(), chances


def test_speech_is_heard_with_silero() -> None:
    module = loaded(SileroVad(), "silero-vad-torch")
    path_of("smart-turn-int8")  # which comes with a word spoken
    with wave.open(str(path_of("smart-turn-int8").parent / "ready.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    speech = torch.from_numpy(samples.astype(np.float32) / 32768)
    silence = 1e-4 * torch.randn(8192, generator=torch.Generator().manual_seed(0))
    compiled = gw.compile(module, (torch.zeros(1, 576),), target="cpu:native")

    def chances(model, sound: torch.Tensor) -> torch.Tensor:
        sound = torch.nn.functional.pad(sound, (64, 0))
        starts = range(0, len(sound) - 575, 512)
        return torch.cat([model(sound[None, s : s + 576].contiguous())[0] for s in starts])

    heard = {}
    for name, sound in (("speech", speech), ("silence", silence)):
        compiled.reset_state()
        module.hidden.zero_()
        module.cell.zero_()
        heard[name] = chances(compiled, sound)
        assert apart(heard[name], chances(module, sound)) < 1e-5
        assert apart(torch.from_numpy(compiled.state()["hidden"]), module.hidden) < 1e-5
    assert heard["speech"].max() > 0.9 and (heard["speech"] > 0.5).sum() >= 5, heard["speech"]
    assert heard["silence"].max() < 0.2
