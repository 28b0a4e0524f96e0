"""Compile an ONNX model, save it, load it where no compiler is needed, run it.

python examples/compile_onnx.py [MODEL.onnx]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from small_network import small_network

import graphwright as gw


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else small_network()
    report = gw.check(source)  # every problem at once, before any compile time is spent
    for problem in report.problems:
        print(problem)
    if not report.ok:
        sys.exit(3)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gw"
        gw.compile(source).save(path)
        model = gw.load(path)  # imports the runtime alone

        for spec in (*model.inputs, *model.outputs):
            print(f"{spec.name}: {spec.dtype} {list(spec.shape)}")
        if len(sys.argv) > 1:
            return
        pictures = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)
        (scores,) = model(pictures)  # by position: a tuple in output order
        by_name = model.run({"pictures": pictures})  # by name: a dict
        assert np.array_equal(scores, by_name["scores"])
        out = np.empty_like(scores)
        model(pictures, out=[out])  # into your own array: nothing is allocated
        assert np.array_equal(scores, out)
        print(f"scores of the first picture: {np.round(scores[0], 3)}")


if __name__ == "__main__":
    main()
