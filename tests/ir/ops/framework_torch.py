"""What torch calls our ops: {op: function of (tensors, attributes)}, for the samples it can run.

A function returns None for a sample whose form torch does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from graphwright.compiler.ir.types import DType

Tensor = torch.Tensor
Attributes = Mapping[str, Any]
Run = Callable[[list[Tensor], Attributes], Any]

BY_NAME = [
    "neg",
    "abs",
    "sign",
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sigmoid",
    "relu",
    "softplus",
    "softsign",
    "silu",
    "mish",
    "floor",
    "ceil",
    "round",
    "trunc",
    "is_nan",
    "logical_not",
    "bitwise_not",
    "add",
    "sub",
    "mul",
    "pow",
    "atan2",
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
]
RENAMED = {"is_nan": "isnan", "equal": "eq", "not_equal": "ne", "less": "lt", "greater": "gt",
           "less_or_equal": "le", "greater_or_equal": "ge"}  # fmt: skip
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def _by_name(name: str) -> Run:
    spelled = RENAMED.get(name, name)
    function = getattr(torch, spelled, None) or getattr(F, spelled)
    return lambda t, a: function(*t)


def _div(t: list[Tensor], a: Attributes) -> Tensor | None:
    if t[0].is_floating_point():
        return t[0] / t[1]
    x, y = torch.broadcast_tensors(*t)
    if (y == 0).any() or (y == -1).any():
        return None  # the process dies, or the quotient overflows
    return torch.div(x, y, rounding_mode="trunc")


def _mod(t: list[Tensor], a: Attributes) -> Tensor | None:
    if not t[0].is_floating_point() and ((t[1] == 0).any() or (t[1] == -1).any()):
        return None
    if t[0].is_floating_point() and not a["fmod"]:
        return None  # torch's remainder differs at infinity
    return torch.fmod(*t) if a["fmod"] else torch.remainder(*t)


def _is_inf(t: list[Tensor], a: Attributes) -> Tensor:
    return (torch.isposinf(t[0]) & a["positive"]) | (torch.isneginf(t[0]) & a["negative"])


def _cast(t: list[Tensor], a: Attributes) -> Tensor | None:
    to: DType = a["dtype"]
    if to.bits < 8 or not hasattr(torch, to.long_name) or t[0].dtype in UNSIGNED:
        return None
    if to.is_float and to.bits == 8:
        return None  # never saturates
    if t[0].is_floating_point() and to.is_integer:
        return None  # undefined beyond the range
    return t[0].to(getattr(torch, to.long_name))


def _pad(t: list[Tensor], a: Attributes) -> Tensor | None:
    x, mode = t[0], a["mode"]
    if mode == "constant":
        widths = [n for low, high in zip(a["low"], a["high"], strict=True) for n in (high, low)]
        value = t[1].item() if len(t) == 2 else 0
        return F.pad(x, widths[::-1], value=value)
    return None


def _slice(t: list[Tensor], a: Attributes) -> Tensor:
    x = t[0]
    for axis, (start, size, step) in enumerate(
        zip(a["starts"], a["sizes"], a["steps"], strict=True)
    ):
        x = x.index_select(axis, start + step * torch.arange(size))
    return x


def _gather(t: list[Tensor], a: Attributes) -> Tensor:
    x, axis = t[0], a["axis"]
    index = t[1].long().reshape(-1) % x.shape[axis]
    return x.index_select(axis, index).reshape(*x.shape[:axis], *t[1].shape, *x.shape[axis + 1 :])


def _scatter(t: list[Tensor], a: Attributes) -> Tensor:
    x, axis = t[0], a["axis"]
    index = t[1].long() % x.shape[axis]
    if a["reduction"] == "none":
        return x.scatter(axis, index, t[2])
    reduce = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[a["reduction"]]
    return x.scatter_reduce(axis, index, t[2], reduce)


def _gather_elements(t: list[Tensor], a: Attributes) -> Tensor:
    return torch.gather(t[0], a["axis"], t[1].long() % t[0].shape[a["axis"]])


def _reduce(function: Callable[..., Any], *, ints: bool = True) -> Run:
    def run(t: list[Tensor], a: Attributes) -> Tensor | None:
        x = t[0]
        axes = a["axes"]
        if x.numel() == 0 or (not ints and not x.is_floating_point()) or not axes:
            return None
        return function(x, axes, a["keepdims"])

    return run


def _sum(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _product(x: Tensor, axes: Any, keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _arguments(function: Callable[..., Any]) -> Run:
    def run(t: list[Tensor], a: Attributes) -> Tensor | None:
        return None if a["select_last"] else function(t[0], a["axis"], keepdim=a["keepdims"])

    return run


def _layer_norm(t: list[Tensor], a: Attributes) -> Tensor | None:
    shape = t[0].shape[a["axis"] :]
    if any(p.shape != shape for p in t[1:]):
        return None
    return F.layer_norm(t[0], shape, *t[1:], eps=a["epsilon"])


def _rms_norm(t: list[Tensor], a: Attributes) -> Tensor:
    return F.rms_norm(t[0], t[0].shape[a["axis"] :], *t[1:], eps=a["epsilon"])


def _batch_norm(t: list[Tensor], a: Attributes) -> Tensor:
    x, scale, bias, mean, variance = t
    return F.batch_norm(x, mean, variance, scale, bias, eps=a["epsilon"])


def _conv(t: list[Tensor], a: Attributes) -> Tensor | None:
    x, rank = t[0], t[0].ndim - 2
    widths = [n for low, high in zip(a["low"], a["high"], strict=True) for n in (high, low)]
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    bias = t[2] if len(t) == 3 else None
    padded = F.pad(x, widths[::-1])
    return function(
        padded, t[1], bias, stride=a["strides"], dilation=a["dilations"], groups=a["groups"]
    )


def _conv_transpose(t: list[Tensor], a: Attributes) -> Tensor | None:
    if a["low"] != a["high"]:
        return None
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[t[0].ndim - 3]
    bias = t[2] if len(t) == 3 else None
    return function(
        t[0], t[1], bias, stride=a["strides"], padding=a["low"], groups=a["groups"],
        dilation=a["dilations"], output_padding=a["output_padding"],
    )  # fmt: skip


def _pools_alike(a: Attributes) -> bool:
    halves = all(2 * p <= k for p, k in zip(a["low"], a["kernel"], strict=True))
    return a["low"] == a["high"] and halves


def _max_pool(t: list[Tensor], a: Attributes) -> Tensor | None:
    if not _pools_alike(a) or not t[0].is_floating_point():
        return None
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[t[0].ndim - 3]
    return function(t[0], a["kernel"], a["strides"], a["low"], a["dilations"], a["ceil_mode"])


def _average_pool(t: list[Tensor], a: Attributes) -> Tensor | None:
    if not _pools_alike(a) or set(a["dilations"]) != {1}:
        return None
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[t[0].ndim - 3]
    return function(
        t[0], a["kernel"], a["strides"], a["low"], a["ceil_mode"], a["count_include_pad"]
    )


def _resize(t: list[Tensor], a: Attributes) -> Tensor | None:
    if len(t) > 1:
        return None
    x = t[0]
    if x.ndim != 4 or a["scales"] or a["exclude_outside"] or not x.is_floating_point():
        return None
    if a["antialias"]:  # it leaves elements outside out
        return None
    aligned = a["coordinates"] == "align_corners"
    if a["mode"] == "nearest":
        if (a["coordinates"], a["nearest"]) != ("asymmetric", "floor"):
            return None
        return F.interpolate(x, a["sizes"][2:], mode="nearest")
    if a["coordinates"] not in ("half_pixel", "align_corners") or 1 in a["sizes"][2:]:
        return None
    mode = {"linear": "bilinear", "cubic": "bicubic"}[a["mode"]]
    return F.interpolate(x, a["sizes"][2:], mode=mode, align_corners=aligned)


def _recurrent(kind: Any, order: tuple[int, ...]) -> Run:
    """torch's layers, with our gates put in their order."""

    def run(t: list[Tensor], a: Attributes) -> Any:
        states = 2 if len(order) == 4 else 1
        plain = a["activations"] in (("tanh",), ("sigmoid", "tanh"), ("sigmoid", "tanh", "tanh"))
        usual = a["direction"] != "reverse" and len(t) == 4 + states and a["clip"] is None
        if not plain or not usual or (len(order) == 3 and not a["linear_before_reset"]):
            return None
        x, w, r, bias, *start = t
        layer = kind(x.shape[2], r.shape[2], bidirectional=len(w) == 2).double()
        values = {}
        for d, suffix in zip(range(len(w)), ("", "_reverse"), strict=False):
            into, again = bias[d].chunk(2)
            for name, value in (
                ("weight_ih", w[d]), ("weight_hh", r[d]), ("bias_ih", into), ("bias_hh", again),
            ):  # fmt: skip
                gates = value.chunk(len(order))
                values[f"{name}_l0{suffix}"] = torch.cat([gates[g] for g in order])
        layer.load_state_dict(values)
        y, last = layer(x, tuple(start) if states == 2 else start[0])
        y = y.reshape(*x.shape[:2], len(w), -1).transpose(1, 2)
        return [y.detach(), *(s.detach() for s in (last if states == 2 else [last]))]

    return run


def _top_k(t: list[Tensor], a: Attributes) -> list[Tensor]:
    values, index = torch.sort(t[0], dim=a["axis"], descending=a["largest"], stable=True)
    keep = torch.arange(a["k"])
    return [values.index_select(a["axis"], keep), index.index_select(a["axis"], keep)]


def _cumsum(t: list[Tensor], a: Attributes) -> Tensor | None:
    return (
        None if a["exclusive"] or a["reverse"] else torch.cumsum(t[0], a["axis"], dtype=t[0].dtype)
    )


def _trilu(t: list[Tensor], a: Attributes) -> Tensor:
    return (torch.triu if a["upper"] else torch.tril)(t[0], a["k"])


def _celu(t: list[Tensor], a: Attributes) -> Tensor:
    return F.celu(t[0], a["alpha"])


def _attention(t: list[Tensor], a: Attributes) -> Tensor | None:
    q, k, v, *more = t
    if a["softcap"] or a["fill"] != -math.inf or a["window"] != (-1, -1) or a["empty"] == "nan":
        return None
    if a["align"] == "end" or len(more) > 1:
        return None
    steps, length = q.shape[2], k.shape[2]
    mask = torch.ones(steps, length, dtype=torch.bool)
    mask = mask.tril(a["offset"]) if a["causal"] else mask
    if more:
        given = more[0]
        mask = given & mask if given.dtype == torch.bool else given.masked_fill(~mask, -math.inf)
    mask = mask.broadcast_to(q.shape[0], q.shape[1], steps, length)
    return F.scaled_dot_product_attention(q, k, v, mask, scale=a["scale"], enable_gqa=True)


RUN: dict[str, Run] = {
    "attention": _attention,
    **{n: _by_name(n) for n in [*BY_NAME, *RENAMED]},
    "div": _div,
    "mod": _mod,
    "is_inf": _is_inf,
    "sign": lambda t, a: torch.where(t[0] != t[0], t[0], torch.sign(t[0])),  # torch: 0 of NaN
    "softplus": lambda t, a: torch.logaddexp(t[0], torch.zeros(())),  # torch: x itself above 20
    "where": lambda t, a: torch.where(*t),
    "clip": lambda t, a: torch.minimum(torch.maximum(t[0], t[1]), t[2]),
    "prelu": lambda t, a: torch.where(t[0] < 0, t[0] * t[1], t[0]),
    "shift_left": lambda t, a: None if t[0].dtype in UNSIGNED else t[0] << t[1],
    "shift_right": lambda t, a: None if t[0].dtype in UNSIGNED else t[0] >> t[1],
    "cast": _cast,
    "gelu": lambda t, a: F.gelu(t[0], approximate=a["approximate"]),
    "hard_swish": lambda t, a: F.hardswish(t[0]),
    "elu": lambda t, a: F.elu(t[0], a["alpha"]),
    "celu": _celu,
    "leaky_relu": lambda t, a: F.leaky_relu(t[0], a["alpha"]),
    "reshape": lambda t, a: t[0].reshape(a["shape"]),
    "transpose": lambda t, a: t[0].permute(a["permutation"]),
    "broadcast_to": lambda t, a: t[0].broadcast_to(a["shape"]),
    "slice": _slice,
    "concat": lambda t, a: torch.cat(t, a["axis"]),
    "pad": _pad,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "scatter_elements": _scatter,
    "trilu": _trilu,
    "reduce_sum": _reduce(_sum),
    "reduce_prod": _reduce(_product),
    "reduce_mean": _reduce(lambda x, d, k: torch.mean(x, d, keepdim=k), ints=False),
    "reduce_max": _reduce(lambda x, d, k: torch.amax(x, d, keepdim=k)),
    "reduce_min": _reduce(lambda x, d, k: torch.amin(x, d, keepdim=k)),
    "reduce_and": _reduce(lambda x, d, k: torch.all(x, d, keepdim=k)),
    "reduce_or": _reduce(lambda x, d, k: torch.any(x, d, keepdim=k)),
    "arg_max": _arguments(torch.argmax),
    "arg_min": _arguments(torch.argmin),
    "softmax": lambda t, a: torch.softmax(t[0], a["axis"]),
    "log_softmax": lambda t, a: torch.log_softmax(t[0], a["axis"]),
    "lp_normalize": lambda t, a: F.normalize(t[0], a["p"], a["axis"], eps=1e-300),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "instance_norm": lambda t, a: F.instance_norm(t[0], weight=t[1], bias=t[2], eps=a["epsilon"]),
    "group_norm": lambda t, a: F.group_norm(t[0], a["groups"], t[1], t[2], a["epsilon"]),
    "batch_norm": _batch_norm,
    "cumsum": _cumsum,
    "top_k": _top_k,
    "matmul": lambda t, a: torch.matmul(*t),
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "resize": _resize,
    "lstm": _recurrent(torch.nn.LSTM, (0, 2, 3, 1)),
    "gru": _recurrent(torch.nn.GRU, (1, 0, 2)),
    "rnn": _recurrent(torch.nn.RNN, (0,)),
}


def tensor(array: np.ndarray) -> Tensor | None:
    """A tensor; every float as float64.  None for a type torch does not calculate with."""
    kind = array.dtype.name
    if kind in ("int2", "uint2", "int4", "uint4", "uint64", "uint32", "uint16"):
        return None
    if array.dtype.kind in "fV":
        return torch.from_numpy(array.astype(np.float64))
    return torch.from_numpy(np.array(array))
