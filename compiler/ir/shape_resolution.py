"""The merge of what the caller says about shapes with what a model declares (see shapes.py)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.shapes import (
    ANONYMOUS,
    Declared,
    DimSpec,
    ShapeError,
    ShapeSpec,
    dim_text,
    dims_text,
    extent_text,
)


def resolve(
    spec: ShapeSpec, declared: Mapping[str, Sequence[Declared] | None]
) -> dict[str, tuple[int | Symbol, ...] | None]:
    """The shape of each declared input; None where neither side knows the rank.

    `declared`: per input its dims: a size (negative: unknown), a symbol's name, or None.  Equal
    names are one symbol.  Raises ShapeError for an unknown input or symbol, another rank, a
    fixed size that the model has otherwise, or contradicting ranges.
    """
    return _Resolution(spec, declared).run()


def _identifier(name: str) -> str:
    clean = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    return clean if re.match(r"[A-Za-z_]", clean) else f"d{clean}"


def _suggest(name: str, known: Iterable[str]) -> str:
    options = sorted(known)
    lower = {o.lower(): o for o in reversed(options)}
    near = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, 1)]
    listed = ", ".join(options) or "none"
    return f"did you mean {near[0]!r}?" if near else f"there are: {listed}"


class _Resolution:
    """One merge of a spec with a model's declared shapes: names stand for unknowns until the end."""

    def __init__(self, spec: ShapeSpec, declared: Mapping[str, Sequence[Declared] | None]) -> None:
        self.spec = spec
        self.declared = declared
        self.bound: dict[str, int | Symbol] = {}  # model symbol -> what it becomes
        self.said_by: dict[str, str] = {}
        self.ranges: dict[str, Symbol] = {}  # a name of the caller's -> its range

    def run(self) -> dict[str, tuple[int | Symbol, ...] | None]:
        for name in self.spec.inputs:
            if name not in self.declared:
                raise ShapeError(f"no input is named {name!r}; {_suggest(name, self.declared)}")
        names = {n: self.names(n, dims) for n, dims in self.declared.items()}
        model_symbols = {d for dims in names.values() for d in dims or () if isinstance(d, str)}
        for name, extent in self.spec.symbols.items():
            callers = {
                d.name for ds in self.spec.inputs.values() for d in ds if isinstance(d, Symbol)
            }
            if name not in model_symbols and name not in callers:
                raise ShapeError(f"no dim is named {name!r}; {_suggest(name, model_symbols)}")
            if name in model_symbols:
                self.bind(name, extent, f"{name}={extent_text(extent)}")
            if isinstance(extent, Symbol):
                self.ranges[name] = extent
        for name, dims in self.spec.inputs.items():
            self.visit(name, dims, names[name])
        return {
            n: None if dims is None else tuple(d if isinstance(d, int) else self.final(d) for d in dims)
            for n, dims in names.items()
        }  # fmt: skip

    def names(self, name: str, dims: Sequence[Declared] | None) -> list[int | str] | None:
        """Declared dims with a name for each unknown one."""
        if dims is None:
            spec = self.spec.inputs.get(name)
            if spec is None:
                return None
            dims = [None] * len(spec)
        fresh = [f"{_identifier(name)}_{axis}" for axis in range(len(dims))]
        out: list[int | str] = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                out.append(dim if dim >= 0 else fresh[axis])
            else:
                out.append(_identifier(dim) if dim and re.search(r"\w", dim) else fresh[axis])
        return out

    def visit(self, name: str, dims: tuple[DimSpec, ...], declared: list[int | str] | None) -> None:
        assert declared is not None
        if len(dims) != len(declared):
            raise ShapeError(
                f"input {name!r} has rank {len(declared)} ({_joined(declared)}), "
                f"the shape given has {len(dims)}: {dims_text(dims)}"
            )
        for axis, (said, has) in enumerate(zip(dims, declared, strict=True)):
            where = f"input {name!r}, axis {axis}"
            if isinstance(said, Symbol) and said.name != ANONYMOUS:
                self.declare(said, where)
            if said is None:
                continue
            if isinstance(has, int):
                if said != has:
                    raise ShapeError(f"{where} is {has} in the model and cannot become "
                                     f"{dim_text(said)}")  # fmt: skip
                continue
            self.bind(has, said, where)

    def declare(self, said: Symbol, where: str) -> None:
        old = self.ranges.get(said.name)
        plain = said == Symbol(said.name)
        if old is None or (not plain and old == Symbol(said.name)):
            self.ranges[said.name] = said
        elif not plain and said != old:
            raise ShapeError(
                f"{where}: {said.name} is {extent_text(said)} here and {extent_text(old)} elsewhere"
            )

    def bind(self, model_symbol: str, said: int | Symbol, where: str) -> None:
        old = self.bound.get(model_symbol)
        if isinstance(said, Symbol) and said.name == ANONYMOUS:
            said = Symbol(model_symbol, said.min, said.max, said.multiple_of, said.opt)
            self.declare(said, where)
        same_name = isinstance(old, Symbol) and isinstance(said, Symbol) and old.name == said.name
        if old is not None and old != said and not same_name:
            raise ShapeError(
                f"{where}: the model's dim {model_symbol} cannot be {dim_text(said)} here and "
                f"{dim_text(old)} in {self.said_by[model_symbol]}"
            )
        self.bound[model_symbol] = said
        self.said_by[model_symbol] = where

    def final(self, model_symbol: str) -> int | Symbol:
        bound = self.bound.get(model_symbol, Symbol(model_symbol))
        if isinstance(bound, int):
            return bound
        size = self.spec.symbols.get(bound.name)
        return size if isinstance(size, int) else self.ranges.get(bound.name, bound)


def _joined(dims: Sequence[int | str]) -> str:
    return "x".join(map(str, dims)) or "()"
