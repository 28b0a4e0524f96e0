"""ONNX graphs to the IR: names to values, one node after another, every problem collected.

The importer knows no op.  An op of the default domain is made by its function in a `compose_*`
file, by the declaration in the registry that says it is the same up to names, or from the function
body that its schema gives; model-local functions are inlined before any of those.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TypeAlias

import onnx
from onnx import FunctionProto, NodeProto

from graphwright.compiler.ir.dims import MAX_EXTENT, Dim, DimError, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import InferenceError, Registry
from graphwright.errors import CompileError, GraphwrightError, InvalidModelError, Problem
from graphwright.frontends.onnx import composed, direct, schema
from graphwright.frontends.onnx.branches import decide
from graphwright.frontends.onnx.containers import Entry, NotAppended
from graphwright.frontends.onnx.contents import Contents, is_symbolic
from graphwright.frontends.onnx.late import Undecided
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.scope import ABSENT, TAINTED, Scope
from graphwright.frontends.onnx.structure import domain_of, label, order_nodes
from graphwright.frontends.onnx.symbols import identifier
from graphwright.frontends.onnx.tensors import TensorReader

FunctionKey: TypeAlias = tuple[str, str, str]  # domain, name, overload


class Importer:
    """One import: its registry, weights, functions, known contents and problems so far."""

    def __init__(
        self,
        model: onnx.ModelProto,
        tensors: TensorReader,
        *,
        registry: Registry,
        allow: frozenset[str],
    ) -> None:
        self.tensors, self.registry, self.allow = tensors, registry, allow
        self.contents = Contents()
        self.problems: list[Problem] = []
        self.defaults: dict[str, Literal] = {}
        self.direct = registry.imported("onnx")
        self.symbol_names: set[str] = set()
        self.functions: dict[FunctionKey, FunctionProto] = {}
        # Counters of loops and numbers more, as bodies see them: which loop, its trip count where that
        # is known, and the number.
        self.counters: dict[Value, tuple[object, Dim | None, int]] = {}
        self._sizes: dict[Value, Value] = {}
        self._open: list[FunctionKey] = []
        for f in model.functions:
            key = (domain_of(f.domain), f.name, f.overload)
            if key in self.functions:
                raise InvalidModelError(f"the function {f.domain}:{f.name} is defined twice")
            self.functions[key] = f

    # -- graphs

    def import_nodes(self, nodes: Sequence[NodeProto], scope: Scope, where: str) -> None:
        for index, proto in order_nodes(nodes, scope, where):
            self.import_node(proto, scope, scope.prefix + label(proto, index))

    def import_node(self, proto: NodeProto, scope: Scope, origin: str) -> None:
        """Makes the node's ops and names its outputs; what goes wrong becomes a problem."""
        results: Sequence[Entry | None]
        try:
            node = Node(self, scope, proto, origin)
            results = self.lower_or_decide(node)
            self.check_attributes(node)
            if len(results) < node.outputs:
                raise Refusal(
                    f"its output {len(results)} ({proto.output[len(results)]!r}) is not supported"
                )
        except Tainted:
            results = ()
        except Refusal as e:
            self.report(proto, scope, origin, e.reason, e.fix)
            results = ()
        except (InferenceError, DimError) as e:
            self.report(proto, scope, origin, str(e))
            results = ()
        except (GraphwrightError, NotAppended):
            raise
        except Exception as e:
            raise CompileError(
                f"{origin} ({proto.op_type}) broke the importer, which is a fault of graphwright: "
                f"{type(e).__name__}: {e}"
            ) from e
        for i, name in enumerate(proto.output):
            if not name:
                continue
            result = results[i] if i < len(results) else None
            if result is None and results:
                self.report(proto, scope, origin, f"its output {i} ({name!r}) is not supported")
            scope.names[name] = TAINTED if result is None else self.named(result, scope, name)

    def named(self, value: Entry, scope: Scope, name: str) -> Entry:
        if not isinstance(value, Value):
            return value
        # Inside functions and branches one name can stand for many tensors.
        if not value.name:
            value.name = name
        if not value.equals and scope.parent is None and not scope.prefix:
            value.equals = name
        return value

    def report(
        self, proto: NodeProto, scope: Scope, origin: str, reason: str, fix: str = ""
    ) -> None:
        domain = domain_of(proto.domain)
        op = f"{domain}:{proto.op_type}" if domain else proto.op_type
        words = set(re.findall(r"\w+", reason))
        attribute = next((a.name for a in proto.attribute if a.name in words), "")
        version = scope.opset(proto.domain)
        self.problems.append(Problem(origin, op, reason, fix, version, attribute))

    def lower_or_decide(self, node: Node) -> Sequence[Entry | None]:
        """The values of the node's outputs; where an input decides, of each choice in a branch."""
        try:
            return self.lower(node)
        except Undecided as undecided:
            node.ignore(*node.attribute_protos)
            return decide(node, undecided)

    def fresh_symbol(self, name: str, *, low: int = 0, high: int = MAX_EXTENT) -> Symbol:
        """A symbol under a name that no other one of this model has."""
        wish = identifier(name)
        chosen = wish
        for count in itertools.count(2):
            if chosen not in self.symbol_names:
                break
            chosen = f"{wish}_{count}"
        self.symbol_names.add(chosen)
        return Symbol(chosen, low, high)

    def lower(self, node: Node) -> Sequence[Entry | None]:
        """The values of the node's outputs, made by whoever knows the op."""
        proto = node.proto
        domain = domain_of(proto.domain)
        function = self.functions.get((domain, proto.op_type, proto.overload))
        if function is not None:
            return self.inline(node, function)
        if domain not in node.scope.opsets:
            raise Refusal(f"the model imports no version of the domain {domain or 'ai.onnx'!r}")
        key = f"{domain}:{proto.op_type}" if domain else proto.op_type
        declared, compose = self.direct.get(key), composed.COMPOSE.get(key)
        body: FunctionProto | None = None
        if not domain:
            schema.check_known(node)
        elif declared is None and compose is None:
            body = schema.function_body(node)
        if domain and declared is None and compose is None and body is None:
            raise Refusal(
                f"there is no op {proto.op_type} of the domain {domain!r} here",
                "declare it with custom_ops, or replace it by standard ops",
            )
        for name in proto.input:
            if name and node.scope.find(name) is TAINTED:
                raise Tainted
        if compose is not None:
            made = compose(node)
            return made if isinstance(made, Sequence) else (made,)
        if declared is not None:
            return direct.import_direct(node, declared)
        body = body or schema.function_body(node)
        if body is None:
            raise Refusal(f"the op {proto.op_type} is not supported", "replace it by other ops")
        return self.inline(node, body)

    def check_attributes(self, node: Node) -> None:
        """Raises Refusal for an attribute that nobody read and that is not just the default."""
        for attribute in node.unread():
            if not schema.is_default(node, attribute):
                raise Refusal(f"its attribute {attribute.name} is not supported for {node.type}")

    def inline(self, node: Node, function: FunctionProto) -> Sequence[Entry | None]:
        """The function's results for the node's inputs and attributes."""
        key = (domain_of(function.domain), function.name, function.overload)
        if key in self._open:
            raise InvalidModelError(f"the function {function.domain}:{function.name} calls itself")
        given = node.attribute_protos
        attributes = {a.name: a for a in function.attribute_proto}
        attributes |= {n: given[n] for n in function.attribute if n in given}
        attributes |= {a.name: given[a.name] for a in function.attribute_proto if a.name in given}
        node.ignore(*given)
        opsets = {domain_of(o.domain): o.version for o in function.opset_import}
        scope = Scope(
            node.graph, opsets or node.scope.opsets, attributes=attributes, prefix=f"{node.origin}/"
        )
        for i, name in enumerate(function.input):
            scope.names[name] = (
                node.scope.find(node.proto.input[i]) if node.has_input(i) else ABSENT
            )
        self._open.append(key)
        try:
            self.import_nodes(function.node, scope, f"function {function.name}")
        finally:
            self._open.pop()
        out: list[Entry | None] = []
        for i, name in enumerate(function.output):
            if not node.wants(i):
                out.append(None)
                continue
            out.append(scope.entry(name))
        return out

    # -- known contents

    def default_under(self, value: Value) -> str:
        """The name of an overridable initializer that the value is computed from, or ""."""
        for source in _inputs_under(value):
            if source.name in self.defaults:
                return source.name
        return ""

    def is_of_sizes(self, value: Value) -> bool:
        """Whether a value is computed from sizes and constants alone."""
        return not _inputs_under(value)

    def counter_of(self, value: Value) -> tuple[object, Dim | None, int] | None:
        """(loop, its trip count, number) of one element that is a loop's counter plus a number."""
        offset = 0
        while value not in self.counters:
            op = value.op
            if op is None or op.name not in ("add", "sub", "reshape", "cast"):
                return None
            value = op.operands[0]
            if op.name in ("add", "sub"):
                a, b = (self.contents.of(v) for v in op.operands)
                if b is None and a is not None and op.name == "add":
                    value, b = op.operands[1], a
                if b is None or b.size != 1 or b.dtype.kind not in "iu":
                    return None
                offset += int(b.reshape(()).item()) * (1 if op.name == "add" else -1)
        loop, trips, before = self.counters[value]
        return loop, trips, before + offset

    def is_same(self, a: Value, b: Value) -> bool:
        """Whether two values are one, perhaps as `as_sizes` gives it."""
        return a is b or self._sizes.get(a) is b

    def as_sizes(self, value: Value) -> Value:
        """A small integer tensor of symbolic sizes as one `from_dims`, not as the ops that led there."""
        op = value.op
        if op is None or op.name in ("constant", "from_dims") or not value.type.dtype.is_integer:
            return value
        if value.type.rank > 1 or not value.type.is_static or value.type.elements > 64:  # type: ignore[operator]
            return value
        if value not in self._sizes:
            array = self.contents.of(value)
            made = value
            if array is not None and is_symbolic(array) and None not in list(array.flat):
                source = value.graph.create(
                    "from_dims",
                    (),
                    {"dims": tuple(array.reshape(-1)), "scalar": value.type.rank == 0},
                    origins=op.origins,
                )
                made = source.result
                if value.type.dtype is not made.type.dtype:
                    made = value.graph.create(
                        "cast", (made,), {"dtype": value.type.dtype}, origins=op.origins
                    ).result
            self._sizes[value] = made
        return self._sizes[value]


def _inputs_under(value: Value) -> list[Value]:
    """The graph inputs that a value is computed from."""
    stack, seen, found = [value], {value}, []
    while stack:
        top = stack.pop()
        if top.op is None:
            found.append(top)
            continue
        for operand in top.op.operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return found
