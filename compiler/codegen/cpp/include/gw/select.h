// Selection along an axis: the k best elements of a strided row, in order, with their positions.
#pragma once
#include <stdint.h>

#include <algorithm>

#include "simd.h"

namespace gw GW_HIDDEN {

// values[i * out_stride], indices[i * out_stride]: the k largest (Largest) or smallest of the n elements
// x[j * stride]. Of equal elements the one with the lower position comes first; NaN is larger than any
// number. `order` holds n positions of scratch.
template <bool Largest, class T>
inline void top_k(const T* x, int64_t stride, int64_t n, int64_t k, T* values, int64_t* indices,
                  int64_t out_stride, int64_t* order) {
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  const auto before = [=](int64_t i, int64_t j) {
    const T a = x[i * stride], b = x[j * stride];
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return Largest ? a_nan : b_nan;
    if (!a_nan && a != b) return Largest ? a > b : a < b;
    return i < j;
  };
  if (k < n) {
    std::nth_element(order, order + k, order + n, before);
  }
  std::sort(order, order + k, before);
  for (int64_t i = 0; i < k; ++i) {
    values[i * out_stride] = x[order[i] * stride];
    indices[i * out_stride] = order[i];
  }
}

}  // namespace gw
