"""Core ATen against torch's own samples: every op imported, evaluated, and equal to eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("expecttest", reason="torch.testing needs expecttest")

from op_samples import Call, calls_of, difference, import_call, run_reference  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from graphwright.compiler.ir.ops import REGISTRY  # noqa: E402
from graphwright.errors import UnsupportedError  # noqa: E402
from graphwright.frontends.torch.composed import COMPOSE  # noqa: E402
from graphwright.frontends.torch.importer import CHECKS  # noqa: E402

# Core ATen that is not imported, and why.
EXCUSED = {
    "_adaptive_avg_pool2d_backward.default": "gradient",
    "_fft_c2r.default": "complex numbers",
    "_fft_r2c.default": "complex numbers",
    "atan2.out": "functional graphs have no out variants",
    "avg_pool2d_backward.default": "gradient",
    "convolution_backward.default": "gradient",
    "embedding_dense_backward.default": "gradient",
    "max_pool2d_with_indices_backward.default": "gradient",
    "native_group_norm_backward.default": "gradient",
    "native_layer_norm_backward.default": "gradient",
    "resize_.default": "functional graphs have no in-place ops",
}

# Entries of op_db that together call all of Core ATen.
NAMES = [
    "abs",
    "acos",
    "acosh",
    "add",
    "addmm",
    "amax",
    "amin",
    "any",
    "all",
    "arange",
    "argmax",
    "argmin",
    "as_strided",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "nn.functional.avg_pool1d",
    "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d",
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_avg_pool3d",
    "nn.functional.adaptive_max_pool2d",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "baddbmm",
    "cat",
    "cdist",
    "ceil",
    "clamp",
    "clone",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.unfold",
    "constant_pad_nd",
    "cos",
    "cosh",
    "cummax",
    "cumsum",
    "cumprod",
    "diagonal",
    "div",
    "dist",
    "einsum",
    "nn.functional.elu",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "eq",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "eye",
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
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.grid_sample",
    "nn.functional.group_norm",
    "gt",
    "nn.functional.hardtanh",
    "nn.functional.hardswish",
    "nn.functional.hardsigmoid",
    "hypot",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "nn.functional.instance_norm",
    "nn.functional.interpolate",
    "isclose",
    "isinf",
    "isnan",
    "isfinite",
    "kthvalue",
    "nn.functional.layer_norm",
    "le",
    "nn.functional.leaky_relu",
    "lerp",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
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
    "nn.functional.max_pool1d",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "mul",
    "nan_to_num",
    "narrow",
    "native_layer_norm",
    "nn.functional.batch_norm",
    "ne",
    "neg",
    "nonzero",
    "norm",
    "ones_like",
    "nn.functional.pad",
    "permute",
    "nn.functional.pdist",
    "nn.functional.pixel_shuffle",
    "pow",
    "nn.functional.prelu",
    "prod",
    "reciprocal",
    "nn.functional.relu",
    "nn.functional.relu6",
    "remainder",
    "repeat",
    "reshape",
    "nn.functional.rms_norm",
    "roll",
    "round",
    "rsqrt",
    "rsub",
    "nn.functional.linear",
    "nn.functional.nll_loss",
    "nn.functional.cross_entropy",
    "nn.functional.mse_loss",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "select",
    "select_scatter",
    "sigmoid",
    "sign",
    "signbit",
    "nn.functional.silu",
    "nn.functional.mish",
    "sin",
    "sinh",
    "slice",
    "slice_scatter",
    "softmax",
    "nn.functional.softplus",
    "sort",
    "split",
    "split_with_sizes",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "sum",
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
    "unsqueeze",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "var",
    "var_mean",
    "view",
    "where",
    "xlogy",
    "zeros_like",
]
# What a sample may be refused for: the words of the reason.
REFUSED = (
    "training mode",
    "divisor_override",
    "unequal lengths",
    "sorter",
    "from an edge",
    "no inputs",
    "_linalg_svd",
    "bools",
    "want a float type",
    "want number",
    "Piecewise",
)
TIED = ("sort-", "topk-", "kthvalue-", "median-")
DTYPES = {
    "float64": 1e-10, "float16": 0, "bfloat16": 0, "int64": 0, "int32": 0, "int8": 0, "uint8": 0,
    "bool": 0,
}  # fmt: skip
BY_NAME = {name: [i for i in op_db if i.name == name] for name in NAMES}


def test_every_core_op_is_imported_or_excused() -> None:
    known = {*COMPOSE, *REGISTRY.imported("aten"), *CHECKS}
    core: set[str] = set()
    for text in torch._C._dispatch_get_all_op_names():
        space, _, rest = text.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten" or not hasattr(torch.ops.aten, base):
            continue
        op = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            core.add(str(op).removeprefix("aten."))
    assert len(core) > 180
    assert core - known == set(EXCUSED)
    documented = (Path(__file__).parents[3] / "docs" / "torch.md").read_text()
    assert [c for c in sorted(core) if f"`{c}`" not in documented] == []


def _variants(call: Call) -> list[tuple[str, Call]]:
    """The same call on transposed, expanded and offset memory: equal numbers, other strides."""
    found: list[tuple[str, Call]] = []
    makers: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
        "offset": lambda t: torch.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].view(t.shape),
    }
    for name, make in makers.items():
        if any(t.ndim >= 2 and t.numel() for t in call.tensors):
            tensors = tuple(make(t) if t.ndim >= 2 and t.numel() else t for t in call.tensors)
            found.append((name, Call(f"{call.name}-{name}", call.function, tensors)))
    return found


def check(call: Call, *, dynamic: bool = False) -> str:
    """ "ok", "refused" or why the call was not tried; fails where results differ."""
    try:
        with torch.no_grad():
            want = call.function(*[t.clone() for t in call.tensors])
    except Exception:  # of any class: a sample that eager itself refuses judges nobody
        return "eager refuses it"
    if any(w.is_complex() for w in want):
        return "complex"
    try:
        graph = import_call(call, dynamic=dynamic)
    except UnsupportedError as error:
        reasons = [p.reason for p in error.problems]
        assert all(any(w in r for w in REFUSED) for r in reasons), f"{call.name}: {reasons}"
        return "refused"
    except (RuntimeError, ValueError) as error:
        # torch's own tracing depends on data here.
        assert "data" in str(error) or "allocated" in str(error), f"{call.name}: {error}"
        return "not traced"
    if any(op.name.startswith("random") for op in graph.ops):
        return "random"
    got = run_reference(graph, call.tensors)
    if call.name.startswith(TIED):  # eager orders equal elements as it likes
        got, want = got[:1], want[:1]
    wrong = difference(got, want)
    assert not wrong, f"{call.name}{' (dynamic)' if dynamic else ''}: {wrong}"
    return "ok"


def run(name: str, dtype: torch.dtype, limit: int) -> list[str]:
    return [
        check(call)
        for info in BY_NAME[name]
        if dtype in info.supported_dtypes("cpu")
        for call in calls_of(info, dtype, limit)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str) -> None:
    dtype = torch.float32
    if all(dtype not in i.supported_dtypes("cpu") for i in BY_NAME[name]):
        dtype = torch.int64
    assert "ok" in run(name, dtype, 2) or "ok" in run(name, dtype, 12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str, dtype: str) -> None:
    run(name, getattr(torch, dtype), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_memory_and_dynamic_sizes(name: str) -> None:
    for info in BY_NAME[name]:
        if torch.float32 not in info.supported_dtypes("cpu"):
            continue
        for call in calls_of(info, torch.float32, 2):
            if check(call) != "ok":
                continue
            for _, other in _variants(call):
                check(other)
            check(call, dynamic=True)
