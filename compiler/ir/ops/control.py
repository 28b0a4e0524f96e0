"""Control flow: ops with bodies that run or not, once or often.

Bodies are isolated: what they read of the graph around them is an operand and an input of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Expr, Shape, Symbol
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import distinct_symbols
from graphwright.compiler.ir.types import BOOL, TensorType


def _bind_extents(
    context: Reference, symbols: Sequence[Symbol], shapes: Sequence[Shape],
    arrays: Sequence[np.ndarray],
) -> None:  # fmt: skip
    """Gives the symbols the extents of the arrays, which have these shapes."""
    left = dict.fromkeys(symbols)
    for shape, array in zip(shapes, arrays, strict=True):
        for dim, size in zip(shape, array.shape, strict=True):
            symbol = dim.symbol if isinstance(dim, Expr) else None
            if symbol in left:
                del left[symbol]
                context.bind(symbol, size)


class If(OpDef):
    """`then_body` when the scalar bool is true, else `else_body`; captures are operands of both.

    Both yield the same types, but for extents that are symbols of `binds`: these get the sizes that
    the branch taken yields.  `shapes` then holds the shape of every result.
    """

    name = "if"
    kind = Kind.CONTROL
    operands = ("condition", "captures*")
    attributes = {"binds": Attribute("dims", ()), "shapes": Attribute("shapes", ())}
    bodies = ("then_body", "else_body")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        if types[0].dtype is not BOOL or types[0].elements != 1:
            raise InferenceError(f"if: condition is {types[0]}, want one bool")
        for body in attributes["bodies"]:
            if [v.type for v in body.inputs] != list(types[1:]):
                raise InferenceError("if: each body takes the captures as its inputs")
        first, second = ([v.type for v in b.outputs] for b in attributes["bodies"])
        if len(first) != len(second):
            raise InferenceError(f"if: branches yield {len(first)} and {len(second)} values")
        shapes: Sequence[Shape] = attributes["shapes"] or [t.shape for t in first]
        if len(shapes) != len(first):
            raise InferenceError(
                f"if: {len(shapes)} shapes, the branches yield {len(first)} values"
            )
        bound = {s.name for s in distinct_symbols("if", attributes["binds"])}
        for a, b, shape in zip(first, second, shapes, strict=True):
            if a.dtype != b.dtype or a.rank != b.rank or a.rank != len(shape):
                raise InferenceError(f"if: branches yield {a} and {b}")
            for x, y, dim in zip(a.shape, b.shape, shape, strict=True):
                if not (isinstance(dim, Expr) and dim.symbol and dim.symbol.name in bound):
                    inference.require(x, "==", dim, "if: both branches yield one shape")
                    inference.require(y, "==", dim, "if: both branches yield one shape")
        return [t.with_shape(s) for t, s in zip(first, shapes, strict=True)]

    def binds(self, attributes: Attributes) -> tuple[Symbol, ...]:
        return distinct_symbols("if", attributes["binds"])

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        assert context.run is not None
        body = context.bodies[0 if arrays[0].reshape(()).item() else 1]
        found = context.run(body, arrays[1:])
        shapes = [t.shape for t in context.results]
        _bind_extents(context, self.binds(attributes), shapes, found)
        return found


OPS: tuple[OpDef, ...] = (If(),)
