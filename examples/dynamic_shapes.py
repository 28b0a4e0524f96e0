"""One artifact for many sizes: ranges, names, and what happens outside them.

python examples/dynamic_shapes.py
"""

from __future__ import annotations

import numpy as np
from small_network import small_network

import graphwright as gw


def main() -> None:
    # N from 1 to 4; H and W are multiples of 8 up to 64, and kernels are laid out for 32.
    model = gw.compile(small_network(), shapes="pictures:N[1..4]x3x[8..64@32%8]x[8..64@32%8]")
    print(f"input {list(model.inputs[0].shape)}, output {list(model.outputs[0].shape)}")

    rng = np.random.default_rng(0)
    for shape in ((1, 3, 32, 32), (4, 3, 64, 8), (3, 3, 16, 40)):
        (scores,) = model(rng.standard_normal(shape).astype(np.float32))
        print(f"{shape} -> {scores.shape}")

    # What was not promised is refused, in words: nothing is padded, cut or compiled anew.
    for shape in ((5, 3, 32, 32), (1, 3, 30, 32)):
        try:
            model(np.zeros(shape, np.float32))
        except gw.InputError as error:
            print(f"{shape} is refused: {error}")
        else:
            raise AssertionError(f"{shape} was not refused")

    # Fixed sizes: everything is known, down to the last offset.
    fixed = gw.compile(small_network(), shapes={"pictures": (1, 3, 32, 32)})
    print(f"fixed: {list(fixed.inputs[0].shape)}, {fixed.variant.plan.sizes['opt']} bytes of arena")


if __name__ == "__main__":
    main()
