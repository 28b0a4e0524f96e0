// Kernels that cpu_kernels.py times: convolution, bias, relu.
#include "gw/conv.h"
#include "gw/depthwise.h"
#include "gw/gemm.h"
#include "gw/runtime.h"

namespace {

struct BiasRelu {
  const float* GW_RESTRICT bias;
  float* GW_RESTRICT out;
  int64_t channels;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (row0 + r) * channels + col0;
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c) {
        const float x = tile[r * ld + c] + bias[col0 + c];
        o[c] = x < 0.0f ? 0.0f : x;
      }
    }
  }
};

gw::Conv describe(void* const* p, const int64_t* s) {
  gw::Conv c;
  c.x = static_cast<const float*>(p[0]);
  c.w = static_cast<const float*>(p[1]);
  c.n = s[0], c.groups = s[1], c.ci = s[2], c.co = s[3];
  for (int i = 0; i < 3; ++i) {
    c.in[i] = s[4 + i], c.out[i] = s[7 + i], c.kernel[i] = s[10 + i];
    c.stride[i] = s[13 + i], c.dilation[i] = s[16 + i], c.pad[i] = s[19 + i];
  }
  c.xs[2] = c.groups * c.ci;
  c.xs[1] = c.xs[2] * c.in[2];
  c.xs[0] = c.xs[1] * c.in[1];
  c.xn = c.xs[0] * c.in[0];
  return c;
}

BiasRelu epilogue(void* const* p, int64_t channels) {
  return {static_cast<const float*>(p[2]), static_cast<float*>(p[3]), channels};
}

}  // namespace

extern "C" GW_EXPORT void bench_conv(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::conv(c, epilogue(p, c.groups * c.co), pool);
}

extern "C" GW_EXPORT void bench_depthwise(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::depthwise(c, epilogue(p, c.groups * c.co), pool);
}

extern "C" GW_EXPORT void bench_gemm(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::Gemm g;
  g.a = static_cast<const float*>(p[0]);
  g.b = static_cast<const float*>(p[1]);
  g.m = s[0], g.n = s[1], g.k = g.a_row_stride = s[2];
  gw::gemm(g, epilogue(p, g.n), pool);
}

// p: int64 flops[1], float out[kLanes * threads]
extern "C" GW_EXPORT void bench_peak(void* const* p, const int64_t*, const gw_pool* pool) {
  constexpr int kChains = 12;
  constexpr int64_t kSteps = 200000;
  float* out = static_cast<float*>(p[1]);
  gw::parallel_for(pool, gw::thread_count(pool), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      gw::vf sums[kChains];
      for (int c = 0; c < kChains; ++c) sums[c] = gw::splat(static_cast<float>(c));
      const gw::vf a = gw::splat(0.999f), b = gw::splat(0.001f);
      for (int64_t step = 0; step < kSteps; ++step) {
        GW_UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = gw::fma(sums[c], a, b);
      }
      gw::vf total = sums[0];
      for (int c = 1; c < kChains; ++c) total += sums[c];
      gw::store(out + i * gw::kLanes, total);
    }
  });
  *static_cast<int64_t*>(p[0]) = 2 * kChains * kSteps * gw::kLanes * gw::thread_count(pool);
}
