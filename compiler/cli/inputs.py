"""Inputs from the command line: files, literals such as `1x3xf32=0`, random values."""

from __future__ import annotations

import difflib
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.ir.types import DTYPES
from graphwright.errors import InputError

LITERAL = re.compile(r"(?P<dims>\d+(?:x\d+)*)?x?(?P<dtype>[a-z]+\d*[a-z0-9]*)?")
KNOWN_DTYPES = {name: d.numpy for name, d in DTYPES.items()} | {
    d.long_name: d.numpy for d in DTYPES.values()
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An input that a model wants.  `shape`: sizes to use where nothing else is said."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    text: str  # the shape for messages: 1x3xHxW


def make_feed(
    wanted_for: Callable[[Mapping[str, Sequence[int]]], Sequence[Wanted]],
    *,
    literals: Iterable[str] = (),
    archive: Path | None = None,
    random: bool = False,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """{input: array}.  Raises InputError for what cannot be read or does not name an input.

    `wanted_for(shapes of inputs so far)` says what the model wants: sizes that one input settles
    reach the others.  `literals`: `x=@file.npy`, `x=1x3xf32=0`, `x=1x3=random`, `x=1,2,3`.
    `random` fills the inputs that nothing else gives.
    """
    wanted = {w.name: w for w in wanted_for({})}
    feed: dict[str, np.ndarray] = read_archive(archive) if archive is not None else {}
    for name in feed:
        if name not in wanted:
            raise InputError(f"{archive}: {_unknown(name, wanted)}")
    values: dict[str, str] = {}
    for text in literals:
        name = _name_of(text, wanted)
        if name in feed or name in values:
            raise InputError(f"input {name!r} is given twice")
        values[name] = text[len(name) + 1 :]
    missing = [w for w in wanted.values() if w.name not in feed and w.name not in values]
    if missing and not random:
        raise InputError(_ask_for(missing))
    values |= {w.name: "random" for w in missing}
    # Values that say their own shape come first: the others follow it.
    for name in sorted(values, key=lambda n: not _has_shape(values[n])):
        now = {w.name: w for w in wanted_for({n: v.shape for n, v in feed.items()})}
        feed[name] = parse_value(values[name], now[name], seed)
    return {name: feed[name] for name in wanted}


def _has_shape(text: str) -> bool:
    return text.startswith("@") or (text[:1].isdigit() and ("=" in text or "," in text))


def _ask_for(missing: Sequence[Wanted]) -> str:
    lines = [f"  {w.name}  {w.text}  {w.dtype.name}" for w in missing]
    example = " ".join(f"--input {w.name}=@FILE.npy" for w in missing[:2])
    return "\n".join(
        ["no value is given for", *lines, f"give {example}, --inputs FILE.npz, or --random"]
    )


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    return f"no input is named {name!r}; {hint}"


def _name_of(text: str, known: Mapping[str, Wanted]) -> str:
    """The longest input name that the text begins with: names may hold an equals sign."""
    found = [name for name in known if text.startswith(f"{name}=")]
    if found:
        return max(found, key=len)
    name, equals, _ = text.partition("=")
    if not equals:
        raise InputError(f"--input {text!r}: want NAME=@FILE.npy, NAME=1x3xf32=0 or NAME=random")
    raise InputError(f"--input: {_unknown(name, known)}")


def parse_value(text: str, wanted: Wanted, seed: int) -> np.ndarray:
    """One value: `@file.npy`, `1x3xf32=0`, `1x3=random`, `random`, `1,2,3`, `0`."""
    if text.startswith("@"):
        return read_array(Path(text[1:]))
    type_text, equals, value = text.rpartition("=")
    dtype, dims = wanted.dtype, None
    if equals:
        found = LITERAL.fullmatch(type_text)
        if not found or not (found["dims"] or found["dtype"]):
            raise InputError(
                f"input {wanted.name!r}: {type_text!r} is no type; write 1x3x224x224xf32, 1x3 or f32"
            )
        if found["dtype"]:
            if found["dtype"] not in KNOWN_DTYPES:
                raise InputError(f"input {wanted.name!r}: no element type is called "
                                 f"{found['dtype']!r}; there are: {', '.join(DTYPES)}")  # fmt: skip
            dtype = KNOWN_DTYPES[found["dtype"]]
        dims = tuple(int(d) for d in (found["dims"] or "").split("x") if d)
    if value == "random":
        return random_array(dtype, wanted.shape if dims is None else dims, seed, wanted.name)
    try:
        numbers = [_number(v) for v in value.split(",")]
        values = np.array(numbers).astype(dtype)
    except (ValueError, TypeError, OverflowError):
        raise InputError(
            f"input {wanted.name!r}: {value!r} is no value; write @FILE.npy, a number, numbers with "
            "commas, or random"
        ) from None
    if len(numbers) == 1:
        return np.full(wanted.shape if dims is None else dims, values[0], dtype)
    if dims is None:
        dims = (len(numbers),) if len(wanted.shape) == 1 else wanted.shape
    if int(np.prod(dims)) != len(numbers):
        raise InputError(
            f"input {wanted.name!r}: {len(numbers)} values do not fill "
            f"{'x'.join(map(str, dims)) or 'a scalar'}"
        )
    return values.reshape(dims)


def _number(text: str) -> Any:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word, 0)
    except ValueError:
        return float(word)


def random_array(dtype: np.dtype, shape: tuple[int, ...], seed: int, name: str) -> np.ndarray:
    """Standard normal floats, fair bools, integers 0 and 1 (legal as ids, lengths and masks)."""
    rng = np.random.default_rng([seed, *name.encode()])
    if dtype.kind == "b" or dtype.kind in "iu":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def read_array(path: Path) -> np.ndarray:
    """An .npy file.  Raises InputError; never unpickles."""
    value = _load(path, ".npy")
    if not isinstance(value, np.ndarray):
        raise InputError(f"{path} holds several arrays; give it with --inputs")
    return value


def read_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file by name."""
    arrays = _load(path, ".npz")
    if isinstance(arrays, np.ndarray):
        raise InputError(
            f"{path} holds one array without a name; give it with --input NAME=@{path}"
        )
    for name, value in arrays.items():
        if not isinstance(value, np.ndarray):
            raise InputError(f"{path} holds {name!r}, which is no array")
    return arrays


def _load(path: Path, kind: str) -> Any:
    """The array of an .npy file, or what an .npz file holds by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        # numpy takes what it does not know for a pickle, and advises to trust it.
        why = (
            "numpy wrote no such file, or one of Python objects"
            if "allow_pickle" in str(error)
            else str(error)
        )
        raise InputError(f"{path} is no {kind} file: {why}") from None


def sizes_from(spec: ShapeSpec, name: str, rank: int) -> tuple[int | None, ...]:
    """What --shape says of one input's sizes (a range counts as the size it optimises for)."""
    dims = spec.inputs.get(name)
    if dims is None:
        return (None,) * rank
    if len(dims) != rank:
        raise InputError(
            f"--shape: input {name!r} has rank {rank}, the shape given has {len(dims)}"
        )
    return tuple(d.typical if isinstance(d, Symbol) and d.opt else d if isinstance(d, int) else None
                 for d in dims)  # fmt: skip
