"""Control flow: ops with bodies that run or not, once or often.

Bodies are isolated: what they read of the graph around them is an operand and an input of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Expr, Shape, Symbol, symbols_of
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
from graphwright.compiler.ir.ops.precision import result_dtype
from graphwright.compiler.ir.types import BOOL, I64, TensorType


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


class Loop(OpDef):
    """Runs the body while the iteration counter is below `trips` and the condition is true.

    Operands: trips (i64) and condition (bool) scalars, `carried` initial values, captures.  The body
    takes the counter, the carried values and the captures; it yields the next condition, the next
    carried values and values that are stacked.  Results: how many iterations ran (i64), the last
    carried values, and `extent` rows of each stacked value; rows that no iteration wrote mean
    nothing.  More iterations than rows are an error.

    A carried value keeps its type, but for extents that are symbols of `binds`, as the body's inputs
    have them: these get the sizes of the initial values, then of what each iteration yields, and
    after the loop they are the sizes of the results.
    """

    name = "loop"
    kind = Kind.CONTROL
    operands = ("trips", "condition", "values*")
    attributes = {
        "carried": Attribute("int", 0),
        "extent": Attribute("dim", 0),
        "binds": Attribute("dims", ()),
    }
    bodies = ("body",)
    results = ("iterations", "values")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (body,) = attributes["bodies"]
        count: int = attributes["carried"]
        if types[0].dtype is not I64 or types[0].rank:
            raise InferenceError(f"loop: trips are {types[0]}, want an i64 scalar")
        if types[1].dtype is not BOOL or types[1].rank:
            raise InferenceError(f"loop: condition is {types[1]}, want a bool scalar")
        inside = [v.type for v in body.inputs]
        if len(inside) != len(types) - 1 or not 0 <= count <= len(types) - 2:
            raise InferenceError(
                f"loop: the body takes {len(inside)} values, want the counter and one for each of "
                f"{len(types) - 2} operands, of which {count} are carried"
            )
        if inside[0].dtype is not I64 or inside[0].rank:
            raise InferenceError(f"loop: the body's counter is {inside[0]}, want an i64 scalar")
        if inside[1 + count :] != list(types[2 + count :]):
            raise InferenceError("loop: the body takes the captures as its last inputs")
        given = [v.type for v in body.outputs]
        if len(given) < 1 + count or given[0].dtype is not BOOL or given[0].rank:
            raise InferenceError("loop: the body yields a bool scalar, then every carried value")
        bound = distinct_symbols("loop", attributes["binds"])
        carried = inside[1 : 1 + count]
        for k, (first, held, after) in enumerate(
            zip(types[2 : 2 + count], carried, given[1 : 1 + count], strict=True)
        ):
            self._check_carried(k, (first, held, after), bound, inference)
        own = {*bound, *(s for op in body.ops for s in op.definition.binds(op.attributes))}
        stacked: list[TensorType] = []
        for type in given[1 + count :]:
            if any(s in own for s in symbols_of(type.shape)):
                raise InferenceError(
                    f"loop: it stacks {type}, whose shape each iteration may choose anew"
                )
            stacked.append(type.with_shape((attributes["extent"], *type.shape)))
        return [TensorType(I64, ()), *carried, *stacked]

    @staticmethod
    def _check_carried(
        k: int, types: Sequence[TensorType], bound: Sequence[Symbol], inference: Inference
    ) -> None:
        first, held, after = types
        for t in (first, after):
            if t.dtype != held.dtype or t.rank != held.rank:
                raise InferenceError(
                    f"loop: carried value {k} is {first}, then {held}, then {after}"
                )
            for dim, size in zip(held.shape, t.shape, strict=True):
                if not (isinstance(dim, Expr) and dim.symbol in bound):
                    inference.require(size, "==", dim, "loop: a carried value keeps its shape")

    def binds(self, attributes: Attributes) -> tuple[Symbol, ...]:
        return distinct_symbols("loop", attributes["binds"])

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        assert context.run is not None
        (body,), count = context.bodies, attributes["carried"]
        shapes = [v.type.shape for v in body.inputs[1 : 1 + count]]
        trips, go = int(arrays[0].item()), bool(arrays[1].item())
        carried, captures = list(arrays[2 : 2 + count]), arrays[2 + count :]
        stacks = [
            np.zeros(context.sizes(t.shape), result_dtype(t, context))
            for t in context.results[1 + count :]
        ]
        bound = self.binds(attributes)
        _bind_extents(context, bound, shapes, carried)
        i = 0
        while i < trips and go:
            found = context.run(body, [np.array(i, np.int64), *carried, *captures])
            go, carried = bool(found[0].item()), list(found[1 : 1 + count])
            for stack, row in zip(stacks, found[1 + count :], strict=True):
                if i >= len(stack):
                    raise ValueError(f"loop: iteration {i + 1} of {len(stack)} rows")
                stack[i] = row
            _bind_extents(context, bound, shapes, carried)
            i += 1
        return [np.array(i, np.int64), *carried, *stacks]


OPS: tuple[OpDef, ...] = (If(), Loop())
