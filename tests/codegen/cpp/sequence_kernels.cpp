// Instantiations that test_matmul.py and test_recurrent.py call.
#include "gw/matmul.h"
#include "gw/recurrent.h"
#include "gw/runtime.h"

namespace {

struct Scale {
  float* out;
  int64_t m, n;
  float by;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t batch, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (batch * m + row0 + r) * n + col0;
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c) o[c] = by * tile[r * ld + c];
    }
  }
};

gw::Recurrent describe(void* const* p, const int64_t* s) {
  gw::Recurrent c;
  c.x = static_cast<const float*>(p[0]);
  c.w = static_cast<const float*>(p[1]);
  c.r = static_cast<const float*>(p[2]);
  c.bias = static_cast<const float*>(p[3]);
  c.h0 = static_cast<const float*>(p[4]);
  c.c0 = static_cast<const float*>(p[5]);
  c.lengths = static_cast<const int32_t*>(p[6]);
  c.y = static_cast<float*>(p[7]);
  c.h_last = static_cast<float*>(p[8]);
  c.c_last = static_cast<float*>(p[9]);
  c.peephole = static_cast<const float*>(p[10]);
  c.workspace = static_cast<float*>(p[11]);
  c.steps = s[0], c.batch = s[1], c.input = s[2], c.hidden = s[3], c.directions = s[4];
  c.reverse = s[5] != 0, c.linear_before_reset = s[6] != 0;
  c.x_step = s[7], c.x_batch = s[8];
  c.y_step = c.directions * c.batch * c.hidden;
  c.y_direction = c.batch * c.hidden;
  c.y_batch = c.hidden;
  return c;
}

}  // namespace

// p: a, b, workspace, out; s: m, n, k, a_row, a_k, b_k, b_col, packed, batch[4], a_batch[4], b_batch[4]
extern "C" GW_EXPORT void matmul(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::Matmul g;
  g.a = static_cast<const float*>(p[0]);
  g.b = static_cast<const float*>(p[1]);
  g.workspace = static_cast<float*>(p[2]);
  g.m = s[0], g.n = s[1], g.k = s[2];
  g.a_row = s[3], g.a_k = s[4], g.b_k = s[5], g.b_col = s[6], g.packed = s[7] != 0;
  for (int i = 0; i < gw::kBatchAxes; ++i)
    g.batch[i] = s[8 + i], g.a_batch[i] = s[12 + i], g.b_batch[i] = s[16 + i];
  gw::matmul(g, Scale{static_cast<float*>(p[3]), g.m, g.n, 0.5f}, pool);
}

extern "C" GW_EXPORT int64_t matmul_workspace(int64_t k, int64_t threads) {
  return gw::matmul_workspace(k, threads);
}

extern "C" GW_EXPORT int64_t recurrent_workspace(int64_t gates, int64_t steps, int64_t batch,
                                                 int64_t hidden, int64_t directions) {
  return gw::recurrent_workspace(gates, steps, batch, hidden, directions);
}

extern "C" GW_EXPORT void lstm(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::lstm(describe(p, s), pool);
}

extern "C" GW_EXPORT void gru(void* const* p, const int64_t* s, const gw_pool* pool) {
  gw::gru(describe(p, s), pool);
}
