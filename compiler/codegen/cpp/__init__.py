"""C++ emitters: which function emits what.  Keys: op name, `region:NAME`, `kind:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphwright.compiler.codegen.cpp.along_axis import emit_cumulative, emit_top_k
from graphwright.compiler.codegen.cpp.call import emit_bitcast
from graphwright.compiler.codegen.cpp.contraction import emit_contraction
from graphwright.compiler.codegen.cpp.data_dependent import (
    emit_non_max_suppression,
    emit_non_zero,
    emit_unique,
)
from graphwright.compiler.codegen.cpp.deform import emit_deform_columns, emit_max_roi_pool
from graphwright.compiler.codegen.cpp.packed import emit_matmul_packed
from graphwright.compiler.codegen.cpp.pointwise import emit_pointwise
from graphwright.compiler.codegen.cpp.pooling import emit_pool
from graphwright.compiler.codegen.cpp.random import emit_random
from graphwright.compiler.codegen.cpp.recurrent import emit_recurrent
from graphwright.compiler.codegen.cpp.recurrent_integer import emit_lstm_integer
from graphwright.compiler.codegen.cpp.reduction import emit_reduction
from graphwright.compiler.codegen.cpp.resize import emit_resize
from graphwright.compiler.codegen.cpp.sampling import (
    emit_determinant,
    emit_grid_sample,
    emit_roi_align,
)
from graphwright.compiler.codegen.cpp.scatter import emit_scatter
from graphwright.compiler.codegen.kernel import Step
from graphwright.compiler.ir.graph import Op

TABLE: Mapping[str, Callable[[Op], Sequence[Step]]] = {
    "region:pointwise": emit_pointwise,
    "kind:pointwise": emit_pointwise,
    "region:contraction": emit_contraction,
    "kind:contraction": emit_contraction,
    "region:reduction": emit_reduction,
    "kind:reduction": emit_reduction,
    "arg_max_pool": emit_pointwise,
    "bitcast": emit_bitcast,
    "deform_columns": emit_deform_columns,
    "max_roi_pool": emit_max_roi_pool,
    "determinant": emit_determinant,
    "grid_sample": emit_grid_sample,
    "roi_align": emit_roi_align,
    "max_pool": emit_pool,
    "average_pool": emit_pool,
    "cumsum": emit_cumulative,
    "cumprod": emit_cumulative,
    "top_k": emit_top_k,
    "scatter_elements": emit_scatter,
    "scatter_nd": emit_scatter,
    "batch_norm": emit_pointwise,
    "random_uniform": emit_random,
    "random_normal": emit_random,
    "resize": emit_resize,
    "matmul_packed": emit_matmul_packed,
    "lstm": emit_recurrent,
    "lstm_integer": emit_lstm_integer,
    "gru": emit_recurrent,
    "rnn": emit_recurrent,
    "non_zero": emit_non_zero,
    "unique": emit_unique,
    "non_max_suppression": emit_non_max_suppression,
    "kind:movement": emit_pointwise,
    "full": emit_pointwise,
    "iota": emit_pointwise,
    "from_dims": emit_pointwise,
    "trilu": emit_pointwise,
    "one_hot": emit_pointwise,
    "lrn": emit_pointwise,
}
