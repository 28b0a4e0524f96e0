"""What the caller says about input shapes: the grammar of `--shape`, and its merge with a model's.

    x:1x3x224x224                 every size fixed
    ids:Bx[1..512@128]            a named dim, and a range with the size to optimise for
    x:Nx3x48x[32..1024@320%32]    ... that is a multiple of 32
    x:?x3x?x?                     ? leaves what the model declares
    N=1..8@4   N=4                the range (or the size) of a symbol of the model
    scalar:()                     no dims

Sizes are separated by `x`; a name that contains an x is quoted (`ids:1x'max_len'`).  A range
without a name bounds the model's own symbol at that axis, wherever else it appears.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from graphwright.compiler.ir.dims import MAX_EXTENT, DimError, Symbol

MOST = 2**63 - 1  # what a manifest and the kernels hold
ANONYMOUS = "_"  # the name of a range without one
DimSpec: TypeAlias = int | Symbol | None  # None: as the model declares
Declared: TypeAlias = int | str | None  # a size, a symbol's name, or unknown
ShapesLike: TypeAlias = "ShapeSpec | str | Iterable[str] | Mapping[str, str | int | Symbol | Sequence[int | str | Symbol | None]]"

_NAME = r"[A-Za-z_][A-Za-z0-9_.]*"
_UNQUOTED = r"[A-Za-wyzX][A-Za-wyzX0-9_.]*"
_SYMBOL_FORM = re.compile(rf"({_NAME})\s*=(.*)", re.DOTALL)


class ShapeError(ValueError):
    """A shape argument is malformed or does not fit the model."""


@dataclass(frozen=True, slots=True)
class ShapeSpec:
    """`inputs`: input name to one entry a dim; `symbols`: model symbol to size or range."""

    inputs: Mapping[str, tuple[DimSpec, ...]] = field(default_factory=dict)
    symbols: Mapping[str, int | Symbol] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "symbols", MappingProxyType(dict(self.symbols)))

    def __bool__(self) -> bool:
        return bool(self.inputs or self.symbols)

    def __str__(self) -> str:
        shapes = [f"{name}:{dims_text(dims)}" for name, dims in self.inputs.items()]
        return " ".join(shapes + [f"{n}={extent_text(s)}" for n, s in self.symbols.items()])

    @staticmethod
    def make(shapes: ShapesLike | None) -> ShapeSpec:
        """From grammar text, several of them, or {input: dims or text, symbol: size or range}."""
        if shapes is None:
            return ShapeSpec()
        if isinstance(shapes, ShapeSpec):
            return shapes
        if isinstance(shapes, str):
            shapes = [shapes]
        inputs: dict[str, tuple[DimSpec, ...]] = {}
        symbols: dict[str, int | Symbol] = {}
        if isinstance(shapes, Mapping):
            for name, value in shapes.items():
                if isinstance(value, int | Symbol):
                    symbols[name] = value
                elif isinstance(value, str) and re.fullmatch(r"\s*\d+\s*(\.\..*)?", value):
                    symbols[name] = _extent(value, name)
                elif isinstance(value, str):
                    inputs[name] = _Scanner(value, 0).dims()
                else:
                    inputs[name] = tuple(_entry(v) for v in value)
            return ShapeSpec(inputs, symbols)
        for text in shapes:
            found = _SYMBOL_FORM.fullmatch(text.strip())
            if found:
                name, extent = found.groups()
                _add(symbols, name, _extent(extent, name), "symbol")
            else:
                name, dims = _input_form(text)
                _add(inputs, name, dims, "input")
        return ShapeSpec(inputs, symbols)

    @staticmethod
    def from_profiles(
        minimum: Sequence[str] = (), opt: Sequence[str] = (), maximum: Sequence[str] = ()
    ) -> ShapeSpec:
        """From min, opt and max shapes: each `name:1x3x224x224`, several separated by commas."""
        low, best, high = (_profile(texts) for texts in (minimum, opt, maximum))
        if bool(low) != bool(high):
            raise ShapeError("minimum and maximum shapes come together: give both, or neither")
        given = [(k, t) for k, t in (("min", low), ("opt", best), ("max", high)) if t]
        inputs: dict[str, tuple[DimSpec, ...]] = {}
        for name in dict.fromkeys([*low, *best, *high]):
            missing = [kind for kind, table in given if name not in table]
            if missing:
                raise ShapeError(f"input {name!r} has no {missing[0]} shape; give all of them")
            shapes = [table[name] for _, table in given]
            if len({len(s) for s in shapes}) != 1:
                raise ShapeError(f"input {name!r}: the shapes given have different ranks")
            dims: list[DimSpec] = []
            for axis in range(len(shapes[0])):
                sizes = [s[axis] for s in shapes]
                typical = best[name][axis] if best else None
                same = min(sizes) == max(sizes)
                dims.append(
                    sizes[0] if same else _symbol(ANONYMOUS, sizes[0], sizes[-1], typical, 1)
                )
            inputs[name] = tuple(dims)
        return ShapeSpec(inputs)

    def merged(self, other: ShapeSpec) -> ShapeSpec:
        """Both together.  Raises ShapeError where both speak of one input or symbol."""
        inputs, symbols = dict(self.inputs), dict(self.symbols)
        for name, dims in other.inputs.items():
            _add(inputs, name, dims, "input")
        for name, extent in other.symbols.items():
            _add(symbols, name, extent, "symbol")
        return ShapeSpec(inputs, symbols)


def _add(table: dict[str, object] | dict[str, int | Symbol] | dict[str, tuple[DimSpec, ...]],
         name: str, value: object, what: str) -> None:  # fmt: skip
    if name in table:
        raise ShapeError(f"{what} {name!r} is given twice")
    table[name] = value  # type: ignore[assignment]


def dims_text(dims: Sequence[DimSpec]) -> str:
    return "x".join("?" if d is None else dim_text(d) for d in dims) or "()"


def dim_text(dim: int | Symbol) -> str:
    if isinstance(dim, int):
        return str(dim)
    name = "" if dim.name == ANONYMOUS else f"'{dim.name}'" if "x" in dim.name else dim.name
    extent = extent_text(dim)
    return name if extent == f"0..{MAX_EXTENT}" and name else f"{name}[{extent}]"


def extent_text(extent: int | Symbol) -> str:
    if isinstance(extent, int):
        return str(extent)
    opt = "" if extent.opt is None else f"@{extent.opt}"
    multiple = "" if extent.multiple_of == 1 else f"%{extent.multiple_of}"
    return f"{extent.min}..{extent.max}{opt}{multiple}"


def _entry(value: int | str | Symbol | None) -> DimSpec:
    if isinstance(value, str):
        dims = _Scanner(value, 0).dims()
        if len(dims) != 1:
            raise ShapeError(f"{value!r} is not one dim; give one entry a dim")
        return dims[0]
    return value


def _size(digits: str) -> int:
    if len(digits) > 19 or int(digits) > MOST:
        raise ShapeError(f"the size {digits[:30]} is beyond {MOST}, the most that an axis can have")
    return int(digits)


def _symbol(name: str, low: int, high: int, opt: int | None, multiple: int) -> Symbol:
    if high < low:
        raise ShapeError(f"the range {low}..{high} is empty; the smaller size comes first")
    if opt is not None and (not low <= opt <= high or opt % multiple):
        raise ShapeError(f"the size to optimise for, {opt}, is not in {low}..{high}"
                         + (f" or no multiple of {multiple}" if multiple > 1 else ""))  # fmt: skip
    if low % multiple or high % multiple:
        raise ShapeError(
            f"the range {low}..{high} must begin and end with a multiple of {multiple}"
        )
    try:
        return Symbol(name, low, high, multiple, opt)
    except DimError as error:
        raise ShapeError(str(error)) from None


_EXTENT = re.compile(r"\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?(?:@\s*(\d+)\s*)?(?:%\s*(\d+)\s*)?")


def _extent(text: str, name: str) -> int | Symbol:
    found = _EXTENT.fullmatch(text)
    if not found:
        raise ShapeError(f"{name}={text}: want a size (4) or a range (1..8, 1..8@4, 32..1024%32)")
    low, high, opt, multiple = (_size(g) if g else None for g in found.groups())
    assert low is not None
    if high is None:
        if opt is not None or multiple is not None:
            raise ShapeError(f"{name}={text}: @ and % belong to a range such as 1..8@4")
        return low
    return _symbol(name, low, high, opt, multiple or 1)


def _input_form(text: str) -> tuple[str, tuple[DimSpec, ...]]:
    name, colon, _ = text.rpartition(":")
    if not colon or not name:
        raise ShapeError(
            f"{text!r}: want INPUT:DIMS such as x:1x3x224x224, or SYMBOL=RANGE such as N=1..8"
        )
    return name.strip().strip("'\""), _Scanner(text, len(name) + 1).dims()


def _profile(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    table: dict[str, tuple[int, ...]] = {}
    for text in (part for t in texts for part in t.split(",") if part.strip()):
        name, dims = _input_form(text.strip())
        sizes = [d for d in dims if isinstance(d, int)]
        if len(sizes) != len(dims):
            raise ShapeError(f"{text!r}: a minimum, optimum or maximum shape has fixed sizes only")
        if name in table:
            raise ShapeError(f"input {name!r} is given twice")
        table[name] = tuple(sizes)
    return table


class _Scanner:
    """Reads dims from `text` at `position`; errors name the column."""

    def __init__(self, text: str, position: int) -> None:
        self.text, self.position = text, position

    def fail(self, expected: str) -> ShapeError:
        rest = self.text[self.position :]
        got = repr(rest[0]) if rest else "the end"
        return ShapeError(
            f"{self.text!r}, column {self.position + 1}: want {expected}, got {got}\n"
            f"  {self.text}\n  {' ' * self.position}^"
        )

    def match(self, pattern: str) -> str | None:
        found = re.compile(rf"\s*({pattern})").match(self.text, self.position)
        if not found:
            return None
        self.position = found.end()
        return found.group(1)

    def number(self, what: str) -> int:
        digits = self.match(r"\d+")
        if digits is None:
            raise self.fail(what)
        return _size(digits)

    def dims(self) -> tuple[DimSpec, ...]:
        if self.match(r"\(\)"):
            dims: list[DimSpec] = []
        else:
            dims = [self.dim()]
            while self.match("[x,]"):
                dims.append(self.dim())
        if self.text[self.position :].strip():
            raise self.fail("x and another dim, or the end (a name with an x is quoted)")
        return tuple(dims)

    def dim(self) -> DimSpec:
        if self.match(r"\?") or self.match(r"-1"):
            return None
        digits = self.match(r"\d+")
        if digits is not None:
            if self.text[self.position : self.position + 2] == "..":
                raise self.fail("brackets around a range, as in [1..512]")
            return _size(digits)
        quoted = self.match(r"'[^']*'|\"[^\"]*\"")
        name = quoted[1:-1] if quoted else self.match(_UNQUOTED)
        start = self.position
        if self.match(r"\["):
            low = self.number("the smallest size")
            if not self.match(r"\.\."):
                raise self.fail("'..' and the largest size")
            high = self.number("the largest size")
            opt = self.number("the size to optimise for") if self.match("@") else None
            multiple = self.number("a divisor") if self.match("%") else 1
            if not self.match(r"\]"):
                raise self.fail("']'")
            try:
                return _symbol(name or ANONYMOUS, low, high, opt, multiple)
            except ShapeError as error:
                raise ShapeError(f"{self.text!r}, column {start + 1}: {error}") from None
        if name is None:
            raise self.fail(
                "a size, a name (quoted if it has an x), a range such as [1..512@128], or ?"
            )
        try:
            return Symbol(name)
        except DimError as error:
            raise ShapeError(f"{self.text!r}, column {start + 1}: {error}") from None
