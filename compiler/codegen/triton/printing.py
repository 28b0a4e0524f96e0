"""Scalar nodes as Triton statements: every loop variable is a block, every node a named tensor.

A loop variable is bound to an expression (`rows[:, None]`), perhaps with a mask of its own; a load
carries the masks of just those variables that its address depends on, so that a bias of the columns
is loaded once a column.  Values behind a condition are loaded under that condition only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphwright.compiler.codegen.expressions import Domain
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
)
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Call, Dim, Expr, Symbol, bounds
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.ops.pointwise import triton_cast
from graphwright.compiler.ir.types import F8E5M2, F32, DType

# fmt: off
TYPES: dict[str, str] = {
    "bool": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "f8e4m3fn": "float8e4nv", "f8e5m2": "float8e5",
}
POINTERS: dict[str, str] = {
    "bool": "*i1", "i8": "*i8", "i16": "*i16", "i32": "*i32", "i64": "*i64",
    "u8": "*u8", "u16": "*u16", "u32": "*u32", "u64": "*u64",
    "f16": "*fp16", "bf16": "*bf16", "f32": "*fp32", "f64": "*fp64",
    "f8e4m3fn": "*fp8e4nv", "f8e5m2": "*fp8e5",
}
# fmt: on


# What the frames of kernels call their own variables, which no node may be called.
# fmt: off
FRAME_NAMES = (
    "across", "again_f", "again_i", "again_n", "again_o", "again_r", "again_z", "among",
    "arrived", "band", "batch", "best", "c", "cell", "centred", "column", "count", "d", "down", "dx", "e",
    "image", "in_c", "in_column",
    "factor", "fade", "first", "fresh", "gate_f", "gate_i", "gate_n", "gate_o", "gate_r", "gate_z",
    "given_f", "given_i", "given_n", "given_o", "given_r", "given_z", "group", "held", "i",
    "in_d", "in_e", "in_j", "in_k", "in_m", "in_n", "in_range", "in_row", "j", "k", "largest",
    "last", "left", "left_sums", "level", "limit", "line", "low", "m", "mean", "most", "n",
    "other", "pair", "part", "partial", "peak", "place", "powers", "product", "query", "reduced",
    "right", "right_sums", "row", "rows", "scale", "scores", "shifted", "split", "squares",
    "start", "state", "step", "sums", "sums_f", "sums_i", "sums_n", "sums_o", "sums_r",
    "sums_z", "taken", "tall", "tap", "tile", "total", "variance", "weights", "whole",
    "keys", "normed", "seen", "top", "values",
)
# fmt: on


def triton_type(dtype: DType) -> str:
    """`tl.float32` for f32; `check_types` has refused what Triton has not."""
    return f"tl.{TYPES[dtype.name]}"


MOST_TERMS = 32  # of a sum on one line


class Printer:
    """Prints nodes of one domain into `lines`, at the current indentation.

    `bind(variable, text, mask)` gives a loop variable its block expression.  Nodes are printed once
    per scope; `scope()` starts a nested one (a loop body), whose names end with it.
    """

    def __init__(self, domain: Domain, pointers: dict[Value, str], indent: str = "    ") -> None:
        self.domain, self.pointers, self.indent = domain, pointers, indent
        self.lines: list[str] = []
        self.rounds = False  # whether all results are rounded to 16 bits
        self.scalars: dict[Symbol, str] = {}
        self._bound: dict[Symbol, str] = {}
        self._masks: dict[Symbol, str] = {}
        self._names: dict[tuple[int, str], str] = {}
        self._keep: list[Node] = []  # ids in _names stay valid while their nodes live
        self._taken: set[str] = set(FRAME_NAMES)

    # -- scopes and names

    def bind(self, variable: Dim, text: str, mask: str = "") -> None:
        """`variable` is a loop of the domain; `mask` is true where it is below its extent."""
        symbol = variable.symbol if isinstance(variable, Expr) else None
        assert symbol is not None
        self._bound[symbol] = text
        if mask:
            self._masks[symbol] = mask

    def forget(self, variable: Dim) -> None:
        """Drops what was computed from a loop variable, which is about to be bound otherwise."""
        symbol = variable.symbol if isinstance(variable, Expr) else None
        for derived in [s for s in self._bound if s in self.domain.definitions]:
            if symbol in self.roots(dims.of(derived)):
                del self._bound[derived]
        if symbol is not None:
            self._masks.pop(symbol, None)
        self._names.clear()

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self, stem: str) -> str:
        """A fresh local name."""
        name, n = stem, 1
        while name in self._taken:
            n += 1
            name = f"{stem}_{n}"
        self._taken.add(name)
        return name

    def enter(self) -> tuple[dict[Symbol, str], dict[tuple[int, str], str]]:
        """Starts a nested scope; give its result to `leave`."""
        saved = dict(self._bound), dict(self._names)
        self.indent += "    "
        return saved

    def leave(self, saved: tuple[dict[Symbol, str], dict[tuple[int, str], str]]) -> None:
        self._bound, self._names = saved
        self.indent = self.indent[:-4]

    # -- index expressions

    def dim(self, dim: Dim) -> str:
        """An index expression; derived variables are computed first, on lines of their own."""
        if not isinstance(dim, Expr):
            return str(dim)
        parts: list[str] = []
        for monomial, coefficient in dim.terms:
            factors = [self._atom(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f"{sign} {' * '.join(factors)}")
        if len(parts) > MOST_TERMS:  # Python's and Triton's parsers nest a level for each
            chunks = [parts[i : i + MOST_TERMS] for i in range(0, len(parts), MOST_TERMS)]
            names = [self.name("terms") for _ in chunks]
            for name, chunk in zip(names, chunks, strict=True):
                self.line(f"{name} = {' '.join(chunk).removeprefix('+ ')}")
            return f"({' + '.join(names)})"
        text = " ".join(parts).removeprefix("+ ")
        return f"({text})" if " " in text else text

    def address(self, dim: Dim) -> str:
        """An offset with its terms grouped by the loops that they depend on.

        So a row's part is added up for the rows, and rows and columns meet in one addition.
        """
        if not isinstance(dim, Expr):
            return str(dim)
        groups: dict[frozenset[Symbol], dict[dims.Monomial, int]] = {}
        for monomial, coefficient in dim.terms:
            roots = self.roots(Expr(((monomial, 1),))) if monomial else set[Symbol]()
            blocks = frozenset(s for s in roots if "[" in self._bound.get(s, ""))
            groups.setdefault(blocks, {})[monomial] = coefficient
        scalar = groups.pop(frozenset(), None)
        if scalar is not None:
            first = min(groups, key=len) if groups else frozenset[Symbol]()
            groups[first] = scalar | groups.get(first, {})
        parts = [self.dim(Expr(tuple(sorted_terms(g)))) for _, g in sorted(
            groups.items(), key=lambda item: len(item[0]))]  # fmt: skip
        return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol):
            return self._variable(atom)
        left, *rest = (self.dim(o) for o in atom.operands)
        if atom.operator in ("max", "min"):
            for right in rest:
                left = f"tl.{atom.operator}imum({left}, {right})"
            return left
        (right,) = rest
        negative = bounds(atom.operands[0])[0] < 0
        if atom.operator == "floordiv":  # Triton divides toward zero
            return (
                f"(({left} - ({left} % {right} + {right}) % {right}) // {right})"
                if negative
                else f"({left} // {right})"
            )
        return f"(({left} % {right} + {right}) % {right})" if negative else f"({left} % {right})"

    def _variable(self, symbol: Symbol) -> str:
        if symbol in self._bound:
            return self._bound[symbol]
        definition = self.domain.definitions.get(symbol)
        if definition is None:
            if symbol in self.domain.extents:
                raise AssertionError(f"loop variable {symbol} is not bound")
            return self.scalars.setdefault(
                symbol, f"dim{len(self.scalars)}_{symbol.name.replace('.', '_')}"
            )
        if definition.operator == "data":
            node = definition.node
            assert isinstance(node, Wrapped)
            text = self.node(node)
        else:
            sign = "//" if definition.operator == "quotient" else "%"
            text = f"{self.dim(definition.dividend)} {sign} {self.dim(definition.divisor)}"
        name = self.name(symbol.name)
        self.line(f"{name} = {text}")
        self._bound[symbol] = name
        return name

    def roots(self, dim: Dim) -> set[Symbol]:
        """The loop variables that an index expression depends on."""
        found: set[Symbol] = set()
        for variable in self.domain.variables_of(dim):
            definition = self.domain.definitions.get(variable)
            if definition is None:
                found.add(variable)
            elif definition.operator == "data":
                assert isinstance(definition.node, Wrapped)
                found |= self._node_roots(definition.node)
            else:
                found |= self.roots(definition.dividend) | self.roots(definition.divisor)
        return found

    def _node_roots(self, node: Node) -> set[Symbol]:
        match node:
            case Load():
                return self.roots(node.offset)
            case Wrapped():
                return self._node_roots(node.index)
            case Index():
                return self.roots(node.value)
            case Apply():
                return set[Symbol]().union(*(self._node_roots(a) for a in node.arguments))
            case Choose():
                of_conditions = (self.roots(d) for pair in node.conditions for d in pair)
                inner = self._node_roots(node.then) | self._node_roots(node.otherwise)
                return inner.union(*of_conditions)
            case _:
                return set()

    def mask(self, variables: Iterable[Symbol], condition: str = "") -> str:
        """The conjunction of the variables' masks and a condition; "" when there is none."""
        used = set(variables)
        parts = [m for s, m in self._masks.items() if s in used]
        return " & ".join([*parts, condition] if condition else parts)

    # -- nodes

    def node(self, node: Node, condition: str = "") -> str:
        """The name (or literal) of a node's tensor; `condition` guards its loads."""
        key = (id(node), condition)
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = self._print(node, condition)
            self._keep.append(node)
        return found

    def _print(self, node: Node, condition: str) -> str:
        match node:
            case Number():
                return _number(node)
            case Given():
                return node.name
            case Load():
                return self._load(node, condition)
            case Index():
                name = self.name("index")
                self.line(f"{name} = {self.dim(node.value)}")
                return (
                    f"({name} + 0).to({triton_type(node.dtype)})"
                    if self.roots(node.value)
                    else f"tl.cast({name}, {triton_type(node.dtype)})"
                )
            case Wrapped():
                index = self.node(node.index, condition)
                name, extent = self.name("row"), self.dim(node.extent)
                whole = (
                    f"tl.full((), {index}, tl.int64)"
                    if isinstance(node.index, Number)
                    else (f"{index}.to(tl.int64)")
                )
                self.line(f"{name} = {whole}")
                self.line(f"{name} = tl.where({name} < 0, {name} + {extent}, {name})")
                self.line(f"{name} = tl.minimum(tl.maximum({name}, 0), {extent} - 1)")
                return name
            case Choose():
                tests = " & ".join(f"({self.dim(a)} < {self.dim(b)})" for a, b in node.conditions)
                test, name = self.name("inside"), self.name("chosen")
                self.line(f"{test} = {tests}")
                both = f"{condition} & {test}" if condition else test
                neither = f"{condition} & ~{test}" if condition else f"({test} == 0)"
                if _is_zero(node.otherwise) and isinstance(node.then, Load):
                    return self.node(node.then, both)  # what is masked is loaded as zero
                then, other = self.node(node.then, both), self.node(node.otherwise, neither)
                self.line(f"{name} = tl.where({test}, {then}, {other})")
                return name
            case Apply():
                return self._apply(node, condition)

    def _apply(self, node: Apply, condition: str) -> str:
        arguments = [self.node(a, condition) for a in node.arguments]
        operand = node.arguments[0].dtype
        attributes = dict(node.attributes)
        spelling = getattr(node.definition, "spelling", None)
        template = spelling("triton", operand, attributes) if spelling else ""
        if not template:
            assert node.op is not None
            raise problem(node.op, f"it has no Triton spelling for {operand}")
        for i, argument in enumerate(node.arguments):
            # A literal has no methods.
            if isinstance(argument, Number) and f"{{{i}}}.to(" in template:
                kind = triton_type(argument.dtype)
                arguments[i] = f"tl.full((), {arguments[i]}, {kind})"
        shown = {n: _attribute(v) for n, v in attributes.items()}
        if (
            self.rounds
            and node.definition.name == "gelu"
            and attributes.get("approximate") == "none"
        ):
            template = "_gelu({0})"  # exact to 16 bits
        name = self.name(node.definition.name)
        for i, argument in enumerate(node.arguments):
            # A bare literal has no methods, and to libdevice the wrong type.
            if isinstance(argument, Number) and (
                f"{{{i}}}." in template or "libdevice" in template
            ):
                kind = triton_type(argument.dtype)
                arguments[i] = f"tl.full([], {arguments[i]}, {kind})"
        self.line(f"{name} = {template.format(*arguments, **shown)}")
        target: Any = attributes.get("dtype")
        if node.definition.name == "cast" and target.is_float and target.bits < 32:
            # A cast rounds; what follows calculates in float32 again.
            self.line(f"{name} = {name}.to(tl.float32)")
        return name

    def stored(self, node: Node) -> str:
        """Like `node`, but a load keeps the type it is stored in, without widening."""
        if isinstance(node, Choose) and _is_zero(node.otherwise) and isinstance(node.then, Load):
            tests = " & ".join(f"({self.dim(a)} < {self.dim(b)})" for a, b in node.conditions)
            test = self.name("inside")
            self.line(f"{test} = {tests}")
            return self._load(node.then, test, widens=False)
        return self._load(node, "", widens=False) if isinstance(node, Load) else self.node(node)

    def _load(self, node: Load, condition: str, *, widens: bool = True) -> str:
        pointer = self.pointers[node.source]
        offset = self.address(node.offset)
        roots = self.roots(node.offset)
        mask = self.mask(roots, condition)
        if condition and not self._is_block(roots):
            # One address for a whole block takes the shape of its condition.
            offset = f"({offset} + ({condition}).to(tl.int32) * 0)"
        stored = node.source.type.dtype
        nothing = "0.0" if stored.is_float and stored.bits == 8 else "0"
        guard = f", mask={mask}, other={nothing}" if mask else ""
        name = self.name(pointer.removeprefix("p_") or "x")
        widen = f".to({triton_type(node.dtype)})" if widens and stored != node.dtype else ""
        self.line(f"{name} = tl.load({pointer} + {offset}{guard}){widen}")
        return name

    def _is_block(self, variables: Iterable[Symbol]) -> bool:
        """Whether an index of these loop variables is surely many at once."""
        return any(v in self._masks or "[" in self._bound.get(v, "") for v in variables)

    def store(
        self, pointer: str, dtype: DType, offset: Dim, node: Node, over: Sequence[Symbol] = ()
    ) -> None:
        """Stores a node as one element of an output; `over`: loop variables that must be in range."""
        text = self.node(node)
        address, roots = self.address(offset), self.roots(offset)
        mask = self.mask({*roots, *over})
        if self._is_block(over) and not self._is_block(roots):
            lanes = " + ".join(f"{self._bound[s]} * 0" for s in over)
            address = f"({address} + {lanes})"
        guard = f", mask={mask}" if mask else ""
        value = text if isinstance(node, Number) else f"tl.cast({text}, {triton_type(dtype)})"
        if dtype is F8E5M2:  # whose infinities a plain conversion makes the largest number
            exact = {"dtype": dtype, "saturate": False}
            value = triton_cast(F32, exact).format(text, dtype=triton_type(dtype))
        self.line(f"tl.store({pointer} + {address}, {value}{guard})")


def sorted_terms(terms: dict[dims.Monomial, int]) -> list[tuple[dims.Monomial, int]]:
    """Terms in the order of a canonical expression."""
    return [(m, terms[m]) for m in sorted(terms, key=lambda m: tuple(map(str, m)))]


def _is_zero(node: Node) -> bool:
    return isinstance(node, Number) and node.value == 0


def _number(node: Number) -> str:
    if node.dtype.kind == "bool":
        return "True" if node.value else "False"
    if node.dtype.is_float:
        value = float(node.value)
        if value != value or value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        return repr(value)
    return str(int(node.value))


def _attribute(value: object) -> str:
    if isinstance(value, DType):
        return triton_type(value)
    return repr(value)
