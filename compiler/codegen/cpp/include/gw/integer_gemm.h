// C[m, n] = (A[m, k] - a_zero) * (B[k, n] - zeros) in 32-bit sums, B constant and packed at compile time by
// integer_packing.pack_integer_b.
//
//   gw::IntegerGemm g;  g.a = ...; g.a_row_stride = ...; g.b = ...; g.a_zero = ...; g.m = ...; ...
//   gw::integer_gemm<gw::Left::U8>(g, epilogue, pool);
//
// A is read in place: rows a_row_stride elements apart, k contiguous, nothing past the last element is read.
// Also the kernel of a 1x1 stride-1 convolution. The epilogue gets tiles of int32_t.
#pragma once
#include "integer_contract.h"

namespace gw GW_HIDDEN {

struct IntegerGemm {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t a_row_stride = 0;  // in elements
  int64_t m = 0, n = 0, k = 0;
  int32_t a_zero = 0;
  bool zeros = true;  // some zero point of b, as packed, is not 0
};

struct MatrixSource {
  const uint8_t* a;
  int64_t stride, length;  // bytes
  int64_t taps() const { return 1; }
  int64_t bytes() const { return length; }
  bool copies() const { return false; }
  const uint8_t* even(int64_t row0, int64_t* apart) const {
    *apart = stride;
    return a + row0 * stride;
  }
  Pieces fill(int64_t row0, int64_t rows, const uint8_t** at) const {
    for (int64_t r = 0; r < rows; ++r) at[r] = a + (row0 + r) * stride;
    return {1, length};
  }
};

template <Left L, class Epi>
inline void integer_gemm(const IntegerGemm& g, const Epi& epi, const gw_pool* pool) {
  constexpr int64_t size = L == Left::S16 ? 2 : 1;
  const auto job = [&](int64_t) {
    return IntegerJob<MatrixSource>{
        {static_cast<const uint8_t*>(g.a), g.a_row_stride * size, g.k * size},
        IntegerPanels::at(g.b, g.k, g.n, g.zeros),
        0};
  };
  multiply_integers_parallel<L>(1, g.m, g.n, g.k, g.a_zero, job, epi, pool);
}

}  // namespace gw
