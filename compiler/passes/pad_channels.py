"""pad-channels: convolutions of up to three channels get a fourth, of zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.rewrite import Rewriter, apply_rules, rule
from graphwright.compiler.target import Target

WHOLE = 4  # channels that lie side by side are read as one piece of 8 or 16 bytes


def _padded(rw: Rewriter, value: Value, more: int) -> Value:
    rank = value.type.rank
    high = (0, more, *[0] * (rank - 2))
    return rw.value("pad", value, low=(0,) * rank, high=high, mode="constant")


@rule("conv")
def fourth_channel(op: Op, rw: Rewriter) -> bool | None:
    """conv(x, w) of 3 channels => conv(pad(x), pad(w)) of 4; the padded weight is a constant."""
    x, w, *bias = op.operands
    channels = w.type.shape[1]
    if not isinstance(channels, int) or channels >= WHOLE or op.attribute("groups") != 1:
        return None
    if w.op is None or w.op.name != "constant":
        return rw.fail("its weights are not constant")
    taps = 1
    for n in w.type.shape[2:]:
        taps *= n if isinstance(n, int) else 0
    if taps * channels < 16:
        return None  # hardly any products: the copy would cost more
    padded = [_padded(rw, v, WHOLE - channels) for v in (x, w)]
    return rw.replace(rw.create("conv", [*padded, *bias], op.attributes).result)


@dataclass(frozen=True, slots=True)
class PadChannels:
    """Pads images to four channels in front of a convolution, where a GPU lays channels innermost.

    Why: the kernel's loads of a pixel's channels become one piece instead of three of two bytes; the
    copy that lays the channels innermost is made anyway.  Requires that constants are folded after.

        %1 = conv(%x, %w)   =>   %2 = pad(%x) {high = [0, 1, 0, 0]}
                                 %1 = conv(%2, %w4)
    """

    name: ClassVar[str] = "pad-channels"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if target.kind != "cuda":
            return PassResult(False)
        return apply_rules(graph, (fourth_channel,), self.name, journal)
