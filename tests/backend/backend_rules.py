"""Which of ONNX's own backend tests do not pass, and why.

Every exclusion has a reason.  An excluded test has to be refused: one that starts to pass, and one
that gives a wrong answer or a fault, fail the run.
"""

from __future__ import annotations

import onnx
from backend_cases import Case
from onnx import TensorProto

TRAINING = "training"
IMAGES = "images are decoded before the model"
STRINGS = "strings are handled before the model"
CLASSIC = "ai.onnx.ml is out"
# What the share of passing tests does not count.
OUT_OF_SCOPE = (TRAINING, IMAGES, STRINGS, CLASSIC)

DOMAINS = {
    "ai.onnx.ml": CLASSIC,
    "ai.onnx.preview.training": TRAINING,
}
OPS = {
    "ImageDecoder": IMAGES,
    "StringNormalizer": STRINGS,
}  # fmt: skip
NAMES = {
    "test_affine_grid_3d_align_corners_expanded": "its If yields a scalar or a vector of one",
}
NO_KERNEL: dict[str, str] = {}

# Tests whose stored answers are not what the text of the specification says: they have to differ.
WRONG = dict.fromkeys(
    (
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    ),
    "its coordinates divide by a fractional length; text, torch and ONNX Runtime by the result's",
)


def base_name(case: Case) -> str:
    return case.name.removesuffix(" (frozen)")


def why_not(case: Case, model: onnx.ModelProto, path: str) -> str:
    """The reason why a case is refused on a path ("evaluator" or "compiled"), or ""."""
    if case.name in NAMES:
        return NAMES[case.name]
    nodes = list(model.graph.node) + [n for f in model.functions for n in f.node]
    for node in nodes:
        if node.domain in DOMAINS:
            return DOMAINS[node.domain]
        if node.op_type in OPS:
            return OPS[node.op_type]
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.STRING:
                return STRINGS
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.STRING:
            return STRINGS
    return NO_KERNEL.get(case.name, "") if path == "compiled" else ""
