"""Reads `manifest.json`: everything is checked, so that the rest of the runtime can rely on it.

Raises ArtifactError naming the field.  A field that this version does not know is an error, except
in a manifest of a newer minor format version, where it is an addition that may be ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from graphwright.errors import ArtifactError
from graphwright.runtime.expressions import MAX_INT, check_expression
from graphwright.runtime.manifest import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    KERNEL_ABI,
    Buffer,
    ConstraintSpec,
    Expression,
    Kernel,
    Launch,
    Manifest,
    Plan,
    Pointer,
    SymbolSpec,
    TensorSpec,
    Variant,
    WeightSpec,
)

T = TypeVar("T")
MAX_RANK = 32
# Long (numpy) names; see docs/ir.md for the packed 4-bit types.
DTYPE_BITS = {
    "bool": 8, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16,
    "int32": 32, "uint32": 32, "int64": 64, "uint64": 64, "float16": 16, "bfloat16": 16,
    "float32": 32, "float64": 64, "complex64": 64, "complex128": 128, "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8,
}  # fmt: skip
RELATIONS = ("==", "!=", "<", "<=", ">", ">=", "broadcast")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SYMBOL_IN_BINARY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Fields:
    """One JSON object: each field is taken once, by name, with its type checked."""

    def __init__(self, value: Any, where: str, lenient: bool) -> None:
        if not isinstance(value, dict):
            raise ArtifactError(f"manifest: {where}: want an object, got {type(value).__name__}")
        self._left: dict[str, Any] = dict(value)
        self.where, self.lenient = where, lenient

    def take(self, name: str, default: Any = ...) -> Any:
        if name in self._left:
            return self._left.pop(name)
        if default is ...:
            raise ArtifactError(f"manifest: {self.where}: the field {name!r} is missing")
        return default

    def integer(self, name: str, low: int, high: int, default: Any = ...) -> int:
        return _integer(self.take(name, default), low, high, f"{self.where}.{name}")

    def text(self, name: str, default: Any = ...) -> str:
        return _text(self.take(name, default), f"{self.where}.{name}")

    def items(
        self, name: str, parse: Callable[[Any, str], T], default: Any = ..., most: int = 1 << 20
    ) -> tuple[T, ...]:
        value, where = self.take(name, default), f"{self.where}.{name}"
        if not isinstance(value, list | tuple):
            raise ArtifactError(f"manifest: {where}: want a list, got {type(value).__name__}")
        if len(value) > most:
            raise ArtifactError(f"manifest: {where}: {len(value)} items, at most {most}")
        return tuple(parse(v, f"{where}[{i}]") for i, v in enumerate(value))

    def mapping(self, name: str, parse: Callable[[Any, str], T]) -> dict[str, T]:
        value, where = self.take(name, {}), f"{self.where}.{name}"
        if not isinstance(value, dict):
            raise ArtifactError(f"manifest: {where}: want an object, got {type(value).__name__}")
        return {k: parse(v, f"{where}[{k!r}]") for k, v in value.items()}

    def close(self) -> None:
        if self._left and not self.lenient:
            raise ArtifactError(f"manifest: {self.where}: unknown field {next(iter(self._left))!r}")


def _integer(value: Any, low: int, high: int, where: str) -> int:
    if type(value) is not int:
        raise ArtifactError(f"manifest: {where}: want an int, got {type(value).__name__}")
    if not low <= value <= high:
        raise ArtifactError(f"manifest: {where}: {value} is not in {low}..{high}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ArtifactError(f"manifest: {where}: want a string, got {type(value).__name__}")
    return value


def _dtype(value: Any, where: str) -> str:
    if _text(value, where) not in DTYPE_BITS:
        raise ArtifactError(f"manifest: {where}: unknown element type {value!r}")
    return value


def _choice(value: Any, choices: Collection[str], where: str) -> Any:
    if _text(value, where) not in choices:
        raise ArtifactError(f"manifest: {where}: {value!r} is none of {', '.join(choices)}")
    return value


def _count(value: Any, where: str) -> int:
    return _integer(value, 0, MAX_INT, where)


class _Reader:
    """Parses the parts; knows the symbols and how many inputs, outputs and weights there are."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.symbols: tuple[str, ...] = ()
        self.counts: dict[str, int] = {}

    def fields(self, value: Any, where: str) -> Fields:
        return Fields(value, where, self.lenient)

    def expression(self, value: Any, where: str) -> Expression:
        return check_expression(value, self.symbols, where)

    def symbol(self, value: Any, where: str) -> SymbolSpec:
        f = self.fields(value, where)
        name = f.text("name")
        if not _IDENTIFIER.fullmatch(name):
            raise ArtifactError(f"manifest: {where}.name: {name!r} is not an identifier")
        low = f.integer("min", 0, MAX_INT)
        high = f.integer("max", low, MAX_INT)
        multiple_of = f.integer("multiple_of", 1, MAX_INT)
        opt = f.integer("opt", 0, MAX_INT)
        bound_by = f.take("bound_by")
        if bound_by is not None:
            if not isinstance(bound_by, list) or len(bound_by) != 2:
                raise ArtifactError(f"manifest: {where}.bound_by: want [input, axis] or null")
            bound_by = (
                _integer(bound_by[0], 0, 1 << 20, f"{where}.bound_by[0]"),
                _integer(bound_by[1], 0, MAX_RANK - 1, f"{where}.bound_by[1]"),
            )
        f.close()
        return SymbolSpec(name, low, high, multiple_of, opt, bound_by)

    def tensor(self, value: Any, where: str) -> TensorSpec:
        f = self.fields(value, where)
        name, dtype = f.text("name"), _dtype(f.take("dtype"), f"{where}.dtype")
        shape = f.items("shape", self.expression, most=MAX_RANK)
        default = f.take("default", None)
        if default is not None:
            _integer(default, 0, (1 << 31) - 1, f"{where}.default")
        f.close()
        for axis, extent in enumerate(shape):
            if isinstance(extent, int) and extent < 0:
                raise ArtifactError(f"manifest: {where}.shape[{axis}]: {extent} is negative")
        return TensorSpec(name, dtype, shape, default)

    def constraint(self, value: Any, where: str) -> ConstraintSpec:
        f = self.fields(value, where)
        left = self.expression(f.take("left"), f"{where}.left")
        relation = _choice(f.take("relation"), RELATIONS, f"{where}.relation")
        right = self.expression(f.take("right"), f"{where}.right")
        reason = f.text("reason")
        f.close()
        return ConstraintSpec(left, relation, right, reason)

    def weight(self, value: Any, where: str) -> WeightSpec:
        f = self.fields(value, where)
        name, dtype = f.text("name"), _dtype(f.take("dtype"), f"{where}.dtype")
        shape = f.items("shape", _count, most=MAX_RANK)
        recipe = f.text("recipe", "")
        f.close()
        return WeightSpec(name, dtype, shape, recipe)

    def pointer(self, value: Any, where: str) -> Pointer:
        if not isinstance(value, list) or not 2 <= len(value) <= 3:
            raise ArtifactError(f"manifest: {where}: want [space, index] or [space, index, offset]")
        space = _choice(value[0], self.counts, f"{where}[0]")
        count = self.counts[space]
        if not count:
            raise ArtifactError(f"manifest: {where}: there is no {space} to point to")
        index = _integer(value[1], 0, count - 1, f"{where}[1]")
        offset = self.expression(value[2], f"{where}[2]") if len(value) == 3 else 0
        return Pointer(space, index, offset)

    def buffer(self, value: Any, where: str) -> Buffer:
        f = self.fields(value, where)
        size = self.expression(f.take("size"), f"{where}.size")
        after = f.items("after", _count, ())
        values = f.items("values", _text, ())
        first, last = f.integer("first", 0, MAX_INT, 0), f.integer("last", 0, MAX_INT, 0)
        f.close()
        return Buffer(size, after, values, first, last)

    def plan(self, value: Any, where: str) -> Plan:
        f = self.fields(value, where)
        buffers = f.items("buffers", self.buffer, ())
        for i, b in enumerate(buffers):
            if any(j >= i for j in b.after):
                raise ArtifactError(
                    f"manifest: {where}.buffers[{i}].after: names a buffer that does not come before"
                )
        alignment = f.integer("alignment", 1, 1 << 21, 64)
        if alignment & (alignment - 1):
            raise ArtifactError(f"manifest: {where}.alignment: {alignment} is no power of two")
        bounds, sizes = f.mapping("lower_bounds", _count), f.mapping("sizes", _count)
        f.close()
        return Plan(buffers, alignment, bounds, sizes)

    def kernel(self, value: Any, where: str) -> Kernel:
        f = self.fields(value, where)
        name = f.text("name")
        if not _SYMBOL_IN_BINARY.fullmatch(name):
            raise ArtifactError(f"manifest: {where}.name: {name[:80]!r} is not a symbol name")
        kernel = Kernel(
            name,
            f.text("source"),
            f.text("summary", ""),
            f.text("binary", ""),
            f.integer("threads", 0, 1 << 16, 0),
            f.integer("shared_bytes", 0, 1 << 30, 0),
            f.integer("registers", 0, 1 << 16, 0),
            f.items("parameters", _text, ()),
        )
        f.close()
        return kernel

    def launch(self, value: Any, where: str) -> Launch:
        f = self.fields(value, where)
        kind = _choice(f.take("kind", "kernel"), ("kernel", "branch", "jump", "host"), where)
        launch = Launch(
            kind,
            f.integer("kernel", 0, max(self.counts["kernel"] - 1, 0), 0),
            f.items("pointers", self.pointer, ()),
            f.items("scalars", self.expression, ()),
            f.items("grid", self.expression, (), 3),
            f.integer("jump", 0, (1 << 31) - 1, 0),
            f.items("writes", _count, ()),
            f.items("ops", _count, ()),
            f.items("origins", _text, ()),
            f.text("reason", ""),
        )
        f.close()
        if launch.kind == "kernel" and not self.counts["kernel"]:
            raise ArtifactError(f"manifest: {where}.kernel: the variant has no kernels")
        if launch.kind == "branch" and len(launch.pointers) != 1:
            raise ArtifactError(f"manifest: {where}.pointers: a branch has one, its condition")
        if any(w >= len(launch.pointers) for w in launch.writes):
            raise ArtifactError(f"manifest: {where}.writes: names a pointer that is not there")
        return launch

    def variant(self, value: Any, where: str) -> Variant:
        f = self.fields(value, where)
        target, library = f.text("target"), f.text("library")
        kernels = f.items("kernels", self.kernel)
        plan = self.plan(f.take("plan"), f"{where}.plan")
        self.counts |= {"arena": len(plan.buffers), "kernel": len(kernels)}
        spaces = self.counts
        self.counts = {k: v for k, v in spaces.items() if k != "state"}
        launches = f.items("launches", self.launch)
        for i, step in enumerate(launches):
            if i + 1 + step.jump > len(launches):
                raise ArtifactError(f"manifest: {where}.launches[{i}].jump: leaves the program")
        needs = f.items("needs", _text, ())
        precision, capture = f.mapping("precision", _count), f.text("capture", "")
        f.close()
        return Variant(target, library, kernels, launches, plan, needs, precision, capture)

    def file(self, value: Any, where: str) -> Mapping[str, Any]:
        f = self.fields(value, where)
        digest = f.text("sha256")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ArtifactError(f"manifest: {where}.sha256: want 64 lower-case hex digits")
        entry: dict[str, Any] = {"sha256": digest, "bytes": f.integer("bytes", 0, MAX_INT)}
        chunk = f.integer("chunk", 0, MAX_INT, 0)
        crc32 = f.items("crc32", lambda v, w: _integer(v, 0, 0xFFFFFFFF, w), ())
        if chunk:
            if len(crc32) != -(-entry["bytes"] // chunk):
                raise ArtifactError(f"manifest: {where}.crc32: want one value per chunk")
            entry |= {"chunk": chunk, "crc32": crc32}
        f.close()
        return entry

    def manifest(self, f: Fields, format: tuple[int, int]) -> Manifest:
        symbols = f.items("symbols", self.symbol, most=4096)
        self.symbols = tuple(s.name for s in symbols)
        _check_unique(self.symbols, "symbols")
        inputs, outputs = f.items("inputs", self.tensor), f.items("outputs", self.tensor)
        _check_unique([t.name for t in inputs], "inputs")
        _check_unique([t.name for t in outputs], "outputs")
        constraints = f.items("constraints", self.constraint)
        weights = f.items("weights", self.weight)
        _check_unique([w.name for w in weights], "weights")
        self.counts = {"input": len(inputs), "output": len(outputs), "weight": len(weights)}
        variants = f.items("variants", self.variant, most=64)
        files = f.mapping("files", self.file)
        metadata = f.mapping("metadata", _text)
        producer = f.text("producer")
        f.close()
        manifest = Manifest(
            producer, symbols, inputs, outputs, constraints, weights, variants, files, metadata,
            format, KERNEL_ABI,
        )  # fmt: skip
        _check_signature(manifest)
        return manifest


def _check_unique(names: Collection[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArtifactError(f"manifest: {where}: {name!r} is there twice")
        seen.add(name)


def _check_signature(manifest: Manifest) -> None:
    for s in manifest.symbols:
        if s.bound_by is None:
            continue
        index, axis = s.bound_by
        fits = index < len(manifest.inputs) and axis < len(manifest.inputs[index].shape)
        if not fits or manifest.inputs[index].shape[axis] != s.name:
            raise ArtifactError(
                f"manifest: symbols: {s.name} is bound by input {index}, axis {axis}, which is not {s.name}"
            )
    for t in manifest.inputs:
        if t.default is not None and t.default >= len(manifest.weights):
            raise ArtifactError(f"manifest: inputs: the default of {t.name!r} is not a weight")
    for v in manifest.variants:
        for path in (v.library, *(p for k in v.kernels for p in (k.source, k.binary))):
            if path and path not in manifest.files:
                raise ArtifactError(f"manifest: variant {v.target}: {path!r} is not in `files`")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a field is there twice")
    return out


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number here")


def read_manifest(data: bytes) -> Manifest:
    """The manifest from its JSON text.  Raises ArtifactError."""
    try:
        raw = json.loads(
            data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant
        )  # bytes: json detects UTF-8
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"manifest: not valid JSON: {str(error)[:200]}") from None
    f = Fields(raw, "manifest", lenient=False)
    format = f.take("format")
    if not isinstance(format, list) or len(format) != 2 or any(type(n) is not int for n in format):
        raise ArtifactError("manifest: format: want [major, minor]")
    major, minor = format
    if major != FORMAT_MAJOR:
        raise ArtifactError(
            f"the artifact has format {major}.{minor}, this runtime reads {FORMAT_MAJOR}.x: "
            f"{'upgrade graphwright' if major > FORMAT_MAJOR else 'compile the model again'}"
        )
    f.lenient = minor > FORMAT_MINOR
    abi = f.integer("kernel_abi", 0, 1 << 31)
    if abi != KERNEL_ABI:
        raise ArtifactError(
            f"the artifact's kernels have ABI {abi}, this runtime calls ABI {KERNEL_ABI}: "
            "compile the model again"
        )
    return _Reader(f.lenient).manifest(f, (major, minor))
