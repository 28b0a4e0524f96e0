"""A loop as steps: carried values have a home, the result's storage, that every iteration writes anew.

    enter, copies of initial values to homes
    loop        past the end unless counter < trips and condition
      the body's steps
      rows of stacked values, copies of carried values to their homes
    next        back to loop
    bind        the sizes that the loop has ended with, where they change

Storage assignment lets a carried value be written straight to its home where nothing reads the old
one any more; the copy then finds that source and target are one and does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.control import EmitBody, bind_extents, emit_bodies
from graphwright.compiler.codegen.cpp.function import check_dtype
from graphwright.compiler.codegen.kernel import (
    EmittedBind,
    EmittedKernel,
    EmittedLaunch,
    EmittedLoop,
    EmittedNext,
    Step,
)
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.dims import of
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.symbol_scope import is_sized_by

_HEAD = """extern "C" GW_EXPORT void KERNEL_NAME(void* const* p, const int64_t* s, const gw_pool* pool) {
  (void)pool;
"""
ENTER = """  (void)s;
  *static_cast<int64_t*>(p[0]) = 0;
  *static_cast<bool*>(p[1]) = *static_cast<const bool*>(p[2]);
}
"""
COPY = """  if (p[0] != p[1]) __builtin_memcpy(p[1], p[0], static_cast<size_t>(s[0]));
}
"""
STORE_ROW = """  const int64_t row = *static_cast<const int64_t*>(p[1]);
  __builtin_memcpy(static_cast<char*>(p[2]) + row * s[0], p[0], static_cast<size_t>(s[0]));
}
"""
INCLUDES = ("gw/loops.h", "gw/scalar.h")


def _kernel(stem: str, body: str, summary: str) -> EmittedKernel:
    return EmittedKernel.named(stem, _HEAD + body, summary)


def _copy(op: Op, source: Value, target: Value) -> EmittedLaunch:
    return EmittedLaunch(
        _kernel("copy", COPY, "copies bytes"), (source, target), (1,), (source.type.storage_bytes,),
        ops=(op.id,), origins=op.origins, includes=INCLUDES, is_copy=True,
    )  # fmt: skip


def emit_loop(op: Op, emit_body: EmitBody) -> list[Step]:
    """The steps of a loop op; see the module's text."""
    (inside,) = emit_bodies(op, emit_body)
    (body,), count = op.bodies, op.attribute("carried")
    for value in op.results:
        check_dtype(op, value.type.dtype)
        if value.type.dtype.bits < 8:
            raise problem(op, f"a loop that carries {value.type.dtype.long_name} has no kernel")
    counter, condition = body.inputs[0], body.outputs[0]
    initial, homes = op.operands[2 : 2 + count], body.inputs[1 : 1 + count]
    after, rows = body.outputs[1 : 1 + count], body.outputs[1 + count :]
    stacks = op.results[1 + count :]
    sized = [is_sized_by(op, r) for r in op.results[1 : 1 + count]]
    known = (op.id,)

    def copies(sources: Sequence[Value]) -> list[Step]:
        pairs = zip(sources, homes, sized, strict=True)
        return [_copy(op, source, home) for source, home, late in pairs if not late]

    # What comes after the loop may have sizes that only its last turn makes possible: they are
    # settled, and checked, once more behind it.
    symbols = op.definition.binds(op.attributes)
    settled = [
        EmittedBind(symbols, sizes=tuple(map(of, symbols)), ops=known, origins=op.origins)
    ]  # fmt: skip

    def bind(sources: Sequence[Value]) -> list[Step]:
        return [bind_extents(op, sources, homes)] if any(sized) else []

    enter = EmittedLaunch(
        _kernel("enter_loop", ENTER, "starts a loop"), (counter, condition, op.operands[1]), (0, 1),
        ops=known, origins=op.origins, includes=INCLUDES,
    )  # fmt: skip
    # Rows first, then what is moved: both may read homes, which copies write.
    turn: list[Step] = [
        *inside,
        *(_store_row(op, row, counter, stack) for row, stack in zip(rows, stacks, strict=True)),
        *bind(after),
        *copies(after),
    ]
    return [
        enter,
        *copies(initial),
        *bind(initial),
        EmittedLoop(counter, op.operands[0], condition, len(turn) + 1, known, op.origins),
        *turn,
        EmittedNext(counter, len(turn) + 1, known, op.origins),
        *(settled if any(sized) else ()),
    ]


def _store_row(op: Op, row: Value, counter: Value, stack: Value) -> EmittedLaunch:
    return EmittedLaunch(
        _kernel("store_row", STORE_ROW, "stores a row of a stacked value"),
        (row, counter, stack), (2,), (row.type.storage_bytes,),
        ops=(op.id,), origins=op.origins, includes=INCLUDES,
    )  # fmt: skip
