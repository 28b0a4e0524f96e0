"""Triton kernels for NVIDIA GPUs: emitters per region, and their ahead-of-time compilation.

Emitting needs no Triton; `build.py` imports it when a cubin is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch, Step
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.codegen.triton.along_axis import emit_cumulative, emit_top_k
from graphwright.compiler.codegen.triton.attention import emit_attention
from graphwright.compiler.codegen.triton.attention_step import emit_attention_step
from graphwright.compiler.codegen.triton.conv_transpose import emit_conv_transpose
from graphwright.compiler.codegen.triton.convolution import emit_convolution
from graphwright.compiler.codegen.triton.depthwise import emit_depthwise
from graphwright.compiler.codegen.triton.flat import emit_bitcast, emit_random
from graphwright.compiler.codegen.triton.integer import (
    emit_conv_integer,
    emit_matmul_integer,
    emit_plain_matmul,
)
from graphwright.compiler.codegen.triton.matmul import emit_matmul
from graphwright.compiler.codegen.triton.packed import emit_matmul_packed
from graphwright.compiler.codegen.triton.pointwise import emit_pointwise
from graphwright.compiler.codegen.triton.printing import TYPES
from graphwright.compiler.codegen.triton.products import emit_products
from graphwright.compiler.codegen.triton.recurrent import emit_recurrent
from graphwright.compiler.codegen.triton.reduction import emit_reduction
from graphwright.compiler.codegen.triton.scatter import emit_scatter_elements, emit_scatter_nd
from graphwright.compiler.codegen.triton.windows import emit_pool
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.op import Kind


def check_types(op: Op) -> None:
    """Raises UnsupportedError where an op, or one inside it, has an element type without kernels."""
    inner = [o for body in op.bodies for o in body.ops]
    for o in (op, *inner):
        for value in (*o.operands, *o.results):
            if value.type.dtype.name not in TYPES:
                name = value.type.dtype.long_name
                raise problem(
                    op, f"Triton has no element type {name}", "cast it, or use the cpu target"
                )


def emit_contraction(op: Op) -> EmittedLaunch:
    """By the contraction in the region: a product, a convolution, or a depthwise one."""
    (root,) = (o for o in op.bodies[0].ops if o.kind is Kind.CONTRACTION)
    if root.name == "matmul":
        is_float = root.operands[0].type.dtype.is_float
        return (emit_matmul if is_float else emit_plain_matmul)(op, root)
    if root.name == "matmul_integer":
        return emit_matmul_integer(op, root)
    if root.name == "conv_integer":
        return emit_conv_integer(op, root)
    if root.name == "conv":
        depthwise = root.operands[1].type.shape[1] == 1 and root.attribute("groups") > 1
        return (emit_depthwise if depthwise else emit_convolution)(op, root)
    if root.name == "attention":
        return emit_attention(op, root)
    if root.name == "conv_transpose":
        return emit_conv_transpose(op, root)
    raise problem(root, f"{root.name} has no Triton kernel yet", "compile for the cpu target")


TABLE: Mapping[str, Callable[[Op], Sequence[Step]]] = {
    "region:pointwise": lambda op: [emit_pointwise(op)],
    "region:reduction": emit_reduction,
    "region:contraction": lambda op: [emit_contraction(op)],
    "region:products": lambda op: [emit_products(op)],
    "region:attention_step": lambda op: [emit_attention_step(op)],
    **{
        key: lambda op: [emit_pointwise(op)]
        for key in (
            "kind:pointwise",
            "kind:movement",
            "full",
            "iota",
            "from_dims",
            "trilu",
            "one_hot",
            "lrn",
            "arg_max_pool",
            "batch_norm",
            "resize",
            "grid_sample",
            "roi_align",
        )
    },
    "kind:reduction": emit_reduction,
    "cumsum": lambda op: [emit_cumulative(op)],
    "cumprod": lambda op: [emit_cumulative(op)],
    "top_k": lambda op: [emit_top_k(op)],
    "matmul_packed": emit_matmul_packed,
    "bitcast": emit_bitcast,
    "random_uniform": emit_random,
    "random_normal": emit_random,
    "lstm": emit_recurrent,
    "gru": emit_recurrent,
    "rnn": emit_recurrent,
    "scatter_elements": emit_scatter_elements,
    "scatter_nd": emit_scatter_nd,
    "max_pool": lambda op: [emit_pool(op)],
    "average_pool": lambda op: [emit_pool(op)],
}
