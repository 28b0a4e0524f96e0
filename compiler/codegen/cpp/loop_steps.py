"""The C++ kernels of a loop's steps (codegen/loops.py)."""

from __future__ import annotations

from graphwright.compiler.codegen.control import EmitBody
from graphwright.compiler.codegen.cpp.function import check_dtype
from graphwright.compiler.codegen.kernel import EmittedKernel, EmittedLaunch, Step
from graphwright.compiler.codegen.loops import loop_steps
from graphwright.compiler.ir.graph import Op, Value

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


class _Kernels:
    """Of this target."""

    def check(self, op: Op, value: Value) -> None:
        check_dtype(op, value.type.dtype)

    def enter(self, op: Op, counter: Value, condition: Value, initial: Value) -> EmittedLaunch:
        return EmittedLaunch(
            _kernel("enter_loop", ENTER, "starts a loop"), (counter, condition, initial), (0, 1),
            ops=(op.id,), origins=op.origins, includes=INCLUDES,
        )  # fmt: skip

    def copy(self, op: Op, source: Value, target: Value) -> EmittedLaunch:
        return EmittedLaunch(
            _kernel("copy", COPY, "copies bytes"), (source, target), (1,),
            (source.type.storage_bytes,),
            ops=(op.id,), origins=op.origins, includes=INCLUDES, is_copy=True,
        )  # fmt: skip

    def store_row(self, op: Op, row: Value, counter: Value, stack: Value) -> EmittedLaunch:
        return EmittedLaunch(
            _kernel("store_row", STORE_ROW, "stores a row of a stacked value"),
            (row, counter, stack), (2,), (row.type.storage_bytes,),
            ops=(op.id,), origins=op.origins, includes=INCLUDES,
        )  # fmt: skip


def emit_loop(op: Op, emit_body: EmitBody) -> list[Step]:
    """The steps of a loop op."""
    return loop_steps(op, emit_body, _Kernels())
