"""New weights into a compiled artifact: every stored constant is made again from its recipe.

The result has the bits that compiling the model with the new weights would give.  Where that would
give another graph, because a weight's value decided its structure, refitting refuses and says which.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphwright.compiler.codegen.cpp.pack import pack_arrays
from graphwright.compiler.codegen.cpp.packing import PanelShape
from graphwright.compiler.codegen.package import Artifact, WeightData
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Inference, Registry
from graphwright.compiler.ir.parser import parse_attribute, parse_attributes
from graphwright.compiler.ir.printer import print_attribute, print_literal
from graphwright.compiler.ir.types import DTYPES, DType, TensorType
from graphwright.compiler.passes.fold_constants import compacted, folded
from graphwright.compiler.refit_table import MEMBER, digest_of, is_finite
from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.archive import GRAPH, MANIFEST, WEIGHTS
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.weights import locate_weights

_LONG = {d.long_name: d for d in DTYPES.values()}
_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def refit(
    path: str | os.PathLike[str], weights: Mapping[str, Any], *, registry: Registry
) -> Artifact:
    """The artifact at `path` with other weights: arrays by the names that the model gives them.

    Raises InputError that lists every weight that is missing, unknown, of another shape or type, or
    whose value decided the structure; ArtifactError for an artifact that cannot be refitted.
    """
    file = ArtifactFile(path)
    if MEMBER not in file.members:
        raise ArtifactError(f"{path} keeps no recipes ({MEMBER}); compile it anew")
    table = json.loads(file.read(MEMBER))
    given = {name: Literal.dense(np.asarray(a)) for name, a in weights.items()}
    _check(os.fspath(path), table["sources"], given)
    kept = {
        s["name"]: parse_attribute(s["value"], registry=registry)
        for s in table["sources"]
        if s.get("value") and s["name"] not in given
    }
    maker = _Maker(given | kept, _literals(table["literals"]), registry)
    text = _new_graph(file, maker)
    stored: list[WeightData] = []
    for index, (spec, recipe) in enumerate(
        zip(file.manifest.weights, table["weights"], strict=True)
    ):
        if recipe is None:
            start = _weight_start(file, index)
            stored.append(WeightData(spec, lambda at=start, s=spec: _kept(file, at, s)))
        else:
            stored.append(WeightData(spec, lambda r=recipe: maker.stored(r)))
    files = {n: file.read(n) for n in file.members if n not in (MANIFEST, WEIGHTS, GRAPH)}
    files[MEMBER] = _new_table(table, given)
    manifest = replace(file.manifest, weights=(), files={})
    return Artifact(manifest, stored, files, text)


class _Maker:
    """Evaluates recipes over new weights."""

    def __init__(
        self, given: Mapping[str, Literal], literals: Mapping[str, Literal], registry: Registry
    ) -> None:
        self.given, self.literals, self.registry = given, literals, registry

    def stored(self, entry: Mapping[str, Any]) -> np.ndarray:
        """A stored weight as the artifact holds it."""
        inputs = [
            self.literal(parse_attribute(t, registry=self.registry, literals=self.literals))
            for t in entry["inputs"]
        ]
        if "packing" not in entry:
            return np.asarray(inputs[0].array(), order="C")
        parameters = [(str(n), int(v)) for n, v in entry["parameters"]]
        arrays = [x.array() for x in inputs]
        return pack_arrays(entry["packing"], parameters, PanelShape(*entry["form"]), arrays)

    def literal(self, recipe: Recipe | Literal) -> Literal:
        """The value of a recipe."""
        if isinstance(recipe, Literal):
            return recipe
        if recipe.source:
            return compacted(self.given[recipe.source])
        literals = [self.literal(i) for i in recipe.inputs]
        definition = self.registry[recipe.op]
        attributes = definition.complete(dict(recipe.attributes))
        types = [TensorType(x.dtype, x.shape) for x in literals]
        results = list(definition.infer(types, attributes, Inference()))
        return folded(definition, literals, attributes, results)[0]


def _check(path: str, sources: Sequence[Mapping[str, Any]], given: Mapping[str, Literal]) -> None:
    known = {s["name"]: s for s in sources}
    wrong = [
        f"{name}: the artifact was made of no such weight" for name in given if name not in known
    ]
    for name, source in known.items():
        if source.get("unused"):
            continue
        shape, dtype, literal = tuple(source["shape"]), source["dtype"], given.get(name)
        if literal is None:
            if "digest" not in source or source.get("value", "") is None:
                wrong.append(f"{name}: missing, want {dtype}{list(shape)}")
        elif (literal.dtype.long_name, literal.shape) != (dtype, shape):
            wrong.append(
                f"{name}: is {literal.dtype.long_name}{list(literal.shape)}, want "
                f"{dtype}{list(shape)}"
            )
        elif "digest" in source and digest_of(literal) != source["digest"]:
            wrong.append(
                f"{name}: its value decided the structure of the compiled graph (a single number, an "
                "integer, or a weight that the compiler looked into), and the new one differs: "
                "compile anew"
            )
        elif source.get("finite") and not is_finite(literal.array()):
            wrong.append(
                f"{name}: holds NaN or infinity, which the old one did not and the graph may rely "
                "on: compile anew"
            )
    if wrong:
        count = f"{len(wrong)} weight{'s do' if len(wrong) > 1 else ' does'}"
        raise InputError(f"{count} not fit {path}:\n" + "\n".join(f"  - {w}" for w in wrong))


_CONSTANT = re.compile(r"^(\s*)(.* = constant )(?=\{)")


def _new_graph(file: ArtifactFile, maker: _Maker) -> str:
    """The graph's text with the constants that follow from the new weights."""
    if GRAPH not in file.members:
        return ""
    lines = file.read(GRAPH).decode().split("\n")
    outermost = "  "
    for i, line in enumerate(lines):
        found = _CONSTANT.match(line)
        if found is None or "recipe(" not in line:
            continue
        start = found.end()
        attributes, length = parse_attributes(line[start:], registry=maker.registry)
        recipe, old = attributes["recipe"], attributes["value"]
        if not isinstance(recipe, Recipe):
            continue
        if any(name not in maker.given for name in recipe.sources()):
            continue  # of weights that decide the structure, which were left out and are as they were
        new = maker.literal(recipe)
        if (old.is_splat and not _same(old, new)) or (
            found[1] != outermost and not _same(old, new)
        ):
            raise InputError(
                f"{', '.join(recipe.sources())}: its value is part of the compiled kernels (one "
                "number repeated, or a scalar), and the new one differs: compile anew"
            )
        text = f"{{value = {print_literal(new)}, recipe = {print_attribute(recipe)}}}"
        lines[i] = line[:start] + text + line[start + length :]
    return "\n".join(lines)


def _same(old: Literal, new: Literal) -> bool:
    return old.shape == new.shape and digest_of(old) == digest_of(new)


def _new_table(table: dict[str, Any], given: Mapping[str, Literal]) -> bytes:
    """The table of the new artifact: the same, but for what it says of the values."""
    for source in table["sources"]:
        literal = given.get(source["name"])
        if literal is not None and "finite" in source:
            source["finite"] = not literal.dtype.is_float or is_finite(literal.array())
    return (json.dumps(table, separators=(",", ":"), sort_keys=True) + "\n").encode()


def _literals(encoded: Mapping[str, Mapping[str, Any]]) -> dict[str, Literal]:
    found: dict[str, Literal] = {}
    for digest, entry in encoded.items():
        dtype = DTYPES[entry["dtype"]]
        array = np.frombuffer(base64.b64decode(entry["data"]), dtype.numpy)
        found[digest] = Literal.dense(array.reshape(entry["shape"]))
    return found


def _weight_start(file: ArtifactFile, index: int) -> tuple[int, int]:
    entry = file.members[WEIGHTS]
    view = memoryview(file.data)[entry.start : entry.end]
    offset, size = locate_weights(view, file.manifest.weights)[index]
    return entry.start + offset, size


def _kept(file: ArtifactFile, at: tuple[int, int], spec: Any) -> np.ndarray:
    """A weight that no named one is in, as it is stored."""
    start, size = at
    raw = np.frombuffer(memoryview(file.data)[start : start + size], np.uint8)
    dtype: DType = _LONG[spec.dtype]
    return raw if dtype.bits < 8 else raw.view(dtype.numpy).reshape(spec.shape)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, memory-mapped.  Raises InputError for a file that is none."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        base, out = 8 + size, dict[str, np.ndarray]()
        for name, entry in header.items():
            if entry["dtype"] not in _SAFETENSORS:
                raise InputError(f"{path}: {name} has the element type {entry['dtype']}, not known")
            dtype = _LONG[_SAFETENSORS[entry["dtype"]]]
            start, stop = entry["data_offsets"]
            raw = np.frombuffer(memoryview(data)[base + start : base + stop], np.uint8)
            out[name] = raw.view(dtype.numpy).reshape(entry["shape"])
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no safetensors file: {error}") from None
    return out
