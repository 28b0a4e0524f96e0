"""Windows without a matrix product: pools and depthwise convolutions, one output element a lane.

The taps of a window are unrolled; an output element's window is read through an index map, so any
layout serves, and taps outside the tensor are masked.
"""

from __future__ import annotations

import itertools

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, problem
from graphwright.compiler.codegen.scalar import Given, Node, Number, compute_dtype
from graphwright.compiler.codegen.triton.convolution import window_position
from graphwright.compiler.codegen.triton.kernels import FlatLoop, Region
from graphwright.compiler.codegen.triton.matmul import store_coordinates
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.profit import typical_size

FEW, MANY = 256, 1024  # elements of a program; several a thread where there are many in all
MOST_TAPS = 225


class Window:
    """The flat loop over one root's result, and the taps of each element's window."""

    def __init__(self, region: Region, root: Op, kernel: tuple[int, ...]) -> None:
        self.region, self.root, self.kernel = region, root, kernel
        self.domain, self.printer = region.domain, region.printer()
        total = dims.product(root.result.type.shape)
        self.block = MANY if typical_size(total) >= 1 << 20 else FEW
        self.loop = FlatLoop(region, self.printer, root.result, self.block)
        self.at = self.loop.at
        if len(list(itertools.product(*map(range, kernel)))) > MOST_TAPS:
            raise problem(root, f"a window of {kernel} has no Triton kernel yet")

    def taps(self) -> list[tuple[tuple[int, ...], tuple[Dim, ...], list[tuple[Dim, Dim]]]]:
        """(tap, input position, when it is inside) of every tap, in order."""
        out: list[tuple[tuple[int, ...], tuple[Dim, ...], list[tuple[Dim, Dim]]]] = []
        for tap in itertools.product(*map(range, self.kernel)):
            position, inside = window_position(self.root, self.at, list(tap))
            out.append((tap, position, inside))
        return out

    def finish(self, result: str, stem: str) -> EmittedLaunch:
        """Rounds the root's result, runs the epilogue and stores."""
        root, p = self.root, self.printer
        dtype = root.result.type.dtype
        compute = compute_dtype(dtype)
        text = result
        if compute != dtype:
            text = f"{result}.to({triton_type(dtype)}).to({triton_type(compute)})"
        p.line(f"whole = {text}")
        provided = Given("whole", compute)

        def given(value: Value, at: Coordinates) -> Node | None:
            del at
            return provided if value is root.result else None

        epilogue = Lowering(self.domain, given=given)
        for value, pointer in zip(self.region.outputs, self.region.out_pointers, strict=True):
            inner, where = store_coordinates(value, self.loop.coordinates, root, self.region)
            node = epilogue.at(inner, self.loop.coordinates)
            self.loop.store(pointer, value, node, tuple(where))
        summary = f"{root.name} with windows of {self.kernel}, {self.loop.total} elements"
        return self.region.launch(stem, summary, p, self.loop.grid)


def _zeros(window: Window, name: str, value: str = "0") -> None:
    p, root = window.printer, window.root
    dtype = triton_type(compute_dtype(root.result.type.dtype))
    p.line(f"{name} = tl.full([{window.block}], {value}, {dtype})")


def emit_flat_depthwise(op: Op, root: Op) -> EmittedLaunch:
    """A convolution whose groups have one input channel: every output channel from one of them."""
    x, w = root.operands[:2]
    kernel = tuple(n for n in w.type.shape[2:] if isinstance(n, int))
    if len(kernel) != w.type.rank - 2:
        raise problem(root, f"its weight has the shape {w.type}, want known extents")
    window = Window(Region(op), root, kernel)
    p, lowering = window.printer, Lowering(window.domain)
    filters = dims.floordiv(w.type.shape[0], root.attribute("groups"))
    channel = window.at[1]
    zero = lowering.node(Number(0.0, compute_dtype(x.type.dtype)))
    _zeros(window, "sums")
    for tap, position, inside in window.taps():
        at = (window.at[0], window.domain.quotient(channel, filters), *position)
        value = p.node(lowering.choose(inside, lambda at=at: lowering.at(x, at), lambda: zero))
        weight = p.node(lowering.at(w, (channel, 0, *tap)))
        p.line(f"sums += {value} * {weight}")
    if len(root.operands) > 2:
        p.line(f"sums += {p.node(lowering.at(root.operands[2], (channel,)))}")
    return window.finish("sums", "_".join(o.name for o in window.region.body.ops))


def emit_pool(op: Op) -> EmittedLaunch:
    """max_pool, and average_pool of floats."""
    region = Region(op)
    (root,) = region.body.ops
    x = root.operands[0]
    if not x.type.dtype.is_float and root.name != "max_pool":
        raise problem(op, f"a pool of {x.type.dtype} has no Triton kernel yet")
    window = Window(region, root, root.attribute("kernel"))
    p, lowering = window.printer, Lowering(window.domain)
    compute = compute_dtype(x.type.dtype)
    largest = root.name == "max_pool"
    least: float = float("-inf")
    if compute.is_integer:
        least = 0 if compute.kind == "uint" else -(1 << (compute.bits - 1))
    neutral = lowering.node(Number(least if largest else 0.0, compute))
    start = repr(least) if compute.is_integer else "float('-inf')"
    _zeros(window, "best" if largest else "sums", start if largest else "0")
    if not largest:
        _zeros(window, "count")
    for _, position, inside in window.taps():
        at = (window.at[0], window.at[1], *position)
        value = p.node(lowering.choose(inside, lambda at=at: lowering.at(x, at), lambda: neutral))
        if largest:
            nan = ", propagate_nan=tl.PropagateNan.ALL" if compute.is_float else ""
            p.line(f"best = tl.maximum(best, {value}{nan})")
            continue
        p.line(f"sums += {value}")
        counted = _counted(root, position) if root.attribute("count_include_pad") else inside
        one, none = (lowering.node(Number(n, compute)) for n in (1.0, 0.0))
        p.line(f"count += {p.node(lowering.choose(counted, lambda o=one: o, lambda n=none: n))}")
    return window.finish("best" if largest else "(sums / tl.maximum(count, 1))", root.name)


def _counted(root: Op, position: tuple[Dim, ...]) -> list[tuple[Dim, Dim]]:
    """When a tap lies in the tensor or its declared padding."""
    shape, low, high = root.operands[0].type.shape, root.attribute("low"), root.attribute("high")
    out: list[tuple[Dim, Dim]] = []
    for i, at in enumerate(position):
        out.append((-1 - low[i], at))
        out.append((at, shape[i + 2] + high[i]))
    return out
