"""The text form of pipelines: `fold-constants{limit=1048576},(canonicalize,eliminate-dead)*`.

Pass names come from `registry.NAMES`; options are the pass's dataclass fields with dashes.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from graphwright.compiler.passes.base import Group, Pass
from graphwright.compiler.passes.registry import NAMES, pass_class
from graphwright.errors import InputError

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*|[0-9]+|[(){},*]|$)")
_OPTION = re.compile(r"\s*([A-Za-z][A-Za-z0-9_-]*)\s*=\s*([^,{}]*?)\s*([,}])")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A message for a name that is not known, with the nearest one that is."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1, 0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    return f"unknown {what} {name!r}; {hint}"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, message: str) -> InputError:
        return InputError(f"pipeline, column {self.at + 1}: {message} in {self.text!r}")

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.fail(f"unexpected {self.text[self.at]!r}")
        return match[1]

    def take(self, want: str | None = None) -> str:
        token = self.peek()
        if want is not None and token != want:
            raise self.fail(f"want {want!r}, found {token!r}" if token else f"want {want!r} at end")
        match = _TOKEN.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return token

    def items(self, closing: str) -> tuple[Pass | Group, ...]:
        out: list[Pass | Group] = []
        while True:
            out.append(self.group() if self.peek() == "(" else self.single())
            if self.peek() == closing:
                self.take()
                return tuple(out)
            self.take(",")

    def group(self) -> Group:
        self.take("(")
        items = self.items(")")
        self.take("*")
        return Group(items, int(self.take())) if self.peek().isdigit() else Group(items)

    def single(self) -> Pass:
        at = self.at
        name = self.take()
        if name not in NAMES:
            self.at = at
            raise self.fail(unknown("pass", name, NAMES) if name else "a pass name is missing")
        cls = pass_class(name)
        options: dict[str, Any] = {}
        if self.peek() == "{":
            self.take()
            known = {f.name.replace("_", "-"): f for f in dataclasses.fields(cls)}
            hints = typing.get_type_hints(cls)
            while True:
                match = _OPTION.match(self.text, self.at)
                if match is None:
                    raise self.fail(f"want option=value or '}}' for {name}")
                option, text, end = match.groups()
                if option not in known:
                    raise self.fail(unknown(f"option of {name}", option, known))
                options[known[option].name] = self.value(option, hints[known[option].name], text)
                self.at = match.end()
                if end == "}":
                    break
        return cls(**options)

    def value(self, option: str, kind: Any, text: str) -> Any:
        if isinstance(kind, types.UnionType):  # `int | None`
            if text == "none":
                return None
            kind = next(a for a in typing.get_args(kind) if a is not type(None))
        try:
            if kind is bool:
                return {"true": True, "false": False}[text]
            if kind in (int, float, str):
                return kind(text)
            if typing.get_origin(kind) is tuple:  # a tuple of strings, written a+b
                return tuple(t for t in text.split("+") if t)
        except (KeyError, ValueError):
            pass
        raise self.fail(f"option {option} wants {getattr(kind, '__name__', kind)}, got {text!r}")


def parse_items(text: str) -> tuple[Pass | Group, ...]:
    """The passes and groups of a pipeline's text.  Raises InputError with the column."""
    if not text.strip():
        return ()
    return _Reader(text).items("")


def _print_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return "+".join(value) if isinstance(value, tuple) else str(value)


def print_items(items: Sequence[Pass | Group]) -> str:
    """The text that `parse_items` reads back; options at their default are left out."""
    out: list[str] = []
    for item in items:
        if isinstance(item, Group):
            out.append(str(item))
            continue
        given = [
            f"{f.name.replace('_', '-')}={_print_value(getattr(item, f.name))}"
            for f in dataclasses.fields(typing.cast(Any, item))
            if getattr(item, f.name) != f.default
        ]
        out.append(item.name + (f"{{{','.join(given)}}}" if given else ""))
    return ",".join(out)
