"""Cases of the op test: an entry of torch's op database in one dtype, with samples on every kind of memory.

Variants of a sample: `transposed`, `offset` and `expanded` memory, `dynamic` sizes, `empty` along the
first axis, and `scalar`: rank-0 tensors throughout.  One that eager refuses is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from op_samples import Call, calls_of
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64",
)  # fmt: skip
# Every variant is tried in these; the other dtypes differ in kernels, not in shapes.
VARIED = ("float32", "int64", "bool")
SAMPLES = 4
# Eager itself ends the process on these, or reads memory that is not there.
FATAL = {
    ("_chunk_cat", "empty"), ("_chunk_cat", "scalar"), ("native_group_norm", "expanded"),
}  # fmt: skip
SEED = 5


@dataclass(frozen=True, slots=True)
class OpCase:
    """One entry (its place in op_db) in one dtype."""

    name: str
    entry: int
    dtype: str
    samples: int = SAMPLES

    @property
    def is_core(self) -> bool:
        return self.info.name in CORE_ENTRIES

    @property
    def info(self) -> Any:
        return op_db[self.entry]

    def calls(self) -> Iterator[tuple[Call, bool]]:
        """(call, whether its sizes are dynamic).  The same values each time."""
        torch.manual_seed(SEED)
        dtype = getattr(torch, self.dtype)
        for number, call in enumerate(list(calls_of(self.info, dtype, self.samples))):
            yield call, False
            if self.dtype not in VARIED or number >= 2:
                continue
            yield call, True
            for name, make in VARIANTS.items():
                tensors = make(call.tensors)
                if tensors is not None and (self.info.name, name) not in FATAL:
                    yield Call(f"{call.name}-{name}", call.function, tensors), False


# Entries of op_db that together call all of Core ATen that they call at all.
CORE_ENTRIES = frozenset(
    [
        "_native_batch_norm_legit",
        "abs",
        "acos",
        "acosh",
        "add",
        "addmm",
        "alias_copy",
        "all",
        "amax",
        "amin",
        "aminmax",
        "any",
        "arange",
        "argmax",
        "argmin",
        "argsort",
        "argwhere",
        "as_strided",
        "as_strided_copy",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "baddbmm",
        "bernoulli",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "bmm",
        "cat",
        "cdist",
        "ceil",
        "clamp",
        "clone",
        "constant_pad_nd",
        "cos",
        "cosh",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "diag_embed",
        "diagonal",
        "dist",
        "div",
        "einsum",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "eq",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expand",
        "expand_copy",
        "expm1",
        "eye",
        "fill",
        "flip",
        "floor",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
        "frac",
        "full",
        "full_like",
        "gather",
        "ge",
        "grid_sampler_2d",
        "gt",
        "hypot",
        "index_add",
        "index_copy",
        "index_fill",
        "index_put",
        "index_reduce",
        "index_select",
        "isclose",
        "isfinite",
        "isinf",
        "isnan",
        "kthvalue",
        "le",
        "lerp",
        "linspace",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "logaddexp",
        "logcumsumexp",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "logit",
        "logsumexp",
        "lt",
        "masked_fill",
        "masked_scatter",
        "masked_select",
        "matmul",
        "max",
        "maximum",
        "mean",
        "median",
        "min",
        "minimum",
        "mm",
        "msort",
        "mul",
        "multinomial",
        "nan_to_num",
        "narrow",
        "native_batch_norm",
        "native_dropout_backward",
        "native_layer_norm",
        "ne",
        "neg",
        "new_empty",
        "nn.functional.adaptive_avg_pool1d",
        "nn.functional.adaptive_avg_pool2d",
        "nn.functional.adaptive_avg_pool3d",
        "nn.functional.adaptive_max_pool2d",
        "nn.functional.avg_pool1d",
        "nn.functional.avg_pool2d",
        "nn.functional.avg_pool3d",
        "nn.functional.batch_norm",
        "nn.functional.conv1d",
        "nn.functional.conv2d",
        "nn.functional.conv3d",
        "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d",
        "nn.functional.conv_transpose3d",
        "nn.functional.cross_entropy",
        "nn.functional.dropout",
        "nn.functional.elu",
        "nn.functional.embedding",
        "nn.functional.embedding_bag",
        "nn.functional.gelu",
        "nn.functional.glu",
        "nn.functional.grid_sample",
        "nn.functional.group_norm",
        "nn.functional.hardsigmoid",
        "nn.functional.hardswish",
        "nn.functional.hardtanh",
        "nn.functional.instance_norm",
        "nn.functional.interpolate",
        "nn.functional.layer_norm",
        "nn.functional.leaky_relu",
        "nn.functional.linear",
        "nn.functional.max_pool1d",
        "nn.functional.max_pool2d",
        "nn.functional.max_pool3d",
        "nn.functional.mish",
        "nn.functional.mse_loss",
        "nn.functional.nll_loss",
        "nn.functional.pad",
        "nn.functional.pdist",
        "nn.functional.pixel_shuffle",
        "nn.functional.prelu",
        "nn.functional.relu",
        "nn.functional.relu6",
        "nn.functional.rms_norm",
        "nn.functional.silu",
        "nn.functional.softplus",
        "nn.functional.unfold",
        "nn.functional.upsample_bilinear",
        "nn.functional.upsample_nearest",
        "nonzero",
        "norm",
        "normal",
        "ones_like",
        "permute",
        "permute_copy",
        "pow",
        "prod",
        "rand_like",
        "randint",
        "randn",
        "reciprocal",
        "remainder",
        "repeat",
        "reshape",
        "roll",
        "round",
        "rsqrt",
        "rsub",
        "scalar_tensor",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "searchsorted",
        "select",
        "select_scatter",
        "sigmoid",
        "sign",
        "signbit",
        "sin",
        "sinh",
        "slice",
        "slice_scatter",
        "softmax",
        "sort",
        "special.log_ndtr",
        "split",
        "split_with_sizes",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "std",
        "std_mean",
        "sub",
        "sum",
        "sum_to_size",
        "t",
        "take",
        "tan",
        "tanh",
        "tile",
        "topk",
        "trace",
        "transpose",
        "tril",
        "triu",
        "trunc",
        "unbind",
        "unfold",
        "unique",
        "unsqueeze",
        "var",
        "var_mean",
        "view",
        "where",
        "xlogy",
        "zeros_like",
    ]
)

Tensors = tuple[torch.Tensor, ...]


def _each(change: Callable[[torch.Tensor], torch.Tensor], rank: int) -> Callable[..., Any]:
    """Changes the tensors of at least this rank; None where there is none."""

    def make(tensors: Tensors) -> Tensors | None:
        if not any(t.ndim >= rank and t.numel() for t in tensors):
            return None
        return tuple(change(t) if t.ndim >= rank and t.numel() else t for t in tensors)

    return make


VARIANTS: dict[str, Callable[[Tensors], Tensors | None]] = {
    "transposed": _each(lambda t: t.transpose(0, -1).contiguous().transpose(0, -1), 2),
    "offset": _each(lambda t: torch.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].view(t.shape), 1),
    "expanded": _each(lambda t: t[:1].expand(t.shape), 1),
    "empty": _each(lambda t: t[:0], 1),
    "scalar": _each(lambda t: t.reshape(-1)[0].clone(), 1),
}


@lru_cache(maxsize=1)
def all_op_cases() -> tuple[OpCase, ...]:
    """Every real dtype of every entry of op_db, by name."""
    found: list[OpCase] = []
    for place, info in enumerate(op_db):
        supported = info.supported_dtypes("cpu")
        for dtype in DTYPES:
            if getattr(torch, dtype) in supported:
                found.append(OpCase(f"{info.formatted_name} {dtype}", place, dtype))
    return tuple(sorted(found, key=lambda c: c.name))
