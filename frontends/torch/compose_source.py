"""Tensors from nothing: filled, ramps, random."""

from __future__ import annotations

from typing import Any

import torch

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, F64, I64, DType
from graphwright.frontends.torch.node import Compose, Node, is_symbolic
from graphwright.frontends.torch.refusal import Refusal


def filled(node: Node, raw: Any) -> Value:
    """The result's shape and type, full of a number."""
    node.ignore("size", "dtype", "self", "names", "stride", "generator")
    shape, dtype = node.out_shape, node.out_dtype
    held = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else raw
    if is_symbolic(held) or isinstance(raw, torch.fx.Node):
        return node.broadcast_to(node.number(raw, dtype), shape)
    if (
        isinstance(held, int)
        and not isinstance(held, bool)
        and not dtype.is_float
        and dtype is not BOOL
    ):
        held = held % 2**dtype.bits  # integers wrap into the type, as torch's do
        if dtype.kind == "int" and held >= 2 ** (dtype.bits - 1):
            held -= 2**dtype.bits
    return node.full(held, dtype, shape)


def full(node: Node) -> Value:
    return filled(node, node.raw("fill_value"))


def constant(number: int) -> Compose:
    return lambda node: filled(node, number)


def empty_permuted(node: Node) -> Value:
    node.ignore("physical_layout")  # where it lies; memory formats are kept at the graph's ends
    return filled(node, 0)


def scalar_tensor(node: Node) -> Value:
    return filled(node, node.raw("s"))


def fill(node: Node) -> Value:
    node.ignore("self")
    value = node.arg("value")
    if isinstance(value, Value):
        return node.broadcast_to(node.cast(value, node.out_dtype), node.out_shape)
    return filled(node, node.raw("value"))


def arange(node: Node) -> Value:
    """start + i * step; torch has worked out how many."""
    node.ignore("end", "dtype")
    start = node.arg("start") if "start" in node._given else 0
    step = node.arg("step") if "step" in node._given else 1
    start, step = 0 if start is None else start, 1 if step is None else step
    (size,) = node.out_shape
    dtype = node.out_dtype
    if dtype.is_float:
        return _ramp(node, size, start, step, dtype)
    if not isinstance(step, int) or isinstance(step, bool):
        raise Refusal(f"its step is {step}, which must be a known integer")
    return node.emit("iota", size=size, dtype=dtype, start=start, step=step)


def _ramp(node: Node, size: Dim, start: Any, step: Any, dtype: DType) -> Value:
    """Floats, calculated in float64 as torch does."""
    if not isinstance(step, int | float) or not isinstance(start, int | float):
        raise Refusal("its limits are floats that are not known")
    wide = F64 if dtype is F64 or dtype is F32 else F32
    place = node.cast(node.iota(size), wide)
    scaled = node.emit("mul", place, node.scalar(step, wide))
    return node.cast(node.emit("add", scaled, node.scalar(start, wide)), dtype)


def iota(node: Node) -> Value:
    """prims.iota"""
    node.ignore("dtype", "requires_grad")
    return node.emit(
        "iota",
        size=node.arg("length"),
        dtype=node.out_dtype,
        start=node.arg("start"),
        step=node.arg("step"),
    )


def linspace(node: Node) -> Value:
    """From both ends to the middle, as torch does, so that both are exact."""
    node.ignore("dtype")
    start, end, steps = node.arg("start"), node.arg("end"), node.arg("steps")
    dtype = node.out_dtype
    if not all(isinstance(n, int | float) for n in (start, end, steps)):
        raise Refusal("its limits are not known")
    if not dtype.is_float:
        return node.array(torch.linspace(start, end, steps, dtype=node.out.dtype).numpy())
    values = torch.linspace(start, end, steps, dtype=torch.float64).numpy()
    return node.array(values, dtype)


def eye(node: Node) -> Value:
    node.ignore("n", "m", "dtype")
    rows, columns = node.out_shape
    on = node.emit("equal", node.iota_along(rows, 0, 2), node.iota_along(columns, 1, 2))
    return node.cast(on, node.out_dtype)


def triangle_indices(lower: bool) -> Compose:
    def compose(node: Node) -> Value:
        node.ignore("dtype")
        row, column, offset = (node.whole(n) for n in ("row", "col", "offset"))
        make = torch.tril_indices if lower else torch.triu_indices
        return node.array(make(row, column, offset).numpy(), node.out_dtype)

    return compose


def one_number(node: Node) -> Value | None:
    """item: a number for arithmetic, or a size that is bound when it is used as one."""
    x = node.x()
    number = node.reshape(x, [])
    held = node.out
    if isinstance(held, torch.SymInt | torch.SymFloat | torch.SymBool):
        e = held.node.expr
        symbols = list(e.free_symbols)
        if held.node.expr in symbols:
            node.importer.declare_item(e, number)
            return None
        if len(symbols) == 1 and isinstance(held, torch.SymBool):  # Eq(u0, 1)
            node.importer.declare_item(symbols[0], node.cast(number, I64))
            return None
        raise Refusal(f"the number that it reads is {e}")
    return number


COMPOSE: dict[str, Compose] = {
    "full.default": full,
    "full_like.default": full,
    "new_full.default": full,
    "fill.Scalar": fill,
    "fill.Tensor": fill,
    "scalar_tensor.default": scalar_tensor,
    **{
        f"{n}.default": constant(0)
        for n in (
            "zeros",
            "zeros_like",
            "new_zeros",
            "empty_like",
            "new_empty",
            "new_empty_strided",
            "empty_strided",
        )
    },
    "empty.memory_format": constant(0),
    "empty_permuted.default": empty_permuted,
    **{f"{n}.default": constant(1) for n in ("ones", "ones_like", "new_ones")},
    **{f"arange.{o}": arange for o in ("default", "start", "start_step")},
    "prims.iota.default": iota,
    "linspace.default": linspace,
    "eye.default": eye,
    "eye.m": eye,
    "tril_indices.default": triangle_indices(lower=True),
    "triu_indices.default": triangle_indices(lower=False),
    "_local_scalar_dense.default": one_number,
    "item.default": one_number,
}
