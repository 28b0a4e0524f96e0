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
from graphwright.runtime.expressions import MAX_INT, FieldError, check_expression
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
    Move,
    Plan,
    Pointer,
    SymbolSpec,
    TensorSpec,
    Variant,
    WeightSpec,
)

T = TypeVar("T")
MAX_RANK = 32
# Long (numpy) names; types below 8 bits are packed along the last axis.
DTYPE_BITS = {
    "bool": 8, "int2": 2, "uint2": 2, "float4_e2m1fn": 4, "float8_e8m0fnu": 8, "int4": 4,
    "uint4": 4, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16,
    "int32": 32, "uint32": 32, "int64": 64, "uint64": 64, "float16": 16, "bfloat16": 16,
    "float32": 32, "float64": 64, "complex64": 64, "complex128": 128, "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8,
}  # fmt: skip
RELATIONS = ("==", "!=", "<", "<=", ">", ">=", "broadcast")
_LAUNCH_KINDS = ("kernel", "branch", "jump", "host", "loop", "next", "bind", "check")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SYMBOL_IN_BINARY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Fields:
    """One JSON object: each field is taken once, by name, with its type checked."""

    def __init__(self, value: Any, lenient: bool) -> None:
        if not isinstance(value, dict):
            raise FieldError(f"want an object, got {type(value).__name__}")
        self._left: dict[str, Any] = value  # taken apart; nobody else has it
        self._lenient = lenient

    def take(self, name: str, parse: Callable[[Any], T], default: Any = ...) -> T:
        value = self._left.pop(name, default)
        if value is ...:
            raise FieldError(f"the field {name!r} is missing")
        try:
            return parse(value)
        except FieldError as error:
            raise error.within(name) from None

    def integer(self, name: str, low: int, high: int, default: Any = ...) -> int:
        value = self._left.pop(name, default)
        if type(value) is int and low <= value <= high:
            return value
        if value is ...:
            raise FieldError(f"the field {name!r} is missing")
        try:
            return _integer(value, low, high)
        except FieldError as error:
            raise error.within(name) from None

    def text(self, name: str, default: Any = ...) -> str:
        return self.take(name, _text, default)

    def items(
        self, name: str, parse: Callable[[Any], T], default: Any = ..., most: int = 1 << 20
    ) -> tuple[T, ...]:
        if default == () and name not in self._left:
            return ()
        return self.take(name, lambda value: _items(value, parse, most), default)

    def mapping(self, name: str, parse: Callable[[Any], T]) -> dict[str, T]:
        return self.take(name, lambda value: _mapping(value, parse), {})

    def close(self) -> None:
        if self._left and not self._lenient:
            raise FieldError(f"unknown field {next(iter(self._left))!r}")


def _items(value: Any, parse: Callable[[Any], T], most: int) -> tuple[T, ...]:
    if not isinstance(value, list | tuple):
        raise FieldError(f"want a list, got {type(value).__name__}")
    if len(value) > most:
        raise FieldError(f"{len(value)} items, at most {most}")
    out: list[T] = []
    try:
        for item in value:
            out.append(parse(item))
    except FieldError as error:
        raise error.within(len(out)) from None
    return tuple(out)


def _mapping(value: Any, parse: Callable[[Any], T]) -> dict[str, T]:
    if not isinstance(value, dict):
        raise FieldError(f"want an object, got {type(value).__name__}")
    out: dict[str, T] = {}
    for key, item in value.items():
        try:
            out[key] = parse(item)
        except FieldError as error:
            raise error.within(f"[{key!r}]") from None
    return out


def _integer(value: Any, low: int, high: int) -> int:
    if type(value) is not int:
        raise FieldError(f"want an int, got {type(value).__name__}")
    if not low <= value <= high:
        raise FieldError(f"{value} is not in {low}..{high}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FieldError(f"want a string, got {type(value).__name__}")
    return value


def _dtype(value: Any) -> str:
    if _text(value) not in DTYPE_BITS:
        raise FieldError(f"unknown element type {value!r}")
    return value


def _choice(value: Any, choices: Collection[str]) -> Any:
    if _text(value) not in choices:
        raise FieldError(f"{value!r} is none of {', '.join(choices)}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldError(f"{value!r} is neither true nor false")
    return value


def _count(value: Any) -> int:
    return _integer(value, 0, MAX_INT)


class _Reader:
    """Parses the parts; knows the symbols and how many inputs, outputs and weights there are."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.symbols: tuple[str, ...] = ()
        self.free: set[str] = set()  # bound in mid-run
        self.counts: dict[str, int] = {}
        self.kernels = 0

    def fields(self, value: Any) -> Fields:
        return Fields(value, self.lenient)

    def expression(self, value: Any) -> Expression:
        if type(value) is int and -MAX_INT <= value <= MAX_INT:
            return value
        return check_expression(value, self.symbols)

    def bound_by(self, value: Any) -> tuple[int, int] | None:
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise FieldError("want [input, axis] or null")
        return _integer(value[0], 0, 1 << 20), _integer(value[1], 0, MAX_RANK - 1)

    def symbol(self, value: Any) -> SymbolSpec:
        f = self.fields(value)
        name = f.text("name")
        if not _IDENTIFIER.fullmatch(name):
            raise FieldError(f"{name!r} is not an identifier").within("name")
        low = f.integer("min", 0, MAX_INT)
        high = f.integer("max", low, MAX_INT)
        multiple_of = f.integer("multiple_of", 1, MAX_INT)
        opt = f.integer("opt", 0, MAX_INT)
        bound_by = f.take("bound_by", self.bound_by)
        f.close()
        return SymbolSpec(name, low, high, multiple_of, opt, bound_by)

    def extent(self, value: Any) -> Expression:
        if isinstance(value, int) and value < 0:
            raise FieldError(f"{value} is negative")
        return self.expression(value)

    def tensor(self, value: Any) -> TensorSpec:
        f = self.fields(value)
        name, dtype = f.text("name"), f.take("dtype", _dtype)
        shape = f.items("shape", self.extent, most=MAX_RANK)
        default = f.take("default", lambda v: None if v is None else _count(v), None)
        in_place = f.take("in_place", lambda v: None if v is None else _count(v), None)
        f.close()
        return TensorSpec(name, dtype, shape, default, in_place)

    def constraint(self, value: Any) -> ConstraintSpec:
        f = self.fields(value)
        left = f.take("left", self.expression)
        relation = f.take("relation", lambda v: _choice(v, RELATIONS))
        right, reason = f.take("right", self.expression), f.text("reason")
        f.close()
        return ConstraintSpec(left, relation, right, reason)

    def weight(self, value: Any) -> WeightSpec:
        f = self.fields(value)
        name, dtype = f.text("name"), f.take("dtype", _dtype)
        shape, recipe = f.items("shape", _count, most=MAX_RANK), f.text("recipe", "")
        f.close()
        return WeightSpec(name, dtype, shape, recipe)

    def pointer(self, value: Any) -> Pointer:
        if not isinstance(value, list) or not 2 <= len(value) <= 3:
            raise FieldError("want [space, index] or [space, index, offset]")
        space, index = value[0], value[1]
        count = self.counts.get(space) if isinstance(space, str) else None
        if count is None:
            raise FieldError(f"{space!r} is none of {', '.join(self.counts)}").within(0)
        if type(index) is not int or not 0 <= index < count:
            raise FieldError(f"there is no {space} {index!r}, only {count}").within(1)
        return Pointer(space, index, self.expression(value[2]) if len(value) == 3 else 0)  # type: ignore[arg-type]

    def buffer(self, value: Any) -> Buffer:
        f = self.fields(value)
        size, after = f.take("size", self.expression), f.items("after", _count, ())
        values = f.items("values", _text, ())
        first, last = f.integer("first", 0, MAX_INT, 0), f.integer("last", 0, MAX_INT, 0)
        f.close()
        return Buffer(size, after, values, first, last)

    def plan(self, value: Any) -> Plan:
        f = self.fields(value)
        buffers = f.items("buffers", self.buffer, ())
        for i, b in enumerate(buffers):
            if any(j >= i for j in b.after):
                error = FieldError("names a buffer that does not come before")
                raise error.within("after").within(i).within("buffers")
        alignment = f.integer("alignment", 1, 1 << 21, 64)
        if alignment & (alignment - 1):
            raise FieldError(f"{alignment} is no power of two").within("alignment")
        bounds, sizes = f.mapping("lower_bounds", _count), f.mapping("sizes", _count)
        f.close()
        return Plan(buffers, alignment, bounds, sizes)

    def kernel(self, value: Any) -> Kernel:
        f = self.fields(value)
        name = f.text("name")
        if not _SYMBOL_IN_BINARY.fullmatch(name):
            raise FieldError(f"{name[:80]!r} is not a symbol name").within("name")
        kernel = Kernel(
            name,
            f.text("source"),
            f.text("summary", ""),
            f.text("binary", ""),
            f.integer("threads", 0, 1 << 16, 0),
            f.integer("shared_bytes", 0, 1 << 30, 0),
            f.integer("registers", 0, 1 << 16, 0),
            f.items("parameters", _text, ()),
            f.take("waits", _flag, False),
        )
        f.close()
        return kernel

    def launch(self, value: Any) -> Launch:
        f = self.fields(value)
        launch = Launch(
            f.take("kind", lambda v: _choice(v, _LAUNCH_KINDS), "kernel"),
            f.integer("kernel", 0, max(self.kernels - 1, 0), 0),
            f.items("pointers", self.pointer, ()),
            f.items("scalars", self.expression, ()),
            f.items("grid", self.expression, (), 3),
            f.integer("jump", -(1 << 31), (1 << 31) - 1, 0),
            f.items("writes", _count, ()),
            f.items("ops", _count, ()),
            f.items("origins", _text, ()),
            f.text("reason", ""),
            f.items("symbols", self.free_symbol, ()),
            f.items("moves", self.move, ()),
            f.items("checks", self.constraint, ()),
        )
        f.close()
        if launch.kind == "kernel" and not self.kernels:
            raise FieldError("the variant has no kernels").within("kernel")
        want = {"branch": (1, "its condition"), "loop": (3, "counter, trip count and condition"),
                "next": (1, "the counter")}.get(launch.kind)  # fmt: skip
        if want is not None and len(launch.pointers) != want[0]:
            raise FieldError(f"a {launch.kind} has {want[0]}: {want[1]}").within("pointers")
        count = len(launch.pointers)
        if launch.writes and max(launch.writes) >= count:
            raise FieldError("names a pointer that is not there").within("writes")
        if any(max(m.source, m.target) >= count for m in launch.moves):
            raise FieldError("names a pointer that is not there").within("moves")
        if launch.kind == "bind":
            sizes = launch.scalars or launch.pointers
            if not launch.symbols or len(sizes) < len(launch.symbols):
                raise FieldError("want some, and a size for each").within("symbols")
        return launch

    def free_symbol(self, value: Any) -> str:
        if _text(value) not in self.free:
            raise FieldError(f"{value!r} is no symbol that a launch binds")
        return value

    def move(self, value: Any) -> Move:
        f = self.fields(value)
        move = Move(
            f.take("source", _count), f.take("target", _count), f.take("bytes", self.extent)
        )
        f.close()
        return move

    def variant(self, value: Any) -> Variant:
        f = self.fields(value)
        target, library = f.text("target"), f.text("library")
        kernels, plan = f.items("kernels", self.kernel), f.take("plan", self.plan)
        self.counts["arena"], self.kernels = len(plan.buffers), len(kernels)
        launches = f.items("launches", self.launch)
        for i, step in enumerate(launches):
            to = i + 1 + step.jump
            if not 0 <= to <= len(launches):
                raise FieldError("leaves the program").within("jump").within(i).within("launches")
            goes_back = step.jump < 0 and launches[to].kind == "loop"
            if step.jump < 0 if step.kind != "next" else not goes_back:
                what = "only a next launch goes back, to a loop launch"
                raise FieldError(what).within("jump").within(i).within("launches")
        needs = f.items("needs", _text, ())
        precision, capture = f.mapping("precision", _count), f.text("capture", "")
        macs = f.mapping("multiply_accumulates", self.expression)
        f.close()
        return Variant(target, library, kernels, launches, plan, needs, precision, macs, capture)

    def file(self, value: Any) -> Mapping[str, Any]:
        f = self.fields(value)
        digest = f.text("sha256")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise FieldError("want 64 lower-case hex digits").within("sha256")
        entry: dict[str, Any] = {"sha256": digest, "bytes": f.integer("bytes", 0, MAX_INT)}
        chunk = f.integer("chunk", 0, MAX_INT, 0)
        crc32 = f.items("crc32", lambda v: _integer(v, 0, 0xFFFFFFFF), ())
        if chunk:
            if len(crc32) != -(-entry["bytes"] // chunk):
                raise FieldError("want one value per chunk").within("crc32")
            entry |= {"chunk": chunk, "crc32": crc32}
        f.close()
        return entry

    def manifest(self, f: Fields, format: tuple[int, int]) -> Manifest:
        symbols = f.items("symbols", self.symbol, most=4096)
        self.symbols = tuple(s.name for s in symbols)
        self.free = {s.name for s in symbols if s.bound_by is None}
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
    for t in manifest.outputs:
        home = None if t.in_place is None else manifest.inputs[t.in_place : t.in_place + 1]
        if home is not None and [(i.dtype, i.shape) for i in home] != [(t.dtype, t.shape)]:
            raise ArtifactError(
                f"manifest: outputs: {t.name!r} cannot lie in input {t.in_place}, which is not its like"
            )
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
    if not isinstance(raw, dict):
        raise ArtifactError(f"manifest: want an object, got {type(raw).__name__}")
    format = raw.pop("format", None)
    if not isinstance(format, list) or len(format) != 2 or any(type(n) is not int for n in format):
        raise ArtifactError("manifest: format: want [major, minor]")
    major, minor = format
    if major != FORMAT_MAJOR:
        raise ArtifactError(
            f"the artifact has format {major}.{minor}, this runtime reads {FORMAT_MAJOR}.x: "
            f"{'upgrade graphwright' if major > FORMAT_MAJOR else 'compile the model again'}"
        )
    f = Fields(raw, lenient=minor > FORMAT_MINOR)
    try:
        abi = f.integer("kernel_abi", 0, 1 << 31)
        if abi != KERNEL_ABI:
            raise ArtifactError(
                f"the artifact's kernels have ABI {abi}, this runtime calls ABI {KERNEL_ABI}: "
                "compile the model again"
            )
        return _Reader(minor > FORMAT_MINOR).manifest(f, (major, minor))
    except FieldError as error:
        raise ArtifactError(str(error) if error.path else f"manifest: {error}") from None
