"""Triton kernels for NVIDIA GPUs: emitters per region, and their ahead-of-time compilation.

Emitting needs no Triton; `build.py` imports it when a cubin is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphwright.compiler.codegen.kernel import Step
from graphwright.compiler.codegen.triton.matmul import emit_matmul
from graphwright.compiler.codegen.triton.pointwise import emit_pointwise
from graphwright.compiler.codegen.triton.reduction import emit_reduction
from graphwright.compiler.ir.graph import Op

TABLE: Mapping[str, Callable[[Op], Sequence[Step]]] = {
    "region:pointwise": lambda op: [emit_pointwise(op)],
    "region:reduction": lambda op: [emit_reduction(op)],
    "region:contraction": lambda op: [emit_matmul(op)],
}
