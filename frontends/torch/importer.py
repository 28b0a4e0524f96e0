"""Functional ATen graphs to the IR: one call after another, every problem collected.

The importer knows no op.  A call is made by its function in a `compose_*` file, or by the declaration
in the registry that says it is the same up to names.  torch's own stand-in for each result (its type
and shape) is compared with what was made.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import DimError
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Recipe
from graphwright.compiler.ir.op import InferenceError, Registry
from graphwright.compiler.ir.types import I64, TensorType
from graphwright.errors import CompileError, GraphwrightError, Problem
from graphwright.frontends.torch import composed, direct
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.node import Node, op_name
from graphwright.frontends.torch.program import InputSpec, Program
from graphwright.frontends.torch.refusal import Refusal, Tainted
from graphwright.frontends.torch.scalars import scalar_value
from graphwright.frontends.torch.symbols import Symbols, expression_of
from graphwright.frontends.torch.tensors import literal_of

# What a graph says about itself: checks of sizes that the signature makes again, and brackets.
CHECKS = {
    "_assert_scalar.default", "_assert_async.msg", "_assert_async.default",
    "_assert_tensor_metadata.default", "sym_constrain_range.default",
    "sym_constrain_range_for_size.default", "sym_size.int", "sym_stride.int", "sym_numel.default",
    "sym_storage_offset.default", "sym_is_contiguous.default",
}  # fmt: skip


class Importer:
    """One import of a program into a graph: values of nodes, symbols, problems so far."""

    def __init__(
        self, program: Program, *, registry: Registry, allow: frozenset[str] = frozenset()
    ) -> None:
        self.program, self.allow = program, allow
        self.graph = Graph(program.name, registry=registry)
        self.symbols = Symbols(program.ranges, program.names)
        self.symbols.on_unbacked = self.bind_symbol
        self.problems: list[Problem] = []
        self.direct = registry.imported("aten")
        self.values: dict[torch.fx.Node, Any] = {}
        self.module: torch.fx.GraphModule = program.module
        # Numbers that the data decide: what `item` read, and symbols that are bound already.
        self.items: dict[sympy.Symbol, Value] = {}
        self.bound: set[sympy.Symbol] = set()
        self.shaped: set[sympy.Symbol] = set()
        self.updated: set[Any] = set()  # inputs that the graph has new values for

    # -- graphs

    def run(self) -> Graph:
        """The graph.  `problems` says whether it is whole."""
        self.shaped = self.symbols_of_shapes()
        self.scale_symbols()
        specs = enumerate(self.program.inputs)
        written = {o.target for o in self.program.outputs if o.kind != "user"}
        for fx in self.module.graph.nodes:
            if fx.op == "placeholder":
                place, spec = next(specs)
                made = self.values[fx] = self.add_placeholder(fx, spec)
                if place in written:
                    self.updated.add(made)
            elif fx.op == "output":
                self.set_outputs(fx)
            else:
                self.import_node(fx)
        return self.graph

    def symbols_of_shapes(self) -> set[sympy.Symbol]:
        """The symbols that are an extent of an input, from which every call reads them."""
        found: set[sympy.Symbol] = set()
        for fx in self.module.graph.nodes:
            held = fx.meta.get("val") if fx.op == "placeholder" else None
            if isinstance(held, torch.Tensor):
                found.update(
                    e for d in held.shape if isinstance(e := expression_of(d), sympy.Symbol)
                )
        return found

    def scale_symbols(self) -> None:
        """Symbols that inputs show only times a number (2 * half) give way to the product."""
        for fx in self.module.graph.nodes:
            held = fx.meta.get("val") if fx.op == "placeholder" else None
            for extent in held.shape if isinstance(held, torch.Tensor) else ():
                e = expression_of(extent)
                number, rest = e.as_coeff_Mul()
                if isinstance(rest, sympy.Symbol) and rest not in self.shaped and number.is_Integer:
                    self.symbols.dim(extent)  # which knows the ranges
                    self.symbols.scale(rest, int(number))
                    self.shaped.add(rest)

    def add_placeholder(self, fx: torch.fx.Node, spec: InputSpec) -> Any:
        held = fx.meta.get("val", spec.constant)
        if spec.kind == "size":
            return self.add_size(held, spec)
        if spec.kind == "number" or not isinstance(held, torch.Tensor):
            return held
        try:
            if spec.kind == "weight":
                assert spec.tensor is not None
                return self.constant(spec.tensor, spec.name)
            shape = tuple(self.symbols.dim(d) for d in held.shape)
            order = spec.order or tuple(range(len(shape)))
            type = TensorType(element_type(held.dtype), tuple(shape[a] for a in order))
            value = self.graph.add_input(spec.name, type)
            if spec.order is not None:
                back = tuple(order.index(a) for a in range(len(order)))
                op = self.graph.create(
                    "transpose", (value,), {"permutation": back}, origins=(fx.name,)
                )
                value = op.result
        except Refusal as e:
            self.report(fx, e.reason, e.fix)
            return TAINTED
        value.equals = fx.name
        return value

    def add_size(self, held: Any, spec: InputSpec) -> Any:
        """An integer argument: known from a tensor's shape, or an input that binds its symbol."""
        e = expression_of(held)
        if isinstance(e, sympy.Symbol) and e not in self.shaped:
            self.items[e] = self.graph.add_input(spec.name, TensorType(I64, ()))
        return held

    def constant(self, tensor: torch.Tensor, name: str) -> Value:
        """A constant that shares the tensor's memory."""
        op = self.graph.create(
            "constant", (), {"value": literal_of(tensor), "recipe": Recipe(source=name)},
            origins=(name,), names=(name,),
        )  # fmt: skip
        return op.result

    def set_outputs(self, fx: torch.fx.Node) -> None:
        results = fx.args[0]
        assert isinstance(results, list | tuple)
        values: list[Value] = []
        names: list[str] = []
        for raw, spec in zip(results, self.program.outputs, strict=True):
            if raw is None or not isinstance(raw, torch.fx.Node):
                continue
            try:
                found = self.value_of(raw)
                if not isinstance(found, Value):
                    found = self.scalar_of(Node(self, raw, raw.name), raw)
            except Tainted:
                continue
            except Refusal as e:
                self.report(raw, e.reason, e.fix)
                continue
            if spec.order is not None:
                found = self.graph.create(
                    "transpose", (found,), {"permutation": spec.order}, origins=(raw.name,)
                ).result
            values.append(found)
            names.append(spec.name)
        self.graph.set_outputs(values, names)

    def import_node(self, fx: torch.fx.Node) -> None:
        """Makes the call's ops; what goes wrong becomes a problem."""
        try:
            self.values[fx] = self.lower(fx)
        except Tainted:
            self.values[fx] = TAINTED
        except Refusal as e:
            self.report(fx, e.reason, e.fix)
        except (InferenceError, DimError) as e:
            self.report(fx, str(e))
        except GraphwrightError:
            raise
        except Exception as e:
            raise CompileError(
                f"{origin_of(fx)} ({op_name(fx.target)}) broke the importer, which is a fault of "
                f"graphwright: {type(e).__name__}: {e}"
            ) from e

    def import_inner(
        self, module: torch.fx.GraphModule, operands: Sequence[Any], graph: Graph
    ) -> list[Any]:
        """The results of a graph of its own (of a higher-order op), its ops made in `graph`."""
        kept = self.graph, self.values, self.module
        self.graph, self.values, self.module = graph, {}, module
        given = iter(operands)
        results: Any = ()
        try:
            for fx in module.graph.nodes:
                if fx.op == "placeholder":
                    self.values[fx] = next(given)
                elif fx.op == "output":
                    found = fx.args[0] if isinstance(fx.args[0], list | tuple) else [fx.args[0]]
                    results = [
                        self.value_of(r) if isinstance(r, torch.fx.Node) else r for r in found
                    ]  # type: ignore[union-attr]
                else:
                    self.import_node(fx)
        finally:
            self.graph, self.values, self.module = kept
        return list(results)

    def report(self, fx: torch.fx.Node, reason: str, fix: str = "") -> None:
        self.values[fx] = TAINTED
        where = source_line(fx)
        self.problems.append(
            Problem(
                origin_of(fx), op_name(fx.target), f"{reason} [{where}]" if where else reason, fix
            )
        )

    def lower(self, fx: torch.fx.Node) -> Any:
        if fx.op == "get_attr":
            return self.attribute(fx)
        if fx.op != "call_function":
            raise Refusal(f"a {fx.op} of {fx.target} is no ATen op")
        name = op_name(fx.target)
        held = fx.meta.get("val")
        if fx.target is operator.getitem and not isinstance(held, torch.SymInt):
            source, index = fx.args
            found = self.value_of(source)  # type: ignore[arg-type]
            part = found[index]
            if part is None:
                raise Refusal(f"result {index} of {op_name(source.target)} is not supported")  # type: ignore[union-attr]
            return part
        if name in CHECKS:
            return None
        node = Node(self, fx, origin_of(fx))
        compose, declared = composed.COMPOSE.get(name), self.direct.get(name)
        for argument in fx.all_input_nodes:
            if self.values.get(argument) is TAINTED:
                raise Tainted
        if compose is None and declared is None:
            if isinstance(held, torch.SymInt | torch.SymFloat | torch.SymBool | int | float):
                return None  # the value is its expression
            raise Refusal(f"the op {name} is not supported", "replace it by other ops")
        if compose is not None:
            made = compose(node)
        else:
            assert declared is not None
            made = direct.import_direct(node, declared)
        for argument in node.unread():
            raise Refusal(f"its argument {argument} is not supported for {name}")
        return self.checked(fx, held, made)

    def checked(self, fx: torch.fx.Node, held: Any, made: Any) -> Any:
        """What was made, once it has the type that torch says.  One result is a value, several a list."""
        if isinstance(held, torch.Tensor):
            value = made if isinstance(made, Value) else made[0]
            return self.agreed(fx, held, value)
        if isinstance(held, list | tuple):
            values = [made] if isinstance(made, Value) else list(made)
            return [
                self.agreed(fx, h, v) if isinstance(h, torch.Tensor) and v is not None else v
                for h, v in zip(held, values, strict=False)
            ]
        return made

    def agreed(self, fx: torch.fx.Node, held: torch.Tensor, value: Value) -> Value:
        dtype = element_type(held.dtype)
        shape = tuple(self.symbols.dim(d) for d in held.shape)
        wrong = value.type.dtype is not dtype or value.type.rank != len(shape)
        if wrong or any(
            dims.prove(a, "==", b) is False for a, b in zip(value.type.shape, shape, strict=True)
        ):
            raise CompileError(
                f"{origin_of(fx)} ({op_name(fx.target)}) became {value.type}, torch says "
                f"{TensorType(dtype, shape)}: a fault of graphwright"
            )
        if value.type.shape != shape:  # one size written in two ways
            value = self.graph.create(
                "reshape", (value,), {"shape": shape}, origins=(origin_of(fx),)
            ).result
        if not value.name:
            value.name = fx.name
        if not value.equals:
            value.equals = fx.name
        return value

    def attribute(self, fx: torch.fx.Node) -> Any:
        found: Any = self.module
        for part in str(fx.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            return self.constant(found, str(fx.target))
        return found

    # -- values

    def value_of(self, fx: torch.fx.Node) -> Any:
        """The value of a node (a list for several).  Raises Tainted when it was refused."""
        found = self.values.get(fx)
        if found is TAINTED:
            raise Tainted
        return found

    # -- numbers that are not known now

    def scalar_of(self, node: Node, raw: Any) -> Value:
        """A symbolic number as a rank-0 tensor: i64, f64 or bool."""
        held = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else raw
        return scalar_value(node, expression_of(held))

    def bind_symbol(self, symbol: sympy.Symbol) -> None:
        """A size that `item` read is bound when it is first used as a size."""
        if symbol in self.bound or symbol not in self.items:
            return
        self.bound.add(symbol)
        number = self.items[symbol]
        if number.type.dtype is not I64:
            number = self.graph.create("cast", (number,), {"dtype": I64}).result
        self.graph.create("bind", (number,), {"symbols": (dims.of(self.symbols.symbol(symbol)),)})

    index_type = I64

    def is_item(self, raw: Any) -> bool:
        """Whether an argument is a number that was read from a tensor."""
        held = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else None
        if not isinstance(held, torch.SymInt):
            return False
        return bool(expression_of(held).free_symbols & self.items.keys())

    def declare_item(self, symbol: sympy.Symbol, number: Value) -> None:
        self.items[symbol] = number

    def declare_size(self, symbol: sympy.Symbol, count: Value, most: dims.Dim) -> dims.Dim:
        """Binds a symbol to a count that an op found, at most `most`."""
        ours = dims.of(self.symbols.symbol(symbol))
        self.graph.create("bind", (count,), {"symbols": (ours,), "at_most": (most,)})
        self.bound.add(symbol)
        return ours


class _Tainted:
    def __repr__(self) -> str:
        return "<refused>"


TAINTED = _Tainted()


def origin_of(fx: torch.fx.Node) -> str:
    """`layers.0.attention/linear_3`: the module that called, and the node."""
    stack: Mapping[str, Any] = fx.meta.get("nn_module_stack") or {}
    path = ""
    if stack:
        last = list(stack.values())[-1]
        path = str(last[0] if isinstance(last, Sequence) else last)
        path = path.removeprefix("L['self']").removeprefix("._modules").strip(".")
        for noise in ("L__self___", "['", "']", "._modules"):
            path = path.replace(noise, "." if noise == "['" else "")
        path = path.strip(".")
    return f"{path}/{fx.name}" if path else fx.name


def source_line(fx: torch.fx.Node) -> str:
    """The author's line: the last one of the stack, with its file's name alone."""
    trace = fx.meta.get("stack_trace")
    if not trace:
        return ""
    lines = [t.strip() for t in trace.strip().splitlines()]
    lines = [t for t in lines if t.strip("^~ ")]  # not the marks below
    frames = [t for t in lines if t.startswith("File ")]
    if not frames:
        return ""
    path, number, *_ = [p.strip() for p in frames[-1].removeprefix("File ").split(",")]
    code = lines[-1] if not lines[-1].startswith("File ") else ""
    return f"{path.strip(chr(34)).rsplit('/', 1)[-1]}:{number.removeprefix('line ')} {code}".strip()
