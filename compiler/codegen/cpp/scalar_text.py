"""Scalar nodes as C++ statements: each value named once, at the loop level where it is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphwright.compiler.codegen.cpp.indices import Size, index_text, operand_text
from graphwright.compiler.codegen.cpp.nest import Part
from graphwright.compiler.codegen.cpp.types import is_small_float, literal, read, scalar_type
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.codegen.scalar import (
    Apply,
    Choose,
    Given,
    Index,
    Load,
    Node,
    Number,
    Wrapped,
    children,
    index_dims,
)
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.op import OpDef
from graphwright.compiler.ir.types import I8, I16, I32, U8, DType

NARROW = (I8, U8, I16)


class Names:
    """Fresh C++ names in one kernel: `add0`, `add1`, ..., none that a model symbol has."""

    def __init__(self, symbols: Iterable[str] = ()) -> None:
        self._next: dict[str, int] = {}
        self._taken = {s.replace(".", "_") for s in symbols}

    def fresh(self, stem: str) -> str:
        while True:
            n = self._next.get(stem, 0)
            self._next[stem] = n + 1
            if f"{stem}{n}" not in self._taken:
                return f"{stem}{n}"


class ScalarWriter:
    """Writes the scalar code of one part of a nest.

    Items are nodes and derived variables.  `level(item)` is the index of the innermost loop that an
    item depends on (-1: none); `statements(level)` writes those of one level, operands first.
    `pointers` maps body inputs to the names of their C++ pointers; `given` says what a given scalar
    is in C++ and at which level it is known (default: its name, at the innermost); `size` names
    the scalar of a dim over model symbols; `read` says what loads (by id) are that something read already.

    Small integers are int32_t where that makes no difference (`wide`): a loop in one width vectorises.
    """

    def __init__(
        self,
        part: Part,
        pointers: Mapping[Value, str],
        names: Names,
        size: Size,
        *,
        given: Mapping[str, tuple[str, int]] | None = None,
        read: Mapping[int, str] | None = None,
    ) -> None:
        self.part, self.pointers, self.names, self.size = part, pointers, names, size
        self._given = given or {}
        self._read = read or {}
        self.variables: dict[Symbol, str] = {}
        self._texts: dict[int, str] = {}
        self._levels: dict[int | Symbol, int] = {v: i for i, v in enumerate(part.loops)}
        self._depth: dict[Symbol, int] = {v: i for i, v in enumerate(part.loops)}
        self._items = self._unconditional(
            [s.node for s in part.stores], [s.offset for s in part.stores]
        )
        self.wide = holds_wide(part)

    # -- order and levels

    def _derived(self, dim: Dim) -> list[Symbol]:
        """The derived variables that a dim needs, operands first."""
        out: list[Symbol] = []
        for v in self.part.domain.variables_of(self.part.resolve(dim)):
            definition = self.part.domain.definitions.get(v)
            if definition is None:
                continue
            if definition.operator != "data":
                out += [u for u in self._derived(definition.dividend) if u not in out]
            out.append(v)
        return out

    def _unconditional(
        self, roots: Sequence[Node], offsets: Sequence[Dim] = ()
    ) -> list[Node | Symbol]:
        """What is evaluated whenever the roots are: all under them but the branches of choices."""
        order: dict[int | Symbol, Node | Symbol] = {}

        def visit_symbol(v: Symbol) -> None:
            if v in order:
                return
            definition = self.part.domain.definitions[v]
            if definition.operator == "data":
                assert isinstance(definition.node, Wrapped)
                visit(definition.node)
            order[v] = v

        def visit(node: Node) -> None:
            if id(node) in order:
                return
            if not isinstance(node, Choose):
                for child in children(node):
                    visit(child)
            for dim in index_dims(node):
                for v in self._derived(dim):
                    visit_symbol(v)
            order[id(node)] = node

        for root in roots:
            visit(root)
        for dim in offsets:
            for v in self._derived(dim):
                visit_symbol(v)
        return list(order.values())

    def _dim_level(self, dim: Dim) -> int:
        level = -1
        for v in self.part.domain.variables_of(self.part.resolve(dim)):
            level = max(level, self.level(v))
        return level

    def level(self, item: Node | Symbol) -> int:
        """The innermost loop (its index) that the item's value depends on; -1 for none."""
        key = item if isinstance(item, Symbol) else id(item)
        if key in self._levels:
            return self._levels[key]
        level = -1
        if isinstance(item, Symbol):
            definition = self.part.domain.definitions.get(item)
            if definition is not None and definition.operator == "data":
                assert isinstance(definition.node, Wrapped)
                level = self.level(definition.node)
            elif definition is not None:
                level = self._dim_level(definition.dividend)
        else:
            for dim in index_dims(item):
                level = max(level, self._dim_level(dim))
            for child in children(item):
                level = max(level, self.level(child))
            if isinstance(item, Given):
                _, level = self._given.get(item.name, ("", len(self.part.loops) - 1))
        self._levels[key] = level
        return level

    # -- text

    def statements(self, level: int) -> list[str]:
        """Statements of one level."""
        lines: list[str] = []
        for item in self._items:
            if self.level(item) == level:
                lines += self._define(item)
        return lines

    def index(self, dim: Dim) -> str:
        return index_text(self.part.resolve(dim), self.size, self.variables)

    def _operand(self, dim: Dim) -> str:
        return operand_text(dim, self.size, self.variables)

    def text(self, node: Node) -> str:
        """The expression of a node that has been written (or needs no statement)."""
        if isinstance(node, Number):
            return literal(node.value, I32 if self._is_wide(node) else node.dtype)
        if isinstance(node, Given):
            return self._given.get(node.name, (node.name, 0))[0]
        return self._texts[id(node)]

    def exact_text(self, node: Node) -> str:
        """The expression of a node in the C++ type of its elements, however it is held."""
        text = self.text(node)
        return f"static_cast<{scalar_type(node.dtype)}>({text})" if self._is_wide(node) else text

    def _define(self, item: Node | Symbol) -> list[str]:
        if isinstance(item, Symbol):
            return self._define_variable(item)
        if id(item) in self._texts or isinstance(item, Number | Given):
            return []
        type = "int32_t" if self._is_wide(item) else scalar_type(item.dtype)
        match item:
            case Load() if id(item) in self._read:
                expression, name = self._read[id(item)], self.names.fresh("v")
            case Load():
                pointer = self.pointers[item.source]
                expression = read(item.source.type.dtype, pointer, self.index(item.offset))
                name = self.names.fresh("v")
            case Index():
                expression = f"static_cast<{type}>({self.index(item.value)})"
                name = self.names.fresh("n")
            case Apply():
                expression = self._apply(item)
                name = self.names.fresh(item.definition.name)
            case Wrapped():
                extent = self.index(item.extent)
                expression = f"gw::wrap_index({self.text(item.index)}, {extent})"
                name = self.names.fresh("row")
            case Choose():
                return self._choose(item)
        self._texts[id(item)] = name
        return [f"const {type} {name} = {_bare(expression)};"]

    def _is_wide(self, node: Node) -> bool:
        return self.wide and node.dtype in NARROW

    def _define_variable(self, variable: Symbol) -> list[str]:
        if variable in self.variables:
            return []
        definition = self.part.domain.definitions[variable]
        if definition.operator == "data":
            assert isinstance(definition.node, Wrapped)
            self.variables[variable] = self.text(definition.node)
            return []
        name = self.names.fresh("q" if definition.operator == "quotient" else "rest")
        sign = "/" if definition.operator == "quotient" else "%"
        a = operand_text(self.part.resolve(definition.dividend), self.size, self.variables)
        b = operand_text(self.part.resolve(definition.divisor), self.size, self.variables)
        self.variables[variable] = name
        return [f"const int64_t {name} = {a} {sign} {b};"]

    def _choose(self, node: Choose) -> list[str]:
        tests = [self._condition(a, b) for a, b in node.conditions]
        test = " && ".join(tests)
        name = self.names.fresh("chosen")
        type = "int32_t" if self._is_wide(node) else scalar_type(node.dtype)
        simple = [self._simple(branch) for branch in (node.then, node.otherwise)]
        self._texts[id(node)] = name
        if simple[0] is not None and simple[1] is not None:
            return [f"const {type} {name} = {test} ? {simple[0]} : {simple[1]};"]
        return [
            f"{type} {name};",
            f"if ({test}) {{",
            *self._branch(node.then, name),
            "} else {",
            *self._branch(node.otherwise, name),
            "}",
        ]

    def _simple(self, node: Node) -> str | None:
        """A branch as one expression, when it needs no statements of its own."""
        if isinstance(node, Number | Given) or id(node) in self._texts:
            return self.text(node)
        if isinstance(node, Load) and all(v in self.variables for v in self._derived(node.offset)):
            pointer = self.pointers[node.source]
            return read(node.source.type.dtype, pointer, self.index(node.offset))
        return None

    def _branch(self, node: Node, target: str) -> list[str]:
        texts, variables = dict(self._texts), dict(self.variables)
        lines: list[str] = []
        for item in self._unconditional([node]):
            lines += self._define(item)
        lines.append(f"{target} = {self.text(node)};")
        self._texts, self.variables = texts, variables
        return [f"  {line}" for line in lines]

    def _condition(self, left: Dim, right: Dim) -> str:
        a, b = self.part.resolve(left), self.part.resolve(right)
        # Variables on the left, the rest on the right: `i2 < 5`, `i2 >= 3`.
        free = self.part.domain.variables_of(a - b)
        if len(free) == 1:
            from graphwright.compiler.codegen.expressions import split_linear

            scale, rest = split_linear(a - b, free[0])
            v = self.variables.get(free[0], free[0].name)
            if scale == 1:
                return f"{v} < {self._operand(dims.multiply(rest, -1))}"
            if scale == -1:
                return f"{v} > {self._operand(rest)}"
        return f"{self._operand(a)} < {self._operand(b)}"

    def _apply(self, node: Apply) -> str:
        own = node.arguments[0].dtype
        template = cpp_template(node)
        if node.definition.name == "quantize" and node.dtype in NARROW:
            template = self._quantize(node)
        if not template:
            assert node.op is not None
            raise problem(node.op, f"it has no C++ spelling for {own.long_name}")
        arguments = [self.text(a) for a in node.arguments]
        attributes = {k: attribute_text(v, own) for k, v in node.attributes}
        text = template.format(*arguments, **attributes)
        return _narrowed(node, text, arguments)

    def _quantize(self, node: Apply) -> str:
        """The spelling of a quantize to a small integer, which stays in 32 bits if that is wanted."""
        scale = node.arguments[1]
        wide = "_wide" if self.wide else ""
        if isinstance(scale, Number) and float(scale.value) == 1.0:
            return f"gw::quantize_unscaled{wide}<{{dtype}}>({{0}}, {{2}})"
        return f"gw::quantize{wide}<{{dtype}}>({{0}}, {{1}}, {{2}})"


def holds_wide(part: Part) -> bool:
    """Whether the small integers of a part are held in 32 bits: where they turn from and to floats."""
    nodes = part.nodes
    names = [n.definition.name for n in nodes if isinstance(n, Apply)]
    return ("quantize" in names or "dequantize" in names) and all(map(_may_be_wide, nodes))


def _may_be_wide(node: Node) -> bool:
    """Whether a node means the same when small integers, within their range, are held in 32 bits."""
    if not isinstance(node, Apply):
        return not isinstance(node, Wrapped | Index) or node.dtype not in NARROW
    if node.dtype in NARROW:
        return node.definition.name in ("quantize", "maximum", "minimum", "clip", "where")
    if any(a.dtype in NARROW for a in node.arguments):
        return node.definition.name in ("dequantize", "cast")
    return True


def _narrowed(node: Apply, text: str, arguments: Sequence[str]) -> str:
    """The text of a result whose C++ type holds more than its element type does."""
    target = dict(node.attributes).get("dtype", node.dtype)
    name = node.definition.name
    if not isinstance(target, DType):
        return text
    if name in ("cast", "quantize") and is_small_float(target):
        saturate = ""
        if target.bits == 8:
            saturate = ", true" if dict(node.attributes).get("saturate", True) else ", false"
        if name == "quantize":  # a float is not rounded to whole numbers first
            text = "{} / {} + {}".format(*arguments)
        return f"gw::from_{target.name}(gw::to_{target.name}({text}{saturate}))"
    if target.bits >= 8 or target.is_float:
        return text
    sign = "true" if target.kind == "int" else "false"
    if name == "quantize":
        text = "gw::round_even({} / {}) + {}".format(*arguments)
    how = "limit" if node.arguments[0].dtype.is_float else "wrap"
    given = arguments[0] if name == "cast" else text
    return f"gw::{how}_bits<{target.bits}, {sign}>({given})"


def spell(definition: OpDef, dtype: DType, *arguments: str) -> str:
    """A pointwise op without attributes on C++ expressions of one type."""
    spelling = getattr(definition, "spelling", None)
    template: str = spelling("cpp", dtype, {}) if spelling else ""
    return _bare(template.format(*arguments))


def cpp_template(node: Apply) -> str:
    """The spelling of a pointwise op for its operands' type, or ""."""
    spelling = getattr(node.definition, "spelling", None)
    return spelling("cpp", node.arguments[0].dtype, dict(node.attributes)) if spelling else ""


def attribute_text(value: Any, dtype: DType) -> str:
    """An attribute inside a C++ template: numbers as literals of the operands' type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return literal(value, dtype) if dtype.is_float else repr(value)
    if isinstance(value, DType):
        return scalar_type(value)
    return str(value)


def _bare(expression: str) -> str:
    """Without one pair of outer parentheses."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for i, c in enumerate(expression):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i + 1 < len(expression):
            return expression
    return expression[1:-1]
