// out[m][n] = sum over k: a[m][k] * (b[n][k] - zero[n][k / block]) * scale[n][k / block], b of 2, 4 or 8 bits.
//
// b is as the model has it: for each n `blocks` blocks of block * Bits / 8 bytes, the lowest bits first. The rows of a
// are rearranged so that a byte's elements lie in as many planes: block after block, then plane after plane; then a
// vector of bytes meets vectors of floats without a shuffle. The bytes of a row n are read once for every kRows rows.
// From kMany rows on, kNR rows of b at a time become a panel of floats for the kernels of gemm.h.
// Sums of one block, then scaled, in a fixed order that the number of threads does not change.
#pragma once
#include <string.h>

#include "gemm.h"
#include "loops.h"
#include "pool.h"
#include "simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gw GW_HIDDEN {

struct PackedProduct {
  const float* a = nullptr;  // [m][k]
  const uint8_t* b = nullptr;
  const float* scales = nullptr;        // [n][blocks]
  const float* zeros = nullptr;         // [n][blocks]; null: see packed_zeros
  const uint8_t* packed_zeros = nullptr;  // [n][ceil(blocks * Bits / 8)]; both null: 2^(Bits - 1)
  float* out = nullptr;                 // [m][n]
  float* workspace = nullptr;           // m * blocks * block floats
  int64_t m = 0, n = 0, k = 0, blocks = 0, block = 0;
};

namespace packed_detail {

constexpr int kRows = 8;
constexpr int64_t kMany = 32;

template <int Bits>
GW_INLINE float zero_of(const PackedProduct& c, int64_t n, int64_t i) {
  if (c.zeros) return c.zeros[n * c.blocks + i];
  if (!c.packed_zeros) return static_cast<float>(1 << (Bits - 1));
  const uint8_t* row = c.packed_zeros + n * ((c.blocks * Bits + 7) / 8);
  const int64_t bit = i * Bits;
  return static_cast<float>((row[bit / 8] >> (bit % 8)) & ((1 << Bits) - 1));
}

// Vectors of W elements: floats and 32-bit integers.
template <int W>
struct Vectors;
#define GW_PACKED_VECTORS(W)                                                                   \
  template <>                                                                                  \
  struct Vectors<W> {                                                                          \
    typedef float floats __attribute__((vector_size(W * 4)));                                  \
    typedef int32_t integers __attribute__((vector_size(W * 4)));                              \
    static GW_INLINE integers load(const uint8_t* p);                                          \
    static GW_INLINE floats load(const float* p) {                                             \
      floats x;                                                                                \
      memcpy(&x, p, W * 4);                                                                    \
      return x;                                                                                \
    }                                                                                          \
    static GW_INLINE floats convert(integers x) { return __builtin_convertvector(x, floats); } \
  };
GW_PACKED_VECTORS(4)
GW_PACKED_VECTORS(8)
GW_PACKED_VECTORS(16)
#undef GW_PACKED_VECTORS

// Bytes widened to 32 bits. Compilers take __builtin_convertvector apart here, element by element.
template <class V>
GW_INLINE V widened(const uint8_t* p) {
  V out;
  for (size_t i = 0; i < sizeof(V) / 4; ++i) out[i] = p[i];
  return out;
}
GW_INLINE Vectors<4>::integers Vectors<4>::load(const uint8_t* p) {
#if defined(__SSE4_1__)
  int32_t bytes;
  memcpy(&bytes, p, 4);
  return (integers)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
#else
  return widened<integers>(p);
#endif
}
GW_INLINE Vectors<8>::integers Vectors<8>::load(const uint8_t* p) {
#if defined(__AVX2__)
  return (integers)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return widened<integers>(p);
#endif
}
GW_INLINE Vectors<16>::integers Vectors<16>::load(const uint8_t* p) {
#if defined(__AVX512F__)
  return (integers)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return widened<integers>(p);
#endif
}

// a * b + c, fused also where a vector is narrower than the machine's.
template <class V>
GW_INLINE V fused(V a, V b, V c) {
  if constexpr (sizeof(V) == sizeof(vf)) {
    return (V)fma((vf)a, (vf)b, (vf)c);
  } else {
    V out;
    for (size_t i = 0; i < sizeof(V) / 4; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return out;
  }
}

// One row of b against MR rows of a; W bytes at a time.
template <int Bits, int W, int MR>
GW_NOINLINE void multiply(const PackedProduct& c, const float* a, int64_t n, float* out) {
  using V = Vectors<W>;
  using vw = typename V::floats;
  constexpr int kPlanes = 8 / Bits;
  const int64_t bytes = c.block * Bits / 8, row = c.blocks * c.block;
  const uint8_t* b = c.b + n * c.blocks * bytes;
  vw total[MR] = {};
  for (int64_t i = 0; i < c.blocks; ++i, b += bytes, a += c.block) {
    const float zero = zero_of<Bits>(c, n, i), scale = c.scales[n * c.blocks + i];
    vw sums[MR] = {};
    for (int64_t j = 0; j < bytes; j += W) {
      const typename V::integers octets = V::load(b + j);
      GW_UNROLL
      for (int p = 0; p < kPlanes; ++p) {
        const vw weight = V::convert((octets >> (p * Bits)) & ((1 << Bits) - 1)) - zero;
        GW_UNROLL
        for (int r = 0; r < MR; ++r) {
          const vw x = V::load(a + r * row + p * bytes + j);
          sums[r] = fused<vw>(weight, x, sums[r]);
        }
      }
    }
    GW_UNROLL
    for (int r = 0; r < MR; ++r) total[r] = fused<vw>(sums[r], vw{} + scale, total[r]);
  }
  GW_UNROLL
  for (int r = 0; r < MR; ++r) {
    float sum = 0;
    for (int l = 0; l < W; ++l) sum += total[r][l];
    out[r * c.n] = sum;
  }
}

template <int Bits, int W, int MR = kRows>
inline void rows_of(const PackedProduct& c, const float* a, int64_t rows, int64_t n, float* out) {
  if constexpr (MR > 0) {
    if (rows == MR) return multiply<Bits, W, MR>(c, a, n, out);
    rows_of<Bits, W, MR - 1>(c, a, rows, n, out);
  }
}

// Element k of a block at plane k % planes, place k / planes.
template <int Bits>
inline void arrange(const PackedProduct& c, int64_t first, int64_t last) {
  constexpr int kPlanes = 8 / Bits;
  const int64_t bytes = c.block * Bits / 8;
  for (int64_t r = first; r < last; ++r) {
    const float* from = c.a + r * c.k;
    float* to = c.workspace + r * c.blocks * c.block;
    for (int64_t i = 0; i < c.blocks; ++i, from += c.block, to += c.block) {
      const int64_t left = c.k - i * c.block;
      for (int64_t j = 0; j < bytes; ++j)
        for (int p = 0; p < kPlanes; ++p) to[p * bytes + j] = j * kPlanes + p < left ? from[j * kPlanes + p] : 0.0f;
    }
  }
}

template <int Bits, int W>
inline void run(const PackedProduct& c, const gw_pool* pool) {
  const int64_t row = c.blocks * c.block, tiles = (c.m + kRows - 1) / kRows;
  parallel_for(pool, c.n, 1 + 65536 / (row > 0 ? row : 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = t * kRows, rows = c.m - first < kRows ? c.m - first : kRows;
      for (int64_t n = begin; n < end; ++n)
        rows_of<Bits, W>(c, c.workspace + first * row, rows, n, c.out + first * c.n + n);
    }
  });
}

struct Store {
  float* out;
  int64_t stride;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows, int64_t col0,
                            int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (row0 + r) * stride + col0;
      const float* GW_RESTRICT t = tile + r * ld;
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c) o[c] = t[c];
    }
  }
};

// Rows [first, first + cols) of b as a packed panel (see micro.h); columns past cols are 0.
template <int Bits>
GW_NOINLINE void unpack_panel(const PackedProduct& c, int64_t first, int64_t cols, float* GW_RESTRICT to) {
  constexpr int kPlanes = 8 / Bits, W = kPanel;
  const int64_t bytes = c.block * Bits / 8, row = c.blocks * bytes;
  alignas(64) float zeros[W] = {}, scales[W] = {};
  alignas(64) uint8_t octets[W] = {};
  for (int64_t i = 0; i < c.blocks; ++i) {
    for (int64_t n = 0; n < cols; ++n) {
      zeros[n] = zero_of<Bits>(c, first + n, i);
      scales[n] = c.scales[(first + n) * c.blocks + i];
    }
    for (int64_t j = 0; j < bytes; ++j) {
      const uint8_t* from = c.b + first * row + i * bytes + j;
      for (int64_t n = 0; n < cols; ++n) octets[n] = from[n * row];
      for (int p = 0; p < kPlanes; ++p) {
        const int64_t k = i * c.block + j * kPlanes + p;
        if (k >= c.k) return;
        for (int n = 0; n < W; ++n) {
          const int32_t q = (octets[n] >> (p * Bits)) & ((1 << Bits) - 1);
          to[k * W + n] = (static_cast<float>(q) - zeros[n]) * scales[n];
        }
      }
    }
  }
}

template <int Bits>
inline void run_many(const PackedProduct& c, const gw_pool* pool) {
  const int64_t panels = (c.n + kNR - 1) / kNR;
  parallel_for(pool, panels, 1, [&](int64_t begin, int64_t end, int) {
    float* const panel = scratch(c.k * kNR);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kNR, cols = c.n - first < kNR ? c.n - first : kNR;
      for (int64_t i = 0; i < cols; i += kPanel)
        unpack_panel<Bits>(c, first + i, cols - i < kPanel ? cols - i : kPanel, panel + i * c.k);
      multiply(MatrixRows{c.a, c.k, c.k}, Panels{panel, c.k, cols}, 0, c.m, 0, 1, 0, first, micro_table,
               Store{c.out, c.n});
    }
  });
}

}  // namespace packed_detail

template <int Bits>
inline void matmul_packed(const PackedProduct& c, const gw_pool* pool) {
  using namespace packed_detail;
  const int64_t bytes = c.block * Bits / 8;
  if (c.m >= kMany) return run_many<Bits>(c, pool);
  parallel_for(pool, c.m, grain(c.k * 8), [&](int64_t begin, int64_t end, int) { arrange<Bits>(c, begin, end); });
  if (bytes % kLanes == 0) {
    run<Bits, kLanes>(c, pool);
  } else if (bytes % 8 == 0) {
    run<Bits, 8>(c, pool);
  } else {
    run<Bits, 4>(c, pool);
  }
}

}  // namespace gw
