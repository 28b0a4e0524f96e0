"""Reads the text that `printer.py` writes; errors carry line and column.

The parser checks syntax and names; types are inferred again and compared with the written ones, so
that a parsed graph is as well typed as one built through `Graph.create`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from graphwright.compiler.ir import dim_parser
from graphwright.compiler.ir.dims import MAX_EXTENT, Dim, DimError, Symbol
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Constraint, InferenceError, Registry
from graphwright.compiler.ir.types import DTYPES, DType, TensorType


class ParseError(ValueError):
    """The text is not a graph; the message starts with line:column."""


def parse_graph(
    text: str,
    *,
    registry: Registry,
    literals: Mapping[str, Literal] | None = None,
    placeholders: bool = False,
) -> Graph:
    """A graph from its text.  `literals` maps digests of constants that were too large to print;
    with `placeholders` a digest that is not among them becomes a constant that cannot be read.
    """
    parser = _Parser(text, registry, literals or {}, placeholders)
    graph = parser.graph()
    parser.end()
    return graph


def parse_attribute(
    text: str, *, registry: Registry, literals: Mapping[str, Literal] | None = None
) -> Any:
    """An attribute's value, such as a recipe, from its text."""
    parser = _Parser(text, registry, literals or {}, placeholders=False)
    value = parser.attribute()
    parser.end()
    return value


def parse_attributes(text: str, *, registry: Registry) -> tuple[dict[str, Any], int]:
    """The attributes that a text begins with, and how long they are.  Constants that were too large
    to print cannot be read.
    """
    parser = _Parser(text, registry, {}, placeholders=True)
    return parser.attributes(), parser.position


_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_INTEGER = re.compile(r"\d+")


def _unreadable() -> NoReturn:
    raise ValueError("this constant was too large to print; the text has its digest only")


class _Parser:
    def __init__(
        self,
        text: str,
        registry: Registry,
        literals: Mapping[str, Literal],
        placeholders: bool = False,
    ) -> None:
        self.text, self.registry, self.literals = text, registry, literals
        self.placeholders = placeholders
        self.position = 0
        self.symbols: dict[str, Symbol] = {}

    # -- tokens

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.position if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        raise ParseError(f"{line}:{column}: {message}")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def peek(self, token: str) -> bool:
        self.skip()
        if not self.text.startswith(token, self.position):
            return False
        after = self.position + len(token)
        return not (token[-1].isalnum() and re.match(r"\w", self.text[after : after + 1]))

    def accept(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            found = self.text[self.position : self.position + 12].split("\n")[0]
            self.fail(f"want {token!r}, got {found!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip()
        match = pattern.match(self.text, self.position)
        if not match:
            found = self.text[self.position : self.position + 12].split("\n")[0]
            self.fail(f"want {what}, got {found!r}")
        self.position = match.end()
        return match.group()

    def identifier(self, what: str = "a name") -> str:
        return self.match(_IDENTIFIER, what)

    def string(self) -> str:
        start = self.position
        text = self.match(_STRING, "a quoted string")
        try:
            return json.loads(text)
        except ValueError as error:  # a line's end, an unknown escape
            self.fail(f"{text!r} is not a string: {error}", start)

    def integer(self) -> int:
        start = self.position
        try:
            return int(self.match(_INTEGER, "an integer"))
        except ValueError:
            self.fail("the integer has too many digits", start)

    def end(self) -> None:
        self.skip()
        if self.position != len(self.text):
            self.fail("text after the end of the graph")

    def raw(self, stops: str) -> str:
        """Text up to one of `stops` outside parentheses."""
        self.skip()
        start, depth = self.position, 0
        while self.position < len(self.text):
            c = self.text[self.position]
            if depth == 0 and c in stops:
                break
            depth += (c == "(") - (c == ")")
            self.position += 1
        return self.text[start : self.position].strip()

    def dim(self, stops: str) -> Dim:
        self.skip()
        start = self.position
        text = self.raw(stops)
        try:
            return dim_parser.parse(text, self.symbols)
        except DimError as e:
            self.fail(str(e), start)

    # -- pieces

    def value_name(self) -> str:
        self.expect("%")
        if self.text.startswith('"', self.position):
            return "%" + json.dumps(self.string())
        return "%" + self.match(re.compile(r"[\w.]+"), "a value name")

    def type(self) -> TensorType:
        self.skip()
        start = self.position
        name = self.identifier("a type such as f32[2, 3]")
        dtype = DTYPES.get(name)
        if dtype is None:
            self.fail(f"unknown element type {name!r}; known: {', '.join(DTYPES)}", start)
        self.expect("[")
        shape: list[Dim] = []
        while not self.accept("]"):
            if shape:
                self.expect(",")
            shape.append(self.dim(",]"))
        layout = None
        if self.text.startswith("{", self.position):
            self.position += 1
            layout = self.layout("}")
            self.expect("}")
        try:
            return TensorType(dtype, tuple(shape), layout)
        except ValueError as e:
            self.fail(str(e), start)

    def layout(self, stop: str) -> Layout:
        self.skip()
        start = self.position
        dense, *parts = self.raw(stop).split("@")
        order, *blocks = dense.split("/")
        try:
            pairs = tuple((int(a), int(s)) for a, _, s in (b.partition(":") for b in blocks))
            windows: list[tuple[int, Dim, Dim]] = []
            for axis, first, whole in (p.split(":") for p in parts):
                begin, span = (dim_parser.parse(d, self.symbols) for d in (first, whole))
                windows.append((int(axis), begin, span))
            return Layout(tuple(int(a) for a in order.split(",")), pairs, tuple(windows))
        except ValueError as e:
            self.fail(f"bad layout: {e}", start)

    def scalar(self, text: str, dtype: DType, at: int) -> Any:
        try:
            if dtype.kind == "bool":
                return {"true": True, "false": False}[text]
            if dtype.kind == "float":
                return float(text)
            if dtype.kind == "complex":
                return complex(json.loads(text))
            return int(text)
        except (ValueError, KeyError):
            self.fail(f"{text!r} is not a {dtype} value", at)

    def literal(self) -> Literal:
        start = self.position
        if self.accept("splat"):
            self.expect("(")
            text = self.raw(")")
            self.expect(")")
            self.expect(":")
            type = self.type()
            return Literal.splat(self.scalar(text, type.dtype, start), type.dtype, self.sizes(type))
        self.expect("dense")
        if self.accept("<"):
            digest = self.string()
            self.expect(">")
            self.expect(":")
            type = self.type()
            found = self.literals.get(digest)
            if found is None and self.placeholders:
                return Literal.lazy(_unreadable, type.dtype, self.sizes(type))
            if found is None:
                self.fail(f"the constant {digest[:12]}... is not among the given literals", start)
            if (found.dtype, found.shape) != (type.dtype, self.sizes(type)):
                self.fail(f"the constant {digest[:12]}... is {found}, the text says {type}", start)
            return found
        self.expect("(")
        texts: list[str] = []
        while not self.accept(")"):
            if texts:
                self.expect(",")
            texts.append(self.raw(",)"))
        self.expect(":")
        type = self.type()
        shape = self.sizes(type)
        if len(texts) != int(np.prod(shape, dtype=np.int64)):
            self.fail(f"{len(texts)} values for {type}", start)
        values = np.array(
            [self.scalar(t, type.dtype, start) for t in texts],
            dtype=np.float64 if type.dtype.is_float else None,
        )
        return Literal.dense(values.astype(type.dtype.numpy).reshape(shape))

    def sizes(self, type: TensorType) -> tuple[int, ...]:
        shape = tuple(d for d in type.shape if isinstance(d, int))
        if len(shape) != type.rank:
            self.fail(f"a constant has a symbolic shape: {type}")
        return shape

    def recipe(self) -> Recipe:
        self.expect("recipe")
        self.expect("(")
        self.skip()
        if self.text.startswith('"', self.position):
            recipe = Recipe(source=self.string())
        else:
            op = self.identifier()
            attributes = tuple(self.attributes().items())
            inputs = self.tuple()
            recipe = Recipe(op, attributes, inputs)
        self.expect(")")
        return recipe

    def tuple(self) -> tuple[Any, ...]:
        self.expect("[")
        items: list[Any] = []
        while not self.accept("]"):
            if items:
                self.expect(",")
            items.append(self.attribute())
        return tuple(items)

    def attribute(self) -> Any:
        self.skip()
        start = self.position
        if self.text.startswith('"', self.position):
            return self.string()
        if self.text.startswith("[", self.position):
            return self.tuple()
        if self.accept("!"):
            name = self.identifier("an element type")
            if name not in DTYPES:
                self.fail(f"unknown element type {name!r}", start)
            return DTYPES[name]
        for word, value in (("true", True), ("false", False), ("none", None)):
            if self.accept(word):
                return value
        if self.accept("layout"):
            self.expect("<")
            layout = self.layout(">")
            self.expect(">")
            return layout
        if self.peek("splat") or self.peek("dense"):
            return self.literal()
        if self.peek("recipe"):
            return self.recipe()
        text = self.raw(",]}")
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        if re.fullmatch(r"-?(\d+\.?\d*(e[-+]?\d+)?|inf|nan)", text):
            return float(text)
        try:
            return dim_parser.parse(text, self.symbols)
        except DimError as e:
            self.fail(str(e), start)

    def attributes(self) -> dict[str, Any]:
        self.expect("{")
        out: dict[str, Any] = {}
        while not self.accept("}"):
            if out:
                self.expect(",")
            name = self.identifier("an attribute")
            self.expect("=")
            out[name] = self.attribute()
        return out

    # -- graphs

    def graph(self) -> Graph:
        self.expect("graph")
        self.expect("@")
        graph = Graph(self.identifier("the graph's name"), registry=self.registry)
        self.expect("(")
        while not self.accept(")"):
            if self.symbols:
                self.expect(",")
            self.symbol()
        for symbol in self.symbols.values():
            graph.add_symbol(symbol)
        self.expect("{")
        names: dict[str, Value] = {}
        while self.accept("input"):
            name = self.value_name()
            self.expect(":")
            plain = json.loads(name[1:]) if name.startswith('%"') else name[1:]
            names[name] = graph.add_input(plain, self.type())
        self.body(graph, names)
        constraints: list[Constraint] = []
        while self.accept("require"):
            constraints.append(self.constraint())
        graph.constraints = constraints or graph.constraints
        self.expect("return")
        outputs: list[Value] = []
        output_names: list[str] = []
        while self.peek("%"):
            outputs.append(self.value(names))
            self.expect("as")
            output_names.append(self.string())
            if not self.accept(","):
                break
        self.expect("}")
        graph.set_outputs(outputs, output_names)
        return graph

    def symbol(self) -> None:
        self.skip()
        start = self.position
        name = self.identifier("a symbol")
        low, high, by, opt = 0, MAX_EXTENT, 1, None
        if self.accept("in"):
            low = self.integer()
            self.expect("..")
            high = self.integer()
        if self.accept("by"):
            by = self.integer()
        if self.accept("@"):
            opt = self.integer()
        if name in self.symbols:
            self.fail(f"symbol {name} is declared twice", start)
        try:
            self.symbols[name] = Symbol(name, low, high, by, opt)
        except DimError as e:
            self.fail(str(e), start)

    def constraint(self) -> Constraint:
        text_start = self.position
        text = self.raw('"')
        match = re.fullmatch(r"(.*?)\s*(==|!=|<=|>=|<|>|broadcast)\s*(.*)", text)
        if not match:
            self.fail("want LEFT RELATION RIGHT", text_start)
        try:
            left, right = (dim_parser.parse(match.group(i), self.symbols) for i in (1, 3))
        except DimError as e:
            self.fail(str(e), text_start)
        return Constraint(left, match.group(2), right, self.string())

    def value(self, names: Mapping[str, Value]) -> Value:
        self.skip()
        start = self.position
        name = self.value_name()
        if name not in names:
            self.fail(f"{name} is not defined before its use", start)
        return names[name]

    def body(self, graph: Graph, names: dict[str, Value]) -> None:
        while not (self.peek("return") or self.peek("require")):
            self.op(graph, names)

    def op(self, graph: Graph, names: dict[str, Value]) -> None:
        self.skip()
        start = self.position
        results: list[str] = []
        if self.peek("%"):
            results.append(self.value_name())
            while self.accept(","):
                results.append(self.value_name())
            self.expect("=")
        self.skip()
        at_name = self.position
        name = self.identifier("an op")
        if name not in self.registry:
            self.fail(f"there is no op {name!r}", at_name)
        operands: list[Value] = []
        if self.accept("("):
            while not self.accept(")"):
                if operands:
                    self.expect(",")
                operands.append(self.value(names))
        attributes = self.attributes() if self.peek("{") else {}
        types: list[TensorType] = []
        if self.accept(":"):
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        origins: list[str] = []
        if self.accept("from"):
            origins.append(self.string())
            while self.accept(","):
                origins.append(self.string())
        bodies: list[Graph] = []
        for label in self.registry[name].bodies:
            self.expect(label)
            bodies.append(self.nested(label))
        try:
            op = graph.create(
                name, operands, attributes, origins=origins, bodies=bodies, types=types
            )
        except InferenceError as e:
            self.fail(str(e), start)
        except ValueError as e:
            self.fail(f"{name}: {e}", start)
        if len(op.results) != len(results):
            self.fail(f"{name} has {len(op.results)} results, {len(results)} are named", start)
        for result, value in zip(results, op.results, strict=True):
            if result in names:
                self.fail(f"{result} is defined twice", start)
            names[result] = value

    def nested(self, label: str) -> Graph:
        graph = Graph(label, registry=self.registry)
        names: dict[str, Value] = {}
        self.expect("(")
        while not self.accept(")"):
            if names:
                self.expect(",")
            name = self.value_name()
            self.expect(":")
            names[name] = graph.add_input(name[1:], self.type())
        self.expect("{")
        self.body(graph, names)
        self.expect("return")
        outputs: list[Value] = []
        while self.peek("%"):
            outputs.append(self.value(names))
            if not self.accept(","):
                break
        self.expect("}")
        graph.set_outputs(outputs)
        return graph
