"""Scaled dot product attention as one op."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim, prove
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import (
    check_choice,
    check_float,
    check_indices,
    check_length,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import BOOL, F32, TensorType


class Attention(OpDef):
    """softmax(scale * q k' + bias) v for each head, where only some pairs take part.

    q [B, H, S, D], k [B, G, T, D], v [B, G, T, E] give [B, H, S, E] of q's type.  G divides H: query
    head h reads the head h // (H / G) of k and v.  The result of 16-bit floats is calculated in f32
    and rounded once; f64 stays f64.

    The score of a pair, in this order: scale * sum over D; softcap * tanh(score / softcap), unless
    softcap is 0; plus `bias`, when that is of q's type or f32.  A `bias` of bools hides pairs where it is
    false: their score becomes `fill`.  `bias` broadcasts to [B, H, S, T] (its missing axes are the
    first); a true scalar is the neutral one, needed where `lengths` follow.

    A pair takes part when all of these hold; the others have the score -inf:
    - key j lies below `lengths[b]` (integers [B], 0 to T); what k and v hold from there on does not
      matter, even NaN;
    - with p the position of the query among the keys, `causal`: j <= p; `window` (left, right):
      p - left <= j <= p + right, where -1 is no limit.
    The position of query i is i + offset when `align` is "start" (offset is the length of the past,
    if any), and i + length - S + offset when it is "end", where length is `lengths[b]` or T.

    `tf32` allows products with operands rounded to 10 bits, where the device has them.

    A row whose scores are all -inf gives zeros (`empty` is "zero": what ONNX and torch's
    scaled_dot_product_attention define) or NaN ("nan": what a softmax written out gives).
    """

    name = "attention"
    kind = Kind.CONTRACTION
    operands = ("q", "k", "v", "bias?", "lengths?")
    attributes = {
        "scale": Attribute("float"),
        "causal": Attribute("bool", False),
        "offset": Attribute("dim", 0),
        "align": Attribute("str", "start"),
        "window": Attribute("ints", (-1, -1)),
        "softcap": Attribute("float", 0.0),
        "fill": Attribute("float", -np.inf),
        "empty": Attribute("str", "zero"),
        "tf32": Attribute("bool", False),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        q, k, v = types[:3]
        check_float("attention", q)
        check_same_dtype("attention", (q, k, v))
        for name, t in zip("qkv", (q, k, v), strict=True):
            check_rank("attention", name, t, 4)
        _check_attributes(attributes)
        (batch, heads, steps, size), (_, groups, length, _) = q.shape, k.shape
        inference.require(k.shape[0], "==", batch, "attention: batches of q and k")
        inference.require(k.shape[3], "==", size, "attention: head sizes of q and k")
        require_shape(inference, "attention", "v", v, (*k.shape[:3], v.shape[3]))
        if heads != groups:
            inference.require(groups, ">", 0, "attention: heads of k")
            inference.require(heads % groups, "==", 0, "attention: heads of q over those of k")
        if len(types) > 3:
            bias, full = types[3], (batch, heads, steps, length)
            if bias.dtype not in (BOOL, q.dtype) and (bias.dtype is not F32 or q.dtype.bits > 32):
                raise InferenceError(f"attention: bias is {bias}, want bool, {q.dtype} or f32")
            if bias.rank > 4:
                raise InferenceError(f"attention: bias is {bias}, want rank 4 or less")
            for axis, extent in enumerate(bias.shape, 4 - bias.rank):
                if extent != 1:
                    inference.require(extent, "==", full[axis], f"attention: bias, axis {axis}")
        if len(types) > 4:
            check_indices("attention", types[4])
            require_shape(inference, "attention", "lengths", types[4], (batch,))
        return [q.with_shape((batch, heads, steps, v.shape[3]))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        q, k, v = (accumulate(a, context) for a in arrays[:3])
        bias = arrays[3] if len(arrays) > 3 else None
        lengths = arrays[4].astype(np.int64) if len(arrays) > 4 else None
        repeat = q.shape[1] // max(k.shape[1], 1)
        if lengths is not None:  # a weight of zero times NaN would be NaN
            kept = np.arange(k.shape[2]) < lengths[:, None]
            k, v = (np.where(kept[:, None, :, None], a, 0) for a in (k, v))
        k, v = (np.repeat(a, repeat, axis=1) for a in (k, v))
        with np.errstate(all="ignore"):
            scores = np.matmul(q, k.swapaxes(2, 3)) * attributes["scale"]
            if softcap := attributes["softcap"]:
                scores = softcap * np.tanh(scores / softcap)
            if bias is not None:
                if bias.dtype == np.bool_:
                    scores = np.where(bias, scores, attributes["fill"])
                else:
                    scores = scores + accumulate(bias, context)
            taking = _taking_part(q.shape[2], k.shape[2], lengths, attributes, context)
            scores = np.where(taking, scores, -np.inf)
            largest = scores.max(axis=3, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
            total = weights.sum(axis=3, keepdims=True)
            out = np.matmul(weights, v) / total
            if attributes["empty"] == "zero":
                out = np.where(total == 0, 0, out)
        return results([out], context)


def _check_attributes(attributes: Attributes) -> None:
    check_choice("attention", "align", attributes["align"], ("start", "end"))
    check_choice("attention", "empty", attributes["empty"], ("zero", "nan"))
    check_length("attention", "window", attributes["window"], 2)
    if min(attributes["window"]) < -1:
        raise InferenceError(f"attention: window is {attributes['window']}, want -1 or more")
    if attributes["softcap"] < 0:
        raise InferenceError(f"attention: softcap is {attributes['softcap']}, want 0 or more")


def _taking_part(
    steps: int,
    length: int,
    lengths: np.ndarray | None,
    attributes: Attributes,
    context: Reference,
) -> np.ndarray:
    """Which pairs take part, as bools that broadcast to [B, H, S, T]."""
    keys = np.arange(length)
    ends = np.array([length]) if lengths is None else lengths
    place = np.arange(steps) + context.size(attributes["offset"])
    if attributes["align"] == "end":
        place = place + (ends - steps)[:, None]
    distance = keys - np.atleast_2d(place)[:, :, None]  # [B or 1, S, T]
    taking = keys < ends[:, None, None]
    left, right = attributes["window"]
    if attributes["causal"]:
        taking = taking & (distance <= 0)
    if left >= 0:
        taking = taking & (distance >= -left)
    if right >= 0:
        taking = taking & (distance <= right)
    return taking[:, None]


def may_be_empty(types: Sequence[TensorType], attributes: Attributes) -> bool:
    """Whether a row of an attention op with these operand types can lack keys that take part.

    A bias of floats counts, as it may hold -inf.
    """
    length, steps = types[1].shape[2], types[0].shape[2]
    if len(types) > 4 or not prove(length, ">", 0):
        return True
    if len(types) == 4 and (types[3].dtype != BOOL or attributes["fill"] == -np.inf):
        return True
    left, right = attributes["window"]
    right = 0 if attributes["causal"] else right
    first: Dim = attributes["offset"]
    if attributes["align"] == "end":
        first = first + length - steps
    # The windows of the first and of the last query must both touch [0, length).
    return (right >= 0 and not prove(first + right, ">=", 0)) or (
        left >= 0 and not prove(first + steps - 1 - left, "<", length)
    )


OPS: tuple[OpDef, ...] = (Attention(),)
