"""Which of ONNX's own backend tests cannot pass yet, and why: rules over the test's model."""

from __future__ import annotations

import onnx
from onnx import TensorProto

_LATER = "the IR has no such op yet"
DATA = "the shape of a result is only known at run time"
_LOOPS = "loops come later"
_SEQUENCES = "sequences and optionals come later"

OPS = {
    **dict.fromkeys(("SequenceMap",), _LOOPS),
    **dict.fromkeys(
        (
            "DeformConv", "LinearAttention",
            "MaxRoiPool", "Multinomial",
        ),
        _LATER,
    ),
    **dict.fromkeys(
        (
            "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
            "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
            "SplitToSequence",
        ),
        _SEQUENCES,
    ),
    "ImageDecoder": "images are decoded before the model",
    "TfIdfVectorizer": "strings are handled before the model",
}  # fmt: skip

# Inputs whose numbers go into kernels as constants.
SHAPE_INPUTS = {
    "Col2Im": (1, 2),
    "DFT": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "Resize": (1, 2),
    "STFT": (1, 3),
    "Upsample": (1,),
}
_SQUEEZE = "a squeeze without axes of a tensor whose extents are only known at run time"
_NAMES = {
    **{f"test_affine_grid_2d{a}{e}": _SQUEEZE for a in ("", "_align_corners") for e in ("", "_expanded")},
    **{f"test_affine_grid_3d_align_corners{e}": "branches that yield a scalar and a vector of one"
       for e in ("", "_expanded")},
    **{f"test_resize_{way}sample_sizes_nearest_not_{limit}er": DATA
       for way in ("up", "down") for limit in ("small", "larg")},
}  # fmt: skip
TYPES = {
    getattr(TensorProto, name)
    for name in ("STRING", "FLOAT6E2M3", "FLOAT6E3M2")
    if hasattr(TensorProto, name)
}

# Tests whose stored answers are not what the text of the specification says.
WRONG = dict.fromkeys(
    (
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    ),
    "its coordinates divide by a fractional length; text, torch and ONNX Runtime by the result's",
)


def why_not(model: onnx.ModelProto) -> str:
    """The reason why a test's model is refused, or "" when it has to work."""
    if model.graph.name in _NAMES:
        return _NAMES[model.graph.name]
    nodes = list(model.graph.node) + [n for f in model.functions for n in f.node]
    for node in nodes:
        if node.domain not in ("", "ai.onnx"):
            return f"the domain {node.domain} is out"
        if node.op_type in OPS:
            return OPS[node.op_type]
        for attribute in node.attribute:
            if attribute.name in ("to", "output_dtype", "dtype") and attribute.i in TYPES:
                return "an element type that the IR lacks"
    for value in [*model.graph.input, *model.graph.output]:
        kind = value.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            return _SEQUENCES
        if value.type.tensor_type.elem_type in TYPES:
            return "an element type that the IR lacks"
    return DATA if _asks_data(model) else ""


def _asks_data(model: onnx.ModelProto) -> bool:
    """Whether some input that sets a shape or axis is computed from the values of graph inputs."""
    held = {t.name for t in model.graph.initializer}
    data = {i.name for i in model.graph.input} - held
    for node in model.graph.node:
        positions = SHAPE_INPUTS.get(node.op_type, ())
        if any(p < len(node.input) and node.input[p] in data for p in positions):
            return True
        if (node.op_type not in ("Shape", "Size") and data.intersection(node.input)) or any(
            a.HasField("g") for a in node.attribute
        ):
            data.update(node.output)
    return False


def inputs_for_shapes(model: onnx.ModelProto) -> set[str]:
    """The graph inputs that shapes and axes are computed from."""
    makers = {o: n for n in model.graph.node for o in n.output}
    stack = [
        node.input[p]
        for node in model.graph.node
        for p in SHAPE_INPUTS.get(node.op_type, ())
        if p < len(node.input)
    ]
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name in makers and makers[name].op_type not in ("Shape", "Size"):
            stack += makers[name].input
        found.add(name)
    return found & {i.name for i in model.graph.input}
