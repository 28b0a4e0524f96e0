"""Nests of parts as C++ loops, and how they are spread over threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.indices import index_text, operand_text
from graphwright.compiler.codegen.cpp.nest import Part, needed_definitions, shared_loops
from graphwright.compiler.codegen.cpp.scalar_text import Names, ScalarWriter, cpp_template
from graphwright.compiler.codegen.cpp.types import stored
from graphwright.compiler.codegen.expressions import Variable
from graphwright.compiler.codegen.scalar import Apply, Load, index_dims
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import DType

# Below this many items a second loop joins the parallel range.
WANTED_ITEMS = 64


class Nest:
    """Parts with the writers of their scalar code; `lines(depth)` prints the loops.

    `is_parallel`: iterations of the innermost loops do not depend on each other.
    """

    is_parallel = True

    def __init__(
        self,
        parts: Sequence[Part],
        pointers: Mapping[Value, str],
        outputs: Sequence[tuple[str, DType]],
        names: Names,
    ) -> None:
        self.parts = list(parts)
        self.outputs = list(outputs)
        self.writers = [ScalarWriter(p, pointers, names) for p in parts]

    def lines(self, depth: int = 0, *, members: Sequence[int] | None = None) -> list[str]:
        """The code inside the outermost `depth` loops, for the parts that share them."""
        chosen = range(len(self.parts)) if members is None else members
        out: list[str] = []
        for m in chosen:
            out += self.writers[m].statements(depth - 1)
        for _, group in groupby(chosen, key=lambda m: self._loop_key(m, depth)):
            inside = list(group)
            part = self.parts[inside[0]]
            if depth == len(part.loops):
                for m in inside:
                    out += self.stores(m)
                continue
            loop = part.loops[depth]
            extent = index_text(part.extent(loop))
            innermost = all(len(self.parts[m].loops) == depth + 1 for m in inside)
            if innermost and self.is_parallel:
                out.append("GW_IVDEP")
            out.append(f"for (int64_t {loop.name} = 0; {loop.name} < {extent}; ++{loop.name}) {{")
            out += [f"  {line}" for line in self.lines(depth + 1, members=inside)]
            out.append("}")
        return out

    def _loop_key(self, member: int, depth: int) -> tuple[str, Dim]:
        part = self.parts[member]
        if depth == len(part.loops):
            return "", member
        loop = part.loops[depth]
        return loop.name, part.extent(loop)

    def stores(self, member: int) -> list[str]:
        """The statements that write one point of a part."""
        writer = self.writers[member]
        lines: list[str] = []
        for store in self.parts[member].stores:
            name, dtype = self.outputs[store.output]
            value = stored(dtype, writer.text(store.node))
            lines.append(f"{name}[{writer.index(store.offset)}] = {value};")
        return lines


def model_symbols(parts: Sequence[Part]) -> list[Symbol]:
    """The model symbols that the parts' code mentions, in order of first use."""
    found: dict[Symbol, None] = {}

    def see(part: Part, dim: Dim) -> None:
        found.update(dict.fromkeys(part.domain.model_symbols_of(part.resolve(dim))))

    for part in parts:
        for loop in part.loops:
            see(part, part.extent(loop))
        for definition in needed_definitions(part).values():
            see(part, definition.dividend)
            see(part, definition.divisor)
        for node in part.nodes:
            for dim in index_dims(node):
                see(part, dim)
        for store in part.stores:
            see(part, store.offset)
    return list(found)


def element_cost(part: Part) -> int:
    """About how many bytes of traffic (or equal time) one point of the part costs."""
    cost = 4 * len(part.stores)
    for node in part.nodes:
        if isinstance(node, Load):
            cost += node.source.type.dtype.bytes
        elif isinstance(node, Apply):
            # A function that takes floats only is an elementary one, or costs about as much.
            function = "gw::" in cpp_template(node)
            cost += 8 if function and getattr(node.definition, "accepts", "") == "float" else 1
    return cost


def parallel_depth(parts: Sequence[Part]) -> int:
    """How many outermost loops form the parallel range; 0 when the parts share none."""
    most = min([shared_loops(parts), *(max(len(p.loops) - 1, 1) for p in parts)])
    items = 1
    for depth in range(most):
        items *= typical(parts[0].extent(parts[0].loops[depth]))
        if items >= WANTED_ITEMS:
            return depth + 1
    return most


def typical(dim: Dim) -> int:
    """The dim's value at the sizes that symbols are optimised for."""
    value = dims.substitute(dim, {s: s.typical for s in dims.symbols_of(dim)})
    assert isinstance(value, int)
    return value


def emit_nest(
    builder: KernelBuilder,
    parts: Sequence[Part],
    pointers: Mapping[Value, str],
    outputs: Sequence[tuple[str, DType]],
    names: Names,
    *,
    suffix: str = "",
) -> None:
    """Adds the worker functions of a nest and their parallel calls to the kernel."""
    depth = parallel_depth(parts) if parts else 0
    if parts and depth == 0 and len(parts) > 1:
        for i, part in enumerate(parts):
            emit_nest(builder, [part], pointers, outputs, names, suffix=f"{suffix}_{i}")
        return
    if not parts:
        return
    nest = Nest(parts, pointers, outputs, names)
    worker = f"KERNEL_NAME{suffix}_part"
    builder.symbols(model_symbols(parts))
    if depth == 0:
        lines = nest.lines()
        builder.functions.append(_function(worker, builder.parameter_list, lines))
        builder.body.append(f"{worker}({builder.argument_list});")
        return
    loops = parts[0].loops[:depth]
    extents = [parts[0].extent(v) for v in loops]
    count = dims.product(extents)
    inner = dims.product(parts[0].extent(v) for v in parts[0].loops[depth:])
    cost = dims.multiply(inner, max(element_cost(p) for p in parts))
    if depth == len(parts[0].loops) == 1:
        count = dims.of(Variable(builder.scalar(f"n{suffix}", count)))
    head = [*nest_head(nest)]
    if depth == 1:
        variable = loops[0].name
        opening = f"for (int64_t {variable} = begin; {variable} < end; ++{variable}) {{"
        decode: list[str] = []
    else:
        opening = "for (int64_t item = begin; item < end; ++item) {"
        decode = _decode([v.name for v in loops], extents)
    outer = [x for w in nest.writers for k in range(depth - 1) for x in w.statements(k)]
    inside = [*decode, *outer, *nest.lines(depth)]
    flat = all(len(p.loops) == depth for p in parts)
    lines = [*head, *(["GW_IVDEP"] if flat else []), opening, *(f"  {x}" for x in inside), "}"]
    builder.functions.append(
        _function(worker, f"{builder.parameter_list}, int64_t begin, int64_t end", lines)
    )
    builder.body += parallel_call(worker, builder.argument_list, count, cost)


def emit_parallel(
    builder: KernelBuilder,
    suffix: str,
    items: Dim,
    loops: Sequence[tuple[str, Dim]],
    lines: Sequence[str],
    cost: Dim,
) -> None:
    """Adds a worker function over items, whose loop variables it decodes, and its parallel call."""
    worker = f"KERNEL_NAME_{suffix}"
    for dim in (items, cost, *(e for _, e in loops)):
        builder.symbols(dims.symbols_of(dim))
    names = [name for name, _ in loops]
    decode = _decode(names, [e for _, e in loops]) if len(loops) != 1 else []
    item = names[0] if len(names) == 1 else "item"
    head = f"for (int64_t {item} = begin; {item} < end; ++{item}) {{"
    body = [head, *(f"  {x}" for x in [*decode, *lines]), "}"]
    parameters = f"{builder.parameter_list}, int64_t begin, int64_t end"
    builder.functions.append(_function(worker, parameters, body))
    builder.body += parallel_call(worker, builder.argument_list, items, cost)


def parallel_call(worker: str, arguments: str, items: Dim, cost: Dim) -> list[str]:
    """The statement that runs a worker function over items on the pool."""
    return [
        f"gw::parallel_for(pool, {index_text(items)}, gw::grain({index_text(cost)}),",
        "                 [=](int64_t begin, int64_t end, int) {",
        f"                   {worker}({arguments}, begin, end);",
        "                 });",
    ]


def nest_head(nest: Nest) -> list[str]:
    """Statements that depend on no loop."""
    return [line for w in nest.writers for line in w.statements(-1)]


def _decode(names: Sequence[str], extents: Sequence[Dim]) -> list[str]:
    """Loop variables from the running number `item` of their product space."""
    lines: list[str] = []
    rest = "item"
    for k in range(len(names) - 1, 0, -1):
        extent = operand_text(extents[k])
        lines.append(f"const int64_t {names[k]} = {rest} % {extent};")
        rest = f"{rest} / {extent}"
    return [*lines, f"const int64_t {names[0]} = {rest};"] if names else []


def serial_function(name: str, parameters: str, lines: Sequence[str]) -> str:
    """A worker function that runs once, on the calling thread."""
    return _function(name, parameters, lines)


def _function(name: str, parameters: str, lines: Sequence[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"static void {name}({_wrap(parameters, 4)}) {{\n{body}\n}}\n"


def _wrap(text: str, indent: int) -> str:
    lines, line = [], ""
    for part in text.split(", "):
        if len(line) + len(part) > 90:
            lines.append(line)
            line = ""
        line = f"{line}, {part}" if line else part
    lines.append(line)
    return f",\n{' ' * indent}".join(lines)
