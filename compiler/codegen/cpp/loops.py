"""Nests of parts as C++ loops, and how they are spread over threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.nest import Part, shared_loops
from graphwright.compiler.codegen.cpp.scalar_text import Names, ScalarWriter, cpp_template
from graphwright.compiler.codegen.cpp.types import stored
from graphwright.compiler.codegen.expressions import Variable
from graphwright.compiler.codegen.scalar import Apply, Load
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
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
        builder: KernelBuilder,
        parts: Sequence[Part],
        pointers: Mapping[Value, str],
        outputs: Sequence[tuple[str, DType]],
        names: Names,
    ) -> None:
        self.parts = list(parts)
        self.outputs = list(outputs)
        self.writers = [ScalarWriter(p, pointers, names, builder.size) for p in parts]
        self.size = builder.size

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
            extent = self.size(part.extent(loop))
            innermost = all(len(self.parts[m].loops) == depth + 1 for m in inside)
            body = self.lines(depth + 1, members=inside)
            if innermost and self.is_parallel:
                out.append("GW_IVDEP")
            if innermost and must_stay_rolled(extent, body):
                out.append("GW_ROLLED")
            out.append(f"for (int64_t {loop.name} = 0; {loop.name} < {extent}; ++{loop.name}) {{")
            out += [f"  {line}" for line in body]
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
        # A symbol may be as small as its range allows: a batch of one must not mean one thread.
        items *= max(dims.bounds(parts[0].extent(parts[0].loops[depth]))[0], 1)
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
    if not parts:
        return
    depth = parallel_depth(parts)
    if depth == 0 and len(parts) > 1:
        for i, part in enumerate(parts):
            emit_nest(builder, [part], pointers, outputs, names, suffix=f"{suffix}_{i}")
        return
    nest = Nest(builder, parts, pointers, outputs, names)
    worker = f"KERNEL_NAME{suffix}_part"
    if depth == 0:
        lines = nest.lines()
        builder.functions.append(_function(worker, builder.parameter_list, lines))
        builder.body.append(f"{worker}({builder.argument_list});")
        return
    loops = [(v.name, parts[0].extent(v)) for v in parts[0].loops[:depth]]
    count = dims.product(extent for _, extent in loops)
    inner = dims.product(parts[0].extent(v) for v in parts[0].loops[depth:])
    cost = dims.multiply(inner, max(element_cost(p) for p in parts))
    if depth == len(parts[0].loops) == 1:
        count = dims.of(Variable(builder.scalar(f"count{suffix}", count)))
    head = [line for w in nest.writers for line in w.statements(-1)]
    outer = [x for w in nest.writers for k in range(depth - 1) for x in w.statements(k)]
    inside = [*outer, *nest.lines(depth)]
    flat = all(len(p.loops) == depth for p in parts)
    lines = [*head, *item_loop(builder, loops, inside, flat=flat)]
    _run_in_parallel(builder, worker, lines, count, cost)


def emit_parallel(
    builder: KernelBuilder,
    suffix: str,
    items: Dim,
    loops: Sequence[tuple[str, Dim]],
    lines: Sequence[str],
    cost: Dim,
) -> None:
    """Adds a worker function over items, the points of the loops, and its parallel call."""
    worker = f"KERNEL_NAME_{suffix}"
    body = item_loop(builder, loops, lines)
    _run_in_parallel(builder, worker, body, items, cost)


def must_stay_rolled(extent: object, body: Sequence[str]) -> bool:
    """Whether a loop is one that GW_ROLLED is about (gw/loops.h)."""
    return str(extent) == "2" and any(" ? " in line or "if (" in line for line in body)


def item_loop(
    builder: KernelBuilder,
    loops: Sequence[tuple[str, Dim]],
    inside: Sequence[str],
    *,
    flat: bool = False,
) -> list[str]:
    """The loop over items [begin, end) of the loops' product space, the last loop fastest.

    Loop variables start from a division and go on by counting.  `flat`: nothing inside depends on
    another item.
    """
    body = [f"  {x}" for x in inside]
    if len(loops) == 1:
        ((name, _),) = loops
        head = f"for (int64_t {name} = begin; {name} < end; ++{name}) {{"
        return [*(["GW_IVDEP"] if flat else []), head, *body, "}"]
    start: list[str] = []
    advance: list[str] = []
    rest = "begin"
    for k in range(len(loops) - 1, -1, -1):
        name, extent = loops[k]
        if k == 0:
            start.append(f"int64_t {name} = {rest};")
            advance.append(f"{'  ' * len(advance)}++{name};")
            continue
        text = builder.size(extent)
        start.append(f"int64_t {name} = {rest} % {text};")
        rest = f"{rest} / {text}"
        depth = "  " * len(advance)
        advance.append(f"{depth}if (++{name} == {text}) {{ {name} = 0;")
    if advance:
        nested = " ".join(a.strip() for a in advance)
        body.append(f"  {nested}{' }' * (len(loops) - 1)}")
    return [*start, "for (int64_t item = begin; item < end; ++item) {", *body, "}"]


def _run_in_parallel(
    builder: KernelBuilder, worker: str, lines: Sequence[str], items: Dim, cost: Dim
) -> None:
    """Adds the worker function and the statement that runs it over items on the pool."""
    parameters, arguments = builder.parameter_list, builder.argument_list
    builder.functions.append(_function(worker, f"{parameters}, int64_t begin, int64_t end", lines))
    builder.body += [
        f"gw::parallel_for(pool, {builder.size(items)}, gw::grain({builder.size(cost)}),",
        "                 [=](int64_t begin, int64_t end, int) {",
        f"                   {worker}({arguments}, begin, end);",
        "                 });",
    ]


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
