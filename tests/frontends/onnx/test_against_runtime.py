"""Ops that become several of ours, in many forms: references against ONNX Runtime on random inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx_models import Feed, relative_rms, run

F = "float[2, 3, 4, 5] x"
HEADER = '<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'

# op: (opset, text) of each form.  Inputs are normal numbers, integers small and not negative.
FORMS: dict[str, list[tuple[int, str]]] = {
    "dft": [
        (17, "g (float[2, 6, 1] x) => (float[a] y) { y = DFT(x) }"),
        (17, "g (float[2, 6, 2] x) => (float[a] y) { y = DFT(x) }"),
        (17, "g (float[2, 7, 1] x) => (float[a] y) { y = DFT<onesided=1>(x) }"),
        (17, "g (float[2, 6, 2] x) => (float[a] y) { y = DFT<inverse=1>(x) }"),
        (17, "g (float[2, 6, 5, 2] x) => (float[a] y) { y = DFT<axis=2>(x) }"),
        (17, "g (float[2, 6, 1] x) => (float[a] y) <int64 n = {9}> { y = DFT(x, n) }"),
        (17, "g (float[2, 6, 1] x) => (float[a] y) <int64 n = {4}> { y = DFT<onesided=1>(x, n) }"),
        (20, "g (float[3, 5, 1] x) => (float[a] y) <int64 n = {8}, int64 a = {0}> { y = DFT(x, n, a) }"),
        (17, "g (double[2, 6, 2] x) => (double[a] y) { y = DFT<inverse=1>(x) }"),
    ],
    "stft": [
        (17, "g (float[2, 40, 1] x, float[16] w) => (float[a] y) <int64 s = {7}, int64 n = {16}> { y = STFT(x, s, w, n) }"),
        (17, "g (float[2, 40, 1] x) => (float[a] y) <int64 s = {8}, int64 n = {15}> { y = STFT<onesided=0>(x, s, , n) }"),
        (17, "g (float[2, 40, 2] x, float[8] w) => (float[a] y) <int64 s = {8}, int64 n = {8}> { y = STFT<onesided=0>(x, s, w, n) }"),
    ],
    "mel_weight_matrix": [
        (17, "g (float[1] x) => (float[a] y) <int64 b = {8}, int64 n = {16}, int64 r = {8192}, float l = {0.0}, float h = {4096.0}> { m = MelWeightMatrix(b, n, r, l, h) y = Add(m, x) }"),
    ],
    "windows": [
        (17, "g (float[1] x) => (float[a] y) <int64 n = {9}> { m = HannWindow(n) y = Mul(m, x) }"),
        (17, "g (float[1] x) => (float[a] y) <int64 n = {8}> { m = HammingWindow<periodic=0>(n) y = Mul(m, x) }"),
        (17, "g (float[1] x) => (float[a] y) <int64 n = {8}> { m = BlackmanWindow(n) y = Mul(m, x) }"),
    ],
    "col2im": [
        (18, "g (float[2, 12, 20] x) => (float[a] y) <int64[2] i = {5, 6}, int64[2] k = {2, 2}> { y = Col2Im(x, i, k) }"),
        (18, "g (float[2, 12, 9] x) => (float[a] y) <int64[2] i = {6, 7}, int64[2] k = {2, 3}> { y = Col2Im<strides=[2, 2], pads=[0, 1, 0, 0]>(x, i, k) }"),
        (18, "g (float[1, 6, 4] x) => (float[a] y) <int64[2] i = {5, 5}, int64[2] k = {2, 1}> { y = Col2Im<dilations=[3, 1], strides=[1, 3]>(x, i, k) }"),
    ],
    "max_roi_pool": [
        (16, "g (float[2, 3, 12, 10] x) => (float[a] y) <float[3, 5] r = {0, 0, 0, 7, 5, 1, 1.5, 2.5, 4, 9, 0, 20, 20, 25, 25}> { y = MaxRoiPool<pooled_shape=[3, 2], spatial_scale=0.5>(x, r) }"),
    ],
    "deform_conv": [
        (22, "g (float[2, 4, 6, 5] x, float[6, 2, 3, 2] w, float[2, 24, 6, 4] o, float[6] b, float[2, 12, 6, 4] m) => (float[a] y) { y = DeformConv<group=2, offset_group=2, pads=[1, 0, 1, 0], kernel_shape=[3, 2]>(x, w, o, b, m) }"),
    ],
    "late_resize": [
        (19, "g (float[1, 2, 5, 4] x) => (float[a] y) <float[4] s = {1, 1, 1.7, 0.6}> { z = ReduceSum<keepdims=0>(x) m = IsNaN(z) f = Cast<to=1>(m) t = Add(s, f) y = Resize<mode=\"linear\", antialias=1>(x, , t) }"),
        (19, "g (float[1, 2, 5, 4] x) => (float[a] y) <float[4] s = {1, 1, 1.7, 2.6}> { z = ReduceSum<keepdims=0>(x) m = IsNaN(z) f = Cast<to=1>(m) t = Add(s, f) y = Resize<mode=\"cubic\">(x, , t) }"),
        (19, "g (float[1, 2, 5, 4] x) => (float[a] y) <int64[2] s = {9, 5}> { z = ReduceSum<keepdims=0>(x) m = IsNaN(z) f = Cast<to=7>(m) t = Add(s, f) y = Resize<axes=[2, 3], mode=\"linear\", keep_aspect_ratio_policy=\"not_larger\">(x, , , t) }"),
        (10, "g (float[1, 2, 5, 4] x) => (float[a] y) <float[4] s = {1, 1, 2, 3}> { z = ReduceSum<keepdims=0>(x) m = IsNaN(z) f = Cast<to=1>(m) t = Add(s, f) y = Resize(x, t) }"),
    ],
    "tf_idf": [
        (9, "g (int64[3, 9] x) => (float[a] y) { y = TfIdfVectorizer<mode=\"TFIDF\", min_gram_length=1, max_gram_length=2, max_skip_count=2, ngram_counts=[0, 3], ngram_indexes=[0, 2, 1, 5, 4], pool_int64s=[1, 2, 3, 1, 2, 0, 1], weights=[1.0, 2.0, 0.5, 3.0, 1.5]>(x) }"),
    ],
    "max_unpool": [
        (11, "g (float[1, 1, 2, 2] x) => (float[a] y) <int64[1, 1, 2, 2] i = {5, 7, 13, 15}> { y = MaxUnpool<kernel_shape=[2, 2], strides=[2, 2]>(x, i) }"),
    ],
    "gelu": [
        (17, f"g ({F}) => (float[a] y) {{ y = com.microsoft.Gelu(x) }}"),
        (17, f"g ({F}) => (float[a] y) {{ y = com.microsoft.FastGelu(x) }}"),
        (17, f"g ({F}, float[5] b) => (float[a] y) {{ y = com.microsoft.FastGelu(x, b) }}"),
        (17, f"g ({F}, float[5] b) => (float[a] y) {{ y = com.microsoft.BiasGelu(x, b) }}"),
        (17, f"g ({F}) => (float[a] y) {{ y = com.microsoft.QuickGelu(x) }}"),
        (17, f"g ({F}) => (float[a] y) {{ y = com.microsoft.QuickGelu<alpha=0.9>(x) }}"),
    ],
    "fused_matmul": [
        (17, "g (float[2, 3, 4] x, float[2, 4, 5] b) => (float[a] y) { y = com.microsoft.FusedMatMul<alpha=0.5>(x, b) }"),
        (17, "g (float[2, 4, 3] x, float[2, 5, 4] b) => (float[a] y) { y = com.microsoft.FusedMatMul<transA=1, transB=1>(x, b) }"),
        (17, "g (float[3, 2, 4] x, float[2, 4, 5] b) => (float[a] y) { y = com.microsoft.FusedMatMul<transBatchA=1>(x, b) }"),
        (17, "g (float[3, 2, 4] x, float[5, 2, 4] b) => (float[a] y) { y = com.microsoft.FusedMatMul<transBatchA=1, transBatchB=1, transB=1>(x, b) }"),
        (17, "g (float[4, 3] x, float[4, 5] b) => (float[a] y) { y = com.microsoft.TransposeMatMul<transA=1, alpha=2.0>(x, b) }"),
    ],
    "fused_gemm": [
        (17, "g (float[3, 4] x, float[4, 5] b, float[5] c) => (float[a] y) { y = com.microsoft.FusedGemm<activation=\"Relu\">(x, b, c) }"),
        (17, "g (float[4, 3] x, float[5, 4] b, float[3, 5] c) => (float[a] y) { y = com.microsoft.FusedGemm<transA=1, transB=1, alpha=0.5, beta=2.0, activation=\"LeakyRelu\", activation_alpha=0.2>(x, b, c) }"),
    ],
    "fused_conv": [
        (17, "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w, float[4] b) => (float[a] y) { y = com.microsoft.FusedConv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], activation=\"Relu\">(x, w, b) }"),
        (17, "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w, float[4] b, float[1, 4, 4, 4] z) => (float[a] y) { y = com.microsoft.FusedConv<kernel_shape=[3, 3], activation=\"Relu\">(x, w, b, z) }"),
        (17, "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w) => (float[a] y) { y = com.microsoft.FusedConv<kernel_shape=[3, 3], strides=[2, 2], activation=\"Clip\", activation_params=[-0.5, 0.7]>(x, w) }"),
        (17, "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w) => (float[a] y) { y = com.microsoft.FusedConv<kernel_shape=[3, 3], activation=\"HardSigmoid\", activation_params=[0.3, 0.4]>(x, w) }"),
    ],
    "skip_norm": [
        (17, "g (float[2, 3, 8] x, float[2, 3, 8] s, float[8] g, float[8] b) => (float[a] y) { y = com.microsoft.SkipLayerNormalization<epsilon=0.01>(x, s, g, b) }"),
        (17, "g (float[2, 3, 8] x, float[3, 8] s, float[8] g, float[8] b, float[8] c) => (float[a] y, float[b] t) { y, , , t = com.microsoft.SkipLayerNormalization(x, s, g, b, c) }"),
        (17, "g (float[2, 3, 8] x, float[2, 3, 8] s, float[8] g) => (float[a] y, float[b] t) { y, , , t = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=0.001>(x, s, g) }"),
        (17, "g (float[2, 3, 8] x, float[2, 3, 8] s, float[8] g, float[8] b) => (float[a] y) { y = com.microsoft.SkipSimplifiedLayerNormalization(x, s, g, b) }"),
        (17, "g (float[2, 3, 8] x, float[8] g) => (float[a] y) { y = SimplifiedLayerNormalization<epsilon=0.001, axis=-1>(x, g) }"),
    ],
    "max_pool_indices": [
        (12, "g (float[2, 3, 7, 6] x) => (float[a] y, int64[b] i) { y, i = MaxPool<kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]>(x) }"),
        (12, "g (float[2, 3, 7, 6] x) => (float[a] y, int64[b] i) { y, i = MaxPool<kernel_shape=[2, 2], dilations=[2, 1], storage_order=1>(x) }"),
    ],
    "grid_sample": [
        (opset, f'g (float[2, 3, 5, 4] x, float[2, 3, 6, 2] g) => (float[a] y) {{ y = GridSample<mode="{mode}", padding_mode="{padding}", align_corners={aligned}>(x, g) }}')
        for opset, modes in ((16, ("nearest", "bilinear", "bicubic")), (20, ("nearest", "linear", "cubic")))
        for mode in modes
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ],
    "roi_align": [
        (16, "g (float[2, 3, 8, 9] x) => (float[a] y) <float[2, 4] r = {0.0, 0.0, 7.0, 5.0, 1.5, 2.0, 4.0, 8.5}, int64[2] i = {0, 1}> { y = RoiAlign<output_height=3, output_width=2, sampling_ratio=2>(x, r, i) }"),
        (10, "g (float[2, 3, 8, 9] x) => (float[a] y) <float[2, 4] r = {0.0, 0.0, 7.0, 5.0, 1.5, 2.0, 4.0, 8.5}, int64[2] i = {0, 1}> { y = RoiAlign<output_height=3, output_width=2, spatial_scale=0.5>(x, r, i) }"),
    ],
    "det": [(11, "g (float[3, 4, 4] x) => (float[a] y) { y = Det(x) }")],
    "rotary": [
        (17, "g (float[2, 3, 16] x, int64[2, 3] p, float[8, 4] c, float[8, 4] s) => (float[a] y) { y = com.microsoft.RotaryEmbedding(x, p, c, s) }"),
        (17, "g (float[2, 3, 16] x, int64[1] p, float[8, 4] c, float[8, 4] s) => (float[a] y) { y = com.microsoft.RotaryEmbedding<interleaved=1>(x, p, c, s) }"),
        (17, "g (float[2, 2, 3, 8] x, int64[2, 3] p, float[8, 4] c, float[8, 4] s) => (float[a] y) { y = com.microsoft.RotaryEmbedding(x, p, c, s) }"),
        (17, "g (float[2, 3, 16] x, int64[2, 3] p, float[8, 2] c, float[8, 2] s) => (float[a] y) { y = com.microsoft.RotaryEmbedding<num_heads=2, rotary_embedding_dim=4>(x, p, c, s) }"),
    ],
    "multi_head_attention": [
        (17, "g (float[2, 3, 8] q, float[2, 5, 8] k, float[2, 5, 8] v) => (float[a] y) { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v) }"),
        (17, "g (float[2, 3, 8] q, float[2, 3, 8] k, float[2, 3, 8] v, float[24] b) => (float[a] y) { y = com.microsoft.MultiHeadAttention<num_heads=2, unidirectional=1, scale=0.3>(q, k, v, b) }"),
        (17, "g (float[2, 3, 8] q, float[2, 5, 8] k, float[2, 5, 8] v, float[24] b) => (float[a] y) <int32[2, 5] m = {1, 1, 1, 0, 0, 1, 1, 1, 1, 1}> { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b, m) }"),
        (17, "g (float[2, 3, 8] q, float[2, 5, 8] k, float[2, 5, 8] v, float[1, 2, 3, 5] b) => (float[a] y) { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , , b) }"),
    ],
    "attention": [
        (17, "g (float[2, 3, 8] x, float[8, 24] w, float[24] b) => (float[a] y) { y = com.microsoft.Attention<num_heads=2>(x, w, b) }"),
        (17, "g (float[2, 3, 8] x, float[8, 24] w, float[24] b) => (float[a] y) <int32[2, 3] m = {1, 1, 0, 1, 1, 1}> { y = com.microsoft.Attention<num_heads=2>(x, w, b, m) }"),
        (17, "g (float[2, 3, 8] x, float[8, 24] w, float[24] b) => (float[a] y) { y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, b) }"),
        (17, "g (float[2, 3, 8] x, float[8, 24] w, float[24] b) => (float[a] y) <int32[2] m = {2, 3}> { y = com.microsoft.Attention<num_heads=2>(x, w, b, m) }"),
    ],
    "embed_layer_norm": [
        (17, "g (int32[2, 3] i, int32[2, 3] t, float[5, 8] w, float[4, 8] p, float[4, 8] s, float[8] g, float[8] b) => (float[a] y, int32[b] m) { y, m = com.microsoft.EmbedLayerNormalization(i, t, w, p, s, g, b) }"),
        (17, "g (int32[2, 3] i, float[5, 8] w, float[4, 8] p, float[8] g, float[8] b) => (float[a] y, int32[b] m, float[c] z) <int32[2, 3] k = {1, 1, 0, 1, 1, 1}> { y, m, z = com.microsoft.EmbedLayerNormalization<epsilon=0.001>(i, , w, p, , g, b, k) }"),
    ],
    "small": [
        (17, "g (float[4, 3] x, float[5, 3] b) => (float[a] y) { y = com.microsoft.CDist<metric=\"euclidean\">(x, b) }"),
        (17, f"g ({F}) => (float[a] y) <int32 n = {{-1}}> {{ y = com.microsoft.ExpandDims(x, n) }}"),
        (17, "g (float[2, 4, 4] x) => (float[a] y) <int64 n = {1}> { y = com.microsoft.Trilu<upper=0>(x, n) }"),
    ],
}  # fmt: skip


def model_of(text: str, opset: int) -> onnx.ModelProto:
    return parser.parse_model(HEADER.format(opset=opset) + text)


def feed_of(model: onnx.ModelProto) -> Feed:
    rng = np.random.default_rng(5)
    held = {t.name for t in model.graph.initializer}
    feed: dict[str, np.ndarray] = {}
    for i in model.graph.input:
        if i.name in held:
            continue
        type = i.type.tensor_type
        shape = [d.dim_value for d in type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(type.elem_type)
        values = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 4, shape)
        feed[i.name] = values.astype(dtype)
    return feed


@pytest.mark.parametrize("op", FORMS)
def test_form_agrees(op: str, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]) -> None:
    for opset, text in FORMS[op]:
        model = model_of(text, opset)
        feed = feed_of(model)
        for got, want in zip(run(model, feed), ort_run(model, feed), strict=True):
            assert got.shape == want.shape, text
            assert got.dtype == want.dtype, text
            assert relative_rms(got, want) < 1e-5, text
