// Instantiations that test_gemm.py calls: what a generated file looks like.
#include "gw/gemm.h"
#include "gw/runtime.h"

namespace {

struct Store {
  float* out;
  int64_t row_stride, col_stride;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r)
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c)
        out[(row0 + r) * row_stride + (col0 + c) * col_stride] = tile[r * ld + c];
  }
};

struct BiasRelu {
  const float* GW_RESTRICT bias;
  float* GW_RESTRICT out;
  int64_t n;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (row0 + r) * n + col0;
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c) {
        const float x = tile[r * ld + c] + bias[col0 + c];
        o[c] = x < 0.0f ? 0.0f : x;
      }
    }
  }
};

}  // namespace

// p: a, b, out; s: m, n, k, a_row_stride, out_row_stride, out_col_stride
extern "C" GW_EXPORT void gemm_store(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::Gemm g;
  g.a = static_cast<const float*>(p[0]);
  g.b = static_cast<const float*>(p[1]);
  g.m = s[0], g.n = s[1], g.k = s[2], g.a_row_stride = s[3];
  gw::gemm(g, Store{static_cast<float*>(p[2]), s[4], s[5]}, pool);
}

// p: a, b, bias, out; s: m, n, k
extern "C" GW_EXPORT void gemm_bias_relu(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::Gemm g;
  g.a = static_cast<const float*>(p[0]);
  g.b = static_cast<const float*>(p[1]);
  g.m = s[0], g.n = s[1], g.k = s[2], g.a_row_stride = s[2];
  gw::gemm(g, BiasRelu{static_cast<const float*>(p[2]), static_cast<float*>(p[3]), s[1]}, pool);
}

extern "C" GW_EXPORT int32_t panel_columns() { return gw::kPanel; }
