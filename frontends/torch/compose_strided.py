"""Elements by their places in memory."""

from __future__ import annotations

import torch

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, prove
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def as_strided(node: Node) -> Value:
    """Elements by their offsets in memory, where the operand is known to lie dense, in any order."""
    x, fake = node.x(), node.fake("self")
    size, stride = node.arg("size"), node.arg("stride")
    if not fake.is_contiguous():
        order = _order_in_memory(fake)
        if order is None:
            raise Refusal(
                "as_strided of a tensor that does not lie dense", "call .contiguous() before"
            )
        x = node.transpose(x, order)
    # torch counts from the start of the storage, of which the operand may be a part.
    given, first = node.arg("storage_offset"), node.importer.symbols.dim(fake.storage_offset())
    offset: Dim = 0 if given is None else given - first
    if any(prove(s, "<", 0) is not False for s in stride):
        raise Refusal("as_strided with negative strides")
    total = x.type.elements
    rank = len(size)
    if not any(prove(n, "==", 0) for n in size):
        reach = sum((dims.multiply(n - 1, s) for n, s in zip(size, stride, strict=True)), offset)
        if prove(offset, "<", 0) or prove(reach, ">=", total):
            raise Refusal("as_strided reads what lies outside of its operand")
        node.require(offset, ">=", 0, "as_strided reads inside of its operand")
        node.require(reach, "<", total, "as_strided reads inside of its operand")
    flat = node.reshape(x, [total])
    place = node.size(offset)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        along = node.iota_along(extent, axis, max(rank, 1))
        place = node.emit("add", place, node.emit("mul", along, node.size(step)))
    return node.reshape(
        node.emit("gather", flat, node.broadcast_to(place, size or ()), axis=0), size
    )


def _order_in_memory(fake: torch.Tensor) -> list[int] | None:
    """The axes from the outermost in memory to the innermost; None where the tensor has gaps."""
    if not all(isinstance(n, int) for n in (*fake.shape, *fake.stride())):
        return None
    order = sorted(range(fake.ndim), key=lambda a: (fake.stride(a), fake.shape[a]), reverse=True)
    return order if fake.permute(order).is_contiguous() else None


COMPOSE: dict[str, Compose] = {
    "as_strided.default": as_strided,
    "as_strided_copy.default": as_strided,
}
