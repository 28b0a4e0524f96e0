"""Graph inputs' shapes: dim_params become symbols, options fix, bound or rename them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphwright.compiler.ir.dims import Dim, Symbol, of
from graphwright.errors import InputError
from onnx import TensorShapeProto

from .refusal import Refusal

Entry: TypeAlias = "int | str | Symbol | None"
ShapeOptions: TypeAlias = Mapping[str, Sequence[Entry]]


class SymbolTable:
    """The symbols of one model.  Equal dim_params are one symbol, whatever input they stand in.

    `shapes` maps an input's name to one entry per axis: an int fixes the size, a Symbol names and
    bounds it, a string names it, None leaves it as it is.
    """

    def __init__(self, shapes: ShapeOptions | None = None) -> None:
        self.shapes = dict(shapes or {})
        self._named: dict[str, Dim] = {}  # dim_param -> what it became
        self._option_of: dict[str, tuple[Entry, str]] = {}  # dim_param -> option entry, where
        self._taken: dict[str, Symbol] = {}
        for entries in self.shapes.values():
            for entry in entries:
                if isinstance(entry, Symbol):
                    self._declare(entry)
        for entries in self.shapes.values():
            for entry in entries:
                if isinstance(entry, str):
                    self._resolve(entry)
        self._from_options = frozenset(self._taken)

    def _declare(self, symbol: Symbol) -> None:
        known = self._taken.setdefault(symbol.name, symbol)
        if known != symbol:
            raise InputError(f"the shapes option gives the symbol {symbol.name} two ranges")

    def read_options(self, inputs: Mapping[str, TensorShapeProto | None]) -> None:
        """Takes in all options before any shape is made, so that one input's name reaches others.

        Raises InputError when an option names no input or does not fit its declared shape.
        """
        for name, entries in self.shapes.items():
            if name not in inputs:
                known = ", ".join(inputs) or "none"
                raise InputError(f"the shapes option names {name!r}; the model's inputs: {known}")
            shape = inputs[name]
            if shape is None:
                continue
            if len(shape.dim) != len(entries):
                raise InputError(
                    f"the shapes option gives {name!r} {len(entries)} dims, the model declares "
                    f"{len(shape.dim)}"
                )
            for axis, (entry, dim) in enumerate(zip(entries, shape.dim, strict=True)):
                where = f"{name} axis {axis}"
                if entry is None:
                    continue
                if dim.dim_value > 0 and entry != dim.dim_value:
                    raise InputError(
                        f"the shapes option gives {where} the size {entry}, the model declares "
                        f"{dim.dim_value}"
                    )
                if _is_name(dim.dim_param):
                    other = self._option_of.setdefault(dim.dim_param, (entry, where))
                    if self._resolve(other[0]) != self._resolve(entry):
                        raise InputError(
                            f"the shapes option gives {where} {entry} and {other[1]} {other[0]}, "
                            f"which the model declares to be one size ({dim.dim_param})"
                        )

    def _resolve(self, entry: Entry) -> Dim:
        if isinstance(entry, int):
            if entry < 0:
                raise InputError(f"the shapes option holds the negative size {entry}")
            return entry
        if isinstance(entry, Symbol):
            return of(self._taken[entry.name])
        assert entry is not None
        name = _sanitise(entry)
        return of(self._taken.setdefault(name, Symbol(name)))

    def _fresh(self, wish: str) -> Dim:
        name, n = _sanitise(wish), 1
        while name in self._taken:
            n += 1
            name = f"{_sanitise(wish)}_{n}"
        self._taken[name] = Symbol(name)
        return of(self._taken[name])

    def _of_parameter(self, parameter: str) -> Dim:
        option = self._option_of.get(parameter)
        if option is not None:
            return self._resolve(option[0])
        if _sanitise(parameter) in self._from_options:  # an option speaks of it by name
            return of(self._taken[_sanitise(parameter)])
        return self._fresh(parameter)

    def shape(self, name: str, declared: TensorShapeProto | None) -> tuple[Dim, ...]:
        """The input's shape in dims.  Raises Refusal when neither model nor option gives a rank."""
        entries = self.shapes.get(name)
        if declared is None:
            if entries is None:
                raise Refusal(
                    f"the input {name!r} has no declared rank", f"give its shape: --shape {name}:AxB"
                )
            return tuple(
                self._fresh(f"{name}_{axis}") if e is None else self._resolve(e)
                for axis, e in enumerate(entries)
            )
        out: list[Dim] = []
        for axis, dim in enumerate(declared.dim):
            entry = entries[axis] if entries is not None else None
            if dim.dim_value > 0:
                out.append(dim.dim_value)
            elif not _is_name(dim.dim_param):
                out.append(self._fresh(f"{name}_{axis}") if entry is None else self._resolve(entry))
            else:
                if dim.dim_param not in self._named:
                    self._named[dim.dim_param] = self._of_parameter(dim.dim_param)
                out.append(self._named[dim.dim_param])
        return tuple(out)


def _is_name(parameter: str) -> bool:
    # Exporters write "?" for "unknown": two of those are not one size.
    return re.search(r"[A-Za-z0-9]", parameter) is not None


def _sanitise(name: str) -> str:
    text = re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_.") or "dim"
    return text if re.match(r"[A-Za-z_]", text) else f"_{text}"
