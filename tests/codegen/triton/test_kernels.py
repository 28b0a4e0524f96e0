"""Generated Triton kernels: right in the interpreter, and cubins for two architectures, no GPU."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build

# name: (symbols, inputs, region, body, outputs)
REGIONS = {
    "bias_gelu_matmul": """graph @g(B in 1..512) {
  input %x: f32[B, 96]
  input %w: f32[96, 80]
  input %b: f32[80]
  %0 = fused(%x, %w, %b) {region = "contraction"} : f32[B, 80]
    body(%a0: f32[B, 96], %a1: f32[96, 80], %a2: f32[80]) {
      %0 = matmul(%a0, %a1) : f32[B, 80]
      %1 = add(%0, %a2) : f32[B, 80]
      %2 = gelu(%1) : f32[B, 80]
      return %2
    }
  return %0 as "y"
}
""",
    "attention_scores": """graph @g(B in 1..8, S in 1..128) {
  input %q: f32[B, S, 64]
  input %k: f32[B, S, 64]
  %0 = fused(%q, %k) {region = "contraction"} : f32[B, 4, S, S]
    body(%a0: f32[B, S, 64], %a1: f32[B, S, 64]) {
      %0 = reshape(%a0) {shape = [B, S, 4, 16]} : f32[B, S, 4, 16]
      %1 = transpose(%0) {permutation = [0, 2, 1, 3]} : f32[B, 4, S, 16]
      %2 = reshape(%a1) {shape = [B, S, 4, 16]} : f32[B, S, 4, 16]
      %3 = transpose(%2) {permutation = [0, 2, 3, 1]} : f32[B, 4, 16, S]
      %4 = matmul(%1, %3) : f32[B, 4, S, S]
      return %4
    }
  return %0 as "y"
}
""",
    "merge_heads": """graph @g(B in 1..8, S in 1..128) {
  input %p: f32[B, 4, S, S]
  input %v: f32[B, 4, S, 16]
  %0 = fused(%p, %v) {region = "contraction"} : f32[B, S, 64]
    body(%a0: f32[B, 4, S, S], %a1: f32[B, 4, S, 16]) {
      %0 = matmul(%a0, %a1) : f32[B, 4, S, 16]
      %1 = transpose(%0) {permutation = [0, 2, 1, 3]} : f32[B, S, 4, 16]
      %2 = reshape(%1) {shape = [B, S, 64]} : f32[B, S, 64]
      return %2
    }
  return %0 as "y"
}
""",
    "residual_layer_norm": """graph @g(B in 1..512) {
  input %x: f32[B, 80]
  input %y: f32[B, 80]
  input %s: f32[80]
  input %b: f32[80]
  %0, %1 = fused(%x, %y, %s, %b) {region = "reduction"} : f32[B, 80], f32[B, 80]
    body(%a0: f32[B, 80], %a1: f32[B, 80], %a2: f32[80], %a3: f32[80]) {
      %0 = add(%a0, %a1) : f32[B, 80]
      %1 = layer_norm(%0, %a2, %a3) {axis = 1, epsilon = 1e-05} : f32[B, 80]
      return %1, %0
    }
  return %0 as "n", %1 as "sum"
}
""",
    "softmax_rows": """graph @g(B in 1..512, S in 1..700) {
  input %x: f32[B, S]
  %0 = fused(%x) {region = "reduction"} : f32[B, S]
    body(%a0: f32[B, S]) {
      %0 = softmax(%a0) {axis = 1} : f32[B, S]
      return %0
    }
  return %0 as "y"
}
""",
    "softmax_long_rows": """graph @g(B in 1..4, S) {
  input %x: f32[B, S]
  %0 = fused(%x) {region = "reduction"} : f32[B, S]
    body(%a0: f32[B, S]) {
      %0 = softmax(%a0) {axis = 1} : f32[B, S]
      return %0
    }
  return %0 as "y"
}
""",
    "mean_of_squares": """graph @g(B in 1..512) {
  input %x: f32[B, 6, 5, 4]
  %0 = fused(%x) {region = "reduction"} : f32[B, 6, 1, 1]
    body(%a0: f32[B, 6, 5, 4]) {
      %0 = mul(%a0, %a0) : f32[B, 6, 5, 4]
      %1 = reduce_mean(%0) {axes = [2, 3], keepdims = true} : f32[B, 6, 1, 1]
      %2 = sqrt(%1) : f32[B, 6, 1, 1]
      return %2
    }
  return %0 as "y"
}
""",
    "centre_by_maximum": """graph @g(B in 1..512) {
  input %x: f32[B, 5, 33]
  %0, %1 = fused(%x) {region = "reduction"} : f32[5, B], f32[33, B, 5]
    body(%a0: f32[B, 5, 33]) {
      %0 = reduce_max(%a0) {axes = [2], keepdims = true} : f32[B, 5, 1]
      %1 = sub(%a0, %0) : f32[B, 5, 33]
      %2 = transpose(%1) {permutation = [2, 0, 1]} : f32[33, B, 5]
      %3 = transpose(%0) {permutation = [1, 0, 2]} : f32[5, B, 1]
      %4 = reshape(%3) {shape = [5, B]} : f32[5, B]
      return %4, %2
    }
  return %0 as "m", %1 as "c"
}
""",
    "norm_with_wide_scale": """graph @g(B in 1..512) {
  input %x: f32[B, 3, 20]
  input %s: f32[1, 1, 20]
  %0 = fused(%x, %s) {region = "reduction"} : f32[B, 60]
    body(%a0: f32[B, 3, 20], %a1: f32[1, 1, 20]) {
      %0 = layer_norm(%a0, %a1) {axis = 2, epsilon = 1e-05} : f32[B, 3, 20]
      %1 = reshape(%0) {shape = [B, 60]} : f32[B, 60]
      return %1
    }
  return %0 as "y"
}
""",
    "row_maximum": """graph @g(B in 1..512) {
  input %x: f32[B, 33]
  %0 = fused(%x) {region = "reduction"} : f32[B]
    body(%a0: f32[B, 33]) {
      %0 = reduce_max(%a0) {axes = [1], keepdims = false} : f32[B]
      return %0
    }
  return %0 as "y"
}
""",
    "shuffle_and_concat": """graph @g(B in 1..512) {
  input %x: f32[B, 6, 4]
  input %y: f32[B, 4, 2]
  %0 = fused(%x, %y) {region = "pointwise"} : f32[B, 4, 8]
    body(%a0: f32[B, 6, 4], %a1: f32[B, 4, 2]) {
      %0 = transpose(%a0) {permutation = [0, 2, 1]} : f32[B, 4, 6]
      %1 = concat(%0, %a1) {axis = 2} : f32[B, 4, 8]
      %2 = relu(%1) : f32[B, 4, 8]
      return %2
    }
  return %0 as "y"
}
""",
    "conv_bias_relu": """graph @g(N in 1..16, H in 1..64) {
  input %x: f32[N, 6, H, 11]
  input %w: f32[20, 3, 3, 2]
  input %b: f32[20]
  %0 = fused(%x, %w, %b) {region = "contraction"} : f32[N, 20, (H + 3) floordiv 2, 12]
    body(%a0: f32[N, 6, H, 11], %a1: f32[20, 3, 3, 2], %a2: f32[20]) {
      %0 = conv(%a0, %a1, %a2) {strides = [2, 1], low = [2, 1], high = [1, 2], dilations = [1, 2], groups = 2} : f32[N, 20, (H + 3) floordiv 2, 12]
      %1 = relu(%0) : f32[N, 20, (H + 3) floordiv 2, 12]
      return %1
    }
  return %0 as "y"
}
""",
    "depthwise_with_residual": """graph @g(N in 1..16, H in 3..64) {
  input %x: f32[N, 6, H, 9]
  input %w: f32[6, 1, 3, 3]
  %0 = fused(%x, %w) {region = "contraction"} : f32[N, 6, H, 9]
    body(%a0: f32[N, 6, H, 9], %a1: f32[6, 1, 3, 3]) {
      %0 = conv(%a0, %a1) {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 6} : f32[N, 6, H, 9]
      %1 = add(%0, %a0) : f32[N, 6, H, 9]
      return %1
    }
  return %0 as "y"
}
""",
    "max_pool": """graph @g(N in 1..16, H in 3..64) {
  input %x: f32[N, 5, H, 9]
  %0 = max_pool(%x) {kernel = [3, 2], strides = [2, 2], low = [1, 0], high = [1, 0], dilations = [1, 1], ceil_mode = true} : f32[N, 5, H floordiv 2 + 1, 5]
  return %0 as "y"
}
""",
    "average_pool": """graph @g(N in 1..16, H in 3..64) {
  input %x: f32[N, 5, H, 9]
  %0 = average_pool(%x) {kernel = [3, 3], strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], count_include_pad = false} : f32[N, 5, (H + 1) floordiv 2, 5]
  return %0 as "y"
}
""",
    "half_precision": """graph @g(B in 1..512) {
  input %x: f16[B, 40]
  input %y: f16[40]
  %0 = fused(%x, %y) {region = "pointwise"} : f16[B, 40]
    body(%a0: f16[B, 40], %a1: f16[40]) {
      %0 = mul(%a0, %a1) : f16[B, 40]
      %1 = sigmoid(%0) : f16[B, 40]
      return %1
    }
  return %0 as "y"
}
""",
}
BINDING = {"B": 3, "S": 37, "N": 2, "H": 8}
LONG = {"softmax_long_rows": {"B": 2, "S": 9001}}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Every region run once: {name: (outputs, wanted outputs in float64)}."""
    cases = {name: (*launch_of(text), LONG.get(name, BINDING)) for name, text in REGIONS.items()}
    return interpret(tmp_path_factory.mktemp("triton"), cases)


@pytest.mark.parametrize("name", REGIONS)
def test_equals_the_reference(interpreted, name):
    outputs, wanted = interpreted[name]
    for got, want in zip(outputs, wanted, strict=True):
        assert got.shape == want.shape
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert error < (1e-3 if got.dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", REGIONS)
def test_compiles_without_a_gpu(name, arch, tmp_path):
    _, launch = launch_of(REGIONS[name])
    cubin = build(launch.kernel, arch, tmp_path)
    assert cubin.image.startswith(b"\x7fELF")
    pointers = [p for p in cubin.kernel.parameters if p.startswith("pointer")]
    assert len(pointers) == len(launch.arguments)
    assert build(launch.kernel, arch, tmp_path) == cubin  # from the cache
