"""Each op whose form changed between opsets: every form gives what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx_models import Feed, model_of, relative_rms, run

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
F = "float[2, 3, 4, 5] x"

# op: (opset, text) of every form; the input is X.
FORMS: dict[str, list[tuple[int, str]]] = {
    "squeeze": [
        (11, f"g ({F}) => (float[a] y) <int64[1] t = {{2}}> {{ u = ReduceMax<axes=[2]>(x) y = Squeeze<axes=[2]>(u) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[1] t = {{2}}> {{ u = ReduceMax<axes=[2]>(x) y = Squeeze(u, t) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[1] t = {{-2}}> {{ u = ReduceMax<axes=[2]>(x) y = Squeeze(u, t) }}"),
        (17, f"g ({F}) => (float[a] y) {{ u = ReduceMax<axes=[2]>(x) y = Squeeze(u) }}"),
    ],
    "unsqueeze": [
        (11, f"g ({F}) => (float[a] y) {{ y = Unsqueeze<axes=[0, 5]>(x) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[2] t = {{0, -1}}> {{ y = Unsqueeze(x, t) }}"),
        (17, f"g ({F}) => (float[a] y) <int64[2] t = {{5, 0}}> {{ y = Unsqueeze(x, t) }}"),
    ],
    "reduce_sum": [
        (11, f"g ({F}) => (float[a] y) {{ y = ReduceSum<axes=[1, -1]>(x) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[2] t = {{1, -1}}> {{ y = ReduceSum(x, t) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = ReduceSum<keepdims=0>(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = ReduceSum<noop_with_empty_axes=1>(x) }}"),
    ],
    "reduce_mean": [
        (11, f"g ({F}) => (float[a] y) {{ y = ReduceMean<axes=[2], keepdims=0>(x) }}"),
        (18, f"g ({F}) => (float[a] y) <int64[1] t = {{2}}> {{ y = ReduceMean<keepdims=0>(x, t) }}"),
    ],
    "reduce_l2": [
        (11, f"g ({F}) => (float[a] y) {{ y = ReduceL2<axes=[2]>(x) }}"),
        (18, f"g ({F}) => (float[a] y) <int64[1] t = {{2}}> {{ y = ReduceL2(x, t) }}"),
    ],
    "reduce_log_sum_exp": [
        (11, f"g ({F}) => (float[a] y) {{ k = Mul(x, x) l = Exp(k) m = Exp(l) y = ReduceLogSumExp<axes=[2]>(m) }}"),
        (18, f"g ({F}) => (float[a] y) {{ y = ReduceLogSumExp<keepdims=0>(x) }}"),
    ],
    "clip": [
        (6, f"g ({F}) => (float[a] y) {{ y = Clip<min=-0.5, max=0.25>(x) }}"),
        (6, f"g ({F}) => (float[a] y) {{ y = Clip<min=-0.5>(x) }}"),
        (11, f"g ({F}) => (float[a] y) <float l = {{-0.5}}, float h = {{0.25}}> {{ y = Clip(x, l, h) }}"),
        (13, f"g ({F}) => (float[a] y) <float h = {{0.25}}> {{ y = Clip(x, , h) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Clip(x) }}"),
    ],
    "pad": [
        (10, f"g ({F}) => (float[a] y) {{ y = Pad<pads=[0, 1, 0, 2, 0, 0, 3, 1], value=1.5>(x) }}"),
        (10, f"g ({F}) => (float[a] y) {{ y = Pad<pads=[0, 1, 0, 2, 0, 0, 3, 1], mode=\"reflect\">(x) }}"),
        (11, f"g ({F}) => (float[a] y) <int64[8] p = {{0, 1, 0, -2, 0, 0, 3, 1}}, float v = {{1.5}}> {{ y = Pad(x, p, v) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[8] p = {{0, 1, 0, 2, 0, 0, 3, 1}}> {{ y = Pad<mode=\"edge\">(x, p) }}"),
        (18, f"g ({F}) => (float[a] y) <int64[2] p = {{1, 2}}, int64[1] t = {{-1}}> {{ y = Pad(x, p, , t) }}"),
        (19, f"g ({F}) => (float[a] y) <int64[2] p = {{1, 2}}, int64[1] t = {{-1}}> {{ y = Pad<mode=\"wrap\">(x, p, , t) }}"),
    ],
    "slice": [
        (9, f"g ({F}) => (float[a] y) {{ y = Slice<axes=[1, 3], starts=[1, -3], ends=[3, 100]>(x) }}"),
        (9, f"g ({F}) => (float[a] y) {{ y = Slice<starts=[1], ends=[2]>(x) }}"),
        (10, f"g ({F}) => (float[a] y) <int64[2] s = {{1, -3}}, int64[2] e = {{3, 100}}, int64[2] t = {{1, 3}}> {{ y = Slice(x, s, e, t) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[1] s = {{-1}}, int64[1] e = {{-9}}, int64[1] t = {{3}}, int64[1] m = {{-2}}> {{ y = Slice(x, s, e, t, m) }}"),
    ],
    "softmax": [
        (11, f"g ({F}) => (float[a] y) {{ y = Softmax(x) }}"),
        (11, f"g ({F}) => (float[a] y) {{ y = Softmax<axis=2>(x) }}"),
        (11, f"g ({F}) => (float[a] y) {{ y = Softmax<axis=0>(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Softmax(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Softmax<axis=1>(x) }}"),
    ],
    "log_softmax": [
        (11, f"g ({F}) => (float[a] y) {{ y = LogSoftmax<axis=1>(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = LogSoftmax<axis=1>(x) }}"),
    ],
    "hardmax": [
        (11, f"g ({F}) => (float[a] y) {{ y = Hardmax<axis=2>(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Hardmax<axis=2>(x) }}"),
    ],
    "upsample and resize": [
        (7, f"g ({F}) => (float[a] y) {{ y = Upsample<scales=[1.0, 1.0, 2.0, 3.0]>(x) }}"),
        (9, f"g ({F}) => (float[a] y) <float[4] k = {{1, 1, 2, 3}}> {{ y = Upsample<mode=\"linear\">(x, k) }}"),
        (10, f"g ({F}) => (float[a] y) <float[4] k = {{1, 1, 2, 3}}> {{ y = Resize(x, k) }}"),
        (10, f"g ({F}) => (float[a] y) <float[4] k = {{1, 1, 0.5, 0.5}}> {{ y = Resize(x, k) }}"),
        (11, f"g ({F}) => (float[a] y) <float[0] r = {{}}, float[4] k = {{1, 1, 1.7, 2.3}}> {{ y = Resize<mode=\"linear\">(x, r, k) }}"),
        (11, f"g ({F}) => (float[a] y) <float[0] r = {{}}, float[0] k = {{}}, int64[4] s = {{2, 3, 7, 3}}> {{ y = Resize<mode=\"cubic\">(x, r, k, s) }}"),
        (13, f"g ({F}) => (float[a] y) <int64[4] s = {{2, 3, 8, 10}}> {{ y = Resize<mode=\"linear\", coordinate_transformation_mode=\"align_corners\">(x, , , s) }}"),
        (18, f"g ({F}) => (float[a] y) <int64[2] s = {{8, 10}}> {{ y = Resize<axes=[2, 3]>(x, , , s) }}"),
        (19, f"g ({F}) => (float[a] y) <int64[2] s = {{8, 7}}> {{ y = Resize<axes=[2, 3], keep_aspect_ratio_policy=\"not_larger\">(x, , , s) }}"),
    ],
    "top_k": [
        (9, f"g ({F}) => (float[a] y) {{ y, i = TopK<k=2, axis=1>(x) }}"),
        (10, f"g ({F}) => (float[a] y) <int64[1] k = {{2}}> {{ y, i = TopK<axis=2>(x, k) }}"),
        (11, f"g ({F}) => (int64[a] i) <int64[1] k = {{3}}> {{ y, i = TopK<largest=0>(x, k) }}"),
    ],
    "dropout": [
        (7, f"g ({F}) => (float[a] y) {{ y = Dropout<ratio=0.3>(x) }}"),
        (12, f"g ({F}) => (float[a] y) <float r = {{0.3}}> {{ y = Dropout(x, r) }}"),
        (13, f"g ({F}) => (bool[a] m) <float r = {{0.3}}, bool t = {{0}}> {{ y, m = Dropout(x, r, t) }}"),
    ],
    "batch_normalization": [
        (opset, f"g ({F}) => (float[a] y) <float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 0}}, float[3] m = {{0.5, 0, 0}}, float[3] v = {{1, 4, 0.5}}>"
                " { y = BatchNormalization<epsilon=0.01>(x, s, b, m, v) }")
        for opset in (7, 9, 14, 15)
    ],
    "split": [
        (11, f"g ({F}) => (float[a] z) {{ y, z = Split<axis=3, split=[2, 3]>(x) }}"),
        (11, f"g ({F}) => (float[a] z) {{ y, z = Split<axis=-2>(x) }}"),
        (13, f"g ({F}) => (float[a] z) <int64[2] s = {{2, 3}}> {{ y, z = Split<axis=3>(x, s) }}"),
        (18, f"g ({F}) => (float[a] z) {{ y, u, z = Split<axis=3, num_outputs=3>(x) }}"),
    ],
    "cast": [
        (9, f"g ({F}) => (int32[a] y) {{ y = Cast<to=6>(x) }}"),
        (13, f"g ({F}) => (float16[a] y) {{ y = Cast<to=10>(x) }}"),
        (19, f"g ({F}) => (bool[a] y) {{ y = Cast<to=9>(x) }}"),
    ],
    "gemm": [
        (7, f"g ({F}) => (float[a] y) <float[2] c = {{1, 2}}> {{ f = Flatten(x) y = Gemm<alpha=0.5, beta=2.0, transB=1>(f, f, c) }}"),
        (11, f"g ({F}) => (float[a] y) {{ f = Flatten<axis=3>(x) y = Gemm<transA=1>(f, f) }}"),
        (13, f"g ({F}) => (float[a] y) <float[2, 1] c = {{1, 2}}> {{ f = Flatten(x) y = Gemm<transB=1>(f, f, c) }}"),
    ],
    "reshape": [
        (7, f"g ({F}) => (float[a] y) <int64[3] t = {{0, -1, 5}}> {{ y = Reshape(x, t) }}"),
        (14, f"g ({F}) => (float[a] y) <int64[3] t = {{2, -1, 5}}> {{ y = Reshape<allowzero=1>(x, t) }}"),
    ],
    "group_normalization": [
        (21, f"g ({F}) => (float[a] y) <float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 0}}> {{ y = GroupNormalization<num_groups=3>(x, s, b) }}"),
    ],
    "arg_max": [
        (11, f"g ({F}) => (int64[a] y) {{ y = ArgMax<axis=1>(x) }}"),
        (13, f"g ({F}) => (int64[a] y) {{ y = ArgMin<axis=-1, keepdims=0, select_last_index=1>(x) }}"),
    ],
    "cumsum": [
        (14, f"g ({F}) => (float[a] y) <int64 t = {{2}}> {{ y = CumSum<exclusive=1, reverse=1>(x, t) }}"),
    ],
    "average_pool": [
        (7, f"g ({F}) => (float[a] y) {{ y = AveragePool<kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]>(x) }}"),
        (10, f"g ({F}) => (float[a] y) {{ y = AveragePool<kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1>(x) }}"),
        (19, f"g ({F}) => (float[a] y) {{ y = AveragePool<kernel_shape=[2, 2], dilations=[2, 2], count_include_pad=1, pads=[1, 1, 1, 1]>(x) }}"),
        (11, f"g ({F}) => (float[a] y) {{ y = AveragePool<kernel_shape=[2, 3], auto_pad=\"SAME_LOWER\", strides=[2, 2]>(x) }}"),
    ],
    "max_pool": [
        (8, f"g ({F}) => (float[a] y) {{ y = MaxPool<kernel_shape=[3, 3], auto_pad=\"SAME_UPPER\", strides=[2, 2]>(x) }}"),
        (12, f"g ({F}) => (float[a] y) {{ y = MaxPool<kernel_shape=[2, 2], dilations=[2, 3], ceil_mode=1>(x) }}"),
    ],
    "lp_pool": [
        (11, f"g ({F}) => (float[a] y) {{ y = LpPool<kernel_shape=[2, 2], p=3, pads=[1, 1, 0, 0]>(x) }}"),
    ],
    "einsum": [
        (13, f"g ({F}) => (float[a] y) {{ y = Einsum<equation=\"bchw, bcHw -> bhcH\">(x, x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Einsum<equation=\"b...w, b...w -> b...\">(x, x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ y = Einsum<equation=\"bchw\">(x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ m = ReduceMean<axes=[2]>(x) y = Einsum<equation=\"bchw, bchw -> bc\">(x, m) }}"),
        (13, f"g ({F}) => (float[a] y) {{ m = ReduceMean<axes=[0, 3]>(x) y = Einsum<equation=\"bchw, bchw -> hc\">(m, x) }}"),
        (13, f"g ({F}) => (float[a] y) {{ k = Flatten<axis=2>(x) t = Transpose(k) m = MatMul(k, t) y = Einsum<equation=\"ii\">(m) }}"),
    ],
    "depth and space": [
        (13, f"g ({F}) => (float[a] y) {{ p = Pad<mode=\"edge\">(x, q) z = SpaceToDepth<blocksize=2>(p) y = DepthToSpace<blocksize=2, mode=\"CRD\">(z) }}".replace(
            "{ p =", "<int64[8] q = {0, 0, 0, 0, 0, 0, 0, 1}> { p =")),
    ],
}  # fmt: skip
CASES = [(op, opset, text) for op, forms in FORMS.items() for opset, text in forms]


@pytest.mark.parametrize(
    ("op", "opset", "text"),
    CASES,
    ids=[f"{op}-{opset}-{i}" for i, (op, opset, _) in enumerate(CASES)],
)
def test_forms(
    op: str, opset: int, text: str, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]
) -> None:
    model = model_of(text, opset)
    (got,) = run(model, {"x": X})
    (want,) = ort_run(model, {"x": X})
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        assert relative_rms(got[finite], want[finite]) < 1e-6


def test_opset_6_broadcasts_at_an_axis() -> None:
    text = "g (float[2, 3, 4, 5] x) => (float[a] y) <float[3] b = {1, 2, 3}> { y = Add<axis=1, broadcast=1>(x, b) }"
    (got,) = run(model_of(text, 6), {"x": X})
    np.testing.assert_array_equal(got, X + np.array([1, 2, 3], np.float32)[:, None, None])


def test_group_normalization_18_scales_groups() -> None:
    text = """g (float[2, 4, 3] x) => (float[a] y) <float[2] s = {1, 2}, float[2] b = {0, 1}>
    { y = GroupNormalization<num_groups=2>(x, s, b) }"""
    x = RNG.standard_normal((2, 4, 3)).astype(np.float32)
    (got,) = run(model_of(text, 18), {"x": x})
    groups = x.astype(np.float64).reshape(2, 2, 6)
    spread = groups - groups.mean(2, keepdims=True)
    normal = spread / np.sqrt((spread**2).mean(2, keepdims=True) + 1e-5)
    want = normal * np.array([1, 2])[:, None] + np.array([0, 1])[:, None]
    assert relative_rms(got, want.reshape(x.shape)) < 1e-6


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers(
    kind: str, direction: str, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]
) -> None:
    count, gates = (2 if direction == "bidirectional" else 1), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    cell = ", c" if kind == "LSTM" else ""
    declared = f", float[{count}, 2, 4] c" if kind == "LSTM" else ""
    text = f"""g (float[5, 2, 3] x, float[{count}, {4 * gates}, 3] w, float[{count}, {4 * gates}, 4] r,
    float[{count}, {8 * gates}] b, int32[2] n, float[{count}, 2, 4] h{declared})
    => (float[a] y, float[b] last) {{ y, last = {kind}<hidden_size=4, direction="{direction}">(x, w, r, b, n, h{cell}) }}"""
    model = model_of(text)
    feed = {
        i.name: RNG.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for i in model.graph.input
    } | {"n": np.array([5, 3], np.int32)}
    for got, want in zip(run(model, feed), ort_run(model, feed), strict=True):
        assert relative_rms(got, want) < 1e-6


def test_batch_first_recurrent_layers() -> None:
    """layout=1 is layout=0 with the axes turned around."""
    text = """g (float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[a] y, float[b] h, float[c] k)
    { TURN y, h, k = LSTM<hidden_size=4, layout=LAYOUT>(IN, w, r) }"""
    plain = model_of(text.replace("TURN", "").replace("LAYOUT", "0").replace("IN,", "x,"))
    turned = model_of(
        text.replace("TURN", "t = Transpose<perm=[1, 0, 2]>(x)")
        .replace("LAYOUT", "1")
        .replace("IN,", "t,")
    )
    feed = {
        "x": RNG.standard_normal((5, 2, 3)).astype(np.float32),
        "w": RNG.standard_normal((1, 16, 3)).astype(np.float32),
        "r": RNG.standard_normal((1, 16, 4)).astype(np.float32),
    }
    (y, h, c), (y1, h1, c1) = run(plain, feed), run(turned, feed)
    np.testing.assert_array_equal(y1, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(h1, h.transpose(1, 0, 2))
    np.testing.assert_array_equal(c1, c.transpose(1, 0, 2))
