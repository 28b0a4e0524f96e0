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

_SEQUENCES = "sequences and optionals come later"

DOMAINS = {
    "ai.onnx.ml": CLASSIC,
    "ai.onnx.preview.training": TRAINING,
}
OPS = {
    "ImageDecoder": IMAGES,
    "StringNormalizer": STRINGS,
    **dict.fromkeys(("SequenceMap",), _SEQUENCES),
    "DeformConv": "the IR has no such op yet",
    **dict.fromkeys(
        (
            "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement",
            "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
            "SequenceLength", "SplitToSequence",
        ),
        _SEQUENCES,
    ),
}  # fmt: skip
_DATA = "numbers that only the data know"
NAMES: dict[str, str] = dict.fromkeys(
    (
        "test_affine_grid_2d",
        "test_affine_grid_2d_align_corners",
        "test_affine_grid_2d_align_corners_expanded",
        "test_affine_grid_2d_expanded",
        "test_affine_grid_3d_align_corners",
        "test_affine_grid_3d_align_corners_expanded",
        "test_col2im",
        "test_col2im_5d",
        "test_col2im_dilations",
        "test_col2im_pads",
        "test_col2im_strides",
        "test_melweightmatrix",
        "test_resize_downsample_scales_cubic",
        "test_resize_downsample_scales_cubic_A_n0p5_exclude_outside",
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_cubic_antialias",
        "test_resize_downsample_scales_linear",
        "test_resize_downsample_scales_linear_align_corners",
        "test_resize_downsample_scales_linear_antialias",
        "test_resize_downsample_scales_linear_half_pixel_symmetric",
        "test_resize_downsample_scales_nearest",
        "test_resize_downsample_sizes_nearest_not_larger",
        "test_resize_downsample_sizes_nearest_not_smaller",
        "test_resize_tf_crop_and_resize",
        "test_resize_tf_crop_and_resize_axes_2_3",
        "test_resize_tf_crop_and_resize_axes_3_2",
        "test_resize_tf_crop_and_resize_extrapolation_value",
        "test_resize_upsample_scales_cubic",
        "test_resize_upsample_scales_cubic_A_n0p5_exclude_outside",
        "test_resize_upsample_scales_cubic_align_corners",
        "test_resize_upsample_scales_cubic_asymmetric",
        "test_resize_upsample_scales_linear",
        "test_resize_upsample_scales_linear_align_corners",
        "test_resize_upsample_scales_linear_half_pixel_symmetric",
        "test_resize_upsample_scales_nearest",
        "test_resize_upsample_scales_nearest_axes_2_3",
        "test_resize_upsample_scales_nearest_axes_3_2",
        "test_resize_upsample_sizes_nearest_not_larger",
        "test_resize_upsample_sizes_nearest_not_smaller",
        "test_stft",
        "test_stft_with_window",
        "test_tfidfvectorizer_tf_batch_onlybigrams_skip0",
        "test_tfidfvectorizer_tf_batch_onlybigrams_skip5",
        "test_tfidfvectorizer_tf_batch_uniandbigrams_skip5",
        "test_tfidfvectorizer_tf_only_bigrams_skip0",
        "test_tfidfvectorizer_tf_onlybigrams_levelempty",
        "test_tfidfvectorizer_tf_onlybigrams_skip5",
        "test_tfidfvectorizer_tf_uniandbigrams_skip5",
        "test_upsample_nearest",
    ),
    _DATA,
)
NO_KERNEL: dict[str, str] = dict.fromkeys(
    [
        "test_resize_downsample_sizes_cubic_antialias",
        "test_resize_downsample_sizes_linear_antialias",
    ],
    _DATA,
)

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
        kind = value.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            return _SEQUENCES
        if value.type.tensor_type.elem_type == TensorProto.STRING:
            return STRINGS
    return NO_KERNEL.get(case.name, "") if path == "compiled" else ""
