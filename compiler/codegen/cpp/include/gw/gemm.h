// C[m, n] = A[m, k] * B[k, n] with B constant, packed at compile time by packing.pack_gemm_b.
//
//   gw::Gemm g;  g.a = ...; g.a_row_stride = ...; g.b = ...; g.m = ...; g.n = ...; g.k = ...;
//   gw::gemm(g, epilogue, pool);
//
// A is read in place: rows a_row_stride floats apart (any value, also 0), k contiguous. Also the kernel of
// a 1x1 stride-1 convolution (rows = all pixels) and of matrix-vector products: m of 1 to 4 splits the
// columns over the threads and streams B once.
//
// The caller guarantees: b has packed_floats(k, n) floats; A and what the epilogue writes do not
// overlap. k may be 0 (sums are then 0). Sums run over k in order in one fused chain per element (four
// chains when m is 1 or 2), so results do not depend on the number of threads.
#pragma once
#include "contract.h"

namespace gw GW_HIDDEN {

struct Gemm {
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t a_row_stride = 0;
  int64_t m = 0, n = 0, k = 0;
  bool backwards = false;  // panels last to first: of two calls in turn, the second finds some in the cache
};

struct MatrixRows {
  static constexpr int64_t kScratch = 0;
  const float* a;
  int64_t row_stride, k;
  int64_t taps() const { return 1; }
  bool shareable() const { return true; }
  int64_t segment() const { return INT64_MAX / 2; }
  GW_INLINE Taps fill(int64_t row0, int64_t rows, int64_t, int64_t, const float** at, int64_t* koff,
                      float*) {
    const float* p = a + row0 * row_stride;
    for (int64_t r = 0; r < rows; ++r) at[r] = p + r * row_stride;
    koff[0] = 0;
    return {1, k};
  }
};

template <class Epi>
inline void gemm(const Gemm& g, const Epi& epi, const gw_pool* pool) {
  const auto job = [&](int64_t) {
    return Job<MatrixRows>{{g.a, g.a_row_stride, g.k}, {g.b, g.k, g.n, g.backwards}, 0, 0};
  };
  multiply_parallel(1, g.m, g.n, g.k, g.m * g.k * 4, job, epi, pool);
}

}  // namespace gw
