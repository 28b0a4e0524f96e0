"""Contraction regions: the templates of gw/gemm.h, gw/conv.h, gw/attention.h with a generated epilogue.

Operands that the template can address are read in place; others are first copied to a workspace by
the same kernel.  Constant right operands are packed at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphwright.compiler.codegen.cpp.attention import emit_attention
from graphwright.compiler.codegen.cpp.convolution import emit_conv, emit_conv_transpose
from graphwright.compiler.codegen.cpp.exact_contraction import as_reduction, can_be_reduction
from graphwright.compiler.codegen.cpp.integer import emit_conv_integer, emit_matmul_integer
from graphwright.compiler.codegen.cpp.matmul import emit_matmul
from graphwright.compiler.codegen.cpp.reduction import reduction_launch
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import as_region, problem
from graphwright.compiler.codegen.scalar import compute_dtype
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.types import F32

ROOTS: Mapping[str, Callable[[ContractionRegion], EmittedLaunch]] = {
    "attention": emit_attention,
    "conv": emit_conv,
    "conv_transpose": emit_conv_transpose,
    "matmul": emit_matmul,
}
# Those that may find no template, which leaves the sum of products.
INTEGER_ROOTS: Mapping[str, Callable[[ContractionRegion], EmittedLaunch | None]] = {
    "conv_integer": emit_conv_integer,
    "matmul_integer": emit_matmul_integer,
}


def emit_contraction(op: Op) -> list[EmittedLaunch]:
    """A region with one contraction, or a lone contraction, as one launch."""
    body, operands = as_region(op)
    roots = [o for o in body.ops if o.kind is Kind.CONTRACTION]
    if len(roots) != 1:
        raise problem(op, f"a contraction region has one contraction, this has {len(roots)}")
    root = roots[0]
    if root.name in INTEGER_ROOTS:
        launch = INTEGER_ROOTS[root.name](ContractionRegion(op, body, operands, root))
        if launch is not None:
            return [launch]
    if compute_dtype(root.result.type.dtype) is not F32 and can_be_reduction(root):
        return [reduction_launch(op, as_reduction(body, root), operands)]
    emitter = ROOTS.get(root.name)
    if emitter is None:
        raise problem(root, "there is no C++ template for this contraction")
    return [emitter(ContractionRegion(op, body, operands, root))]
