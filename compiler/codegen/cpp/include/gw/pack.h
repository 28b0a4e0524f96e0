// Packing at run time, for weights that are not constants: the layouts of packing.py from plain row-major
// tensors. Constant weights are packed at compile time instead.
#pragma once
#include <stdint.h>

#include "loops.h"
#include "simd.h"

namespace gw GW_HIDDEN {

GW_INLINE int64_t round_up_panel(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// A [k, n] matrix given by at(row, column) as column panels (packing.pack_gemm_b).
template <class At>
inline void pack_columns(int64_t k, int64_t n, float* to, const gw_pool* pool, const At& at) {
  const int64_t panels = (n + kPanel - 1) / kPanel;
  parallel_for(pool, panels, grain(k * kPanel * 8), [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kPanel;
      float* row = to + k * first;
      for (int64_t i = 0; i < k; ++i, row += kPanel) {
        for (int64_t c = 0; c < kPanel; ++c) row[c] = first + c < n ? at(i, first + c) : 0.0f;
      }
    }
  });
}

// w [groups * co, ci, positions] for conv.h.
inline void pack_conv(const float* w, int64_t groups, int64_t co, int64_t ci, int64_t positions, float* to,
                      const gw_pool* pool) {
  const int64_t k = positions * ci;
  for (int64_t g = 0; g < groups; ++g) {
    const float* own = w + g * co * k;
    pack_columns(k, co, to + g * k * round_up_panel(co), pool, [=](int64_t row, int64_t column) {
      return own[(column * ci + row % ci) * positions + row / ci];
    });
  }
}

// w [groups * ci, co, positions] for conv_transpose.h.
inline void pack_conv_transpose(const float* w, int64_t groups, int64_t co, int64_t ci, int64_t positions,
                                float* to, const gw_pool* pool) {
  const int64_t k = positions * ci;
  for (int64_t g = 0; g < groups; ++g) {
    const float* own = w + g * ci * co * positions;
    pack_columns(k, co, to + g * k * round_up_panel(co), pool, [=](int64_t row, int64_t column) {
      return own[(row % ci * co + column) * positions + row / ci];
    });
  }
}

// w [channels, 1, positions] for depthwise.h.
inline void pack_depthwise(const float* w, int64_t channels, int64_t positions, float* to) {
  const int64_t padded = round_up_panel(channels);
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t c = 0; c < padded; ++c) to[p * padded + c] = c < channels ? w[c * positions + p] : 0.0f;
  }
}

}  // namespace gw
