// Sums of products of 8- and 16-bit integers in vectors of kLanes 32-bit sums.
//
// The unit is a word: four elements of the left operand that follow each other along k, met by as many bytes of the
// right operand for each column. A left operand of 16 bits meets 8-bit bytes, of which packing exchanges the two in
// the middle of a word: the even and the odd ones then belong to neighbouring elements. The right operand's bytes have the opposite sign of an 8-bit left operand, since that is what
// vpdpbusd multiplies: packing flips their top bit where needed and moves the zero point with it, so that no
// element of the left operand is touched on the way in.
//
//   left   right, as packed   instructions
//   u8     i8                 vpdpbusd, or pmaddwd on the even and the odd bytes
//   i8     u8                 the same with the operands exchanged
//   i16    i8                 vpdpwssd, or pmaddwd, on the even and the odd bytes
//
// No intermediate saturates (vpmaddubsw would): products of bytes are added in 32 bits or, two of them, by
// pmaddwd, which holds them. Sums wrap as 32-bit integers do, so that a result that fits is exact.
#pragma once
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if GW_LANES == 16 && defined(__AVX512VNNI__)
#define GW_VNNI 1
#endif

namespace gw GW_HIDDEN {

enum class Left { U8, S8, S16 };

typedef int32_t vi_unaligned __attribute__((vector_size(GW_LANES * 4), aligned(1), may_alias));
typedef int16_t vh __attribute__((vector_size(GW_LANES * 4)));
typedef uint16_t vuh __attribute__((vector_size(GW_LANES * 4)));
typedef int8_t vb_half __attribute__((vector_size(GW_LANES * 2)));
typedef int8_t vb_half_unaligned __attribute__((vector_size(GW_LANES * 2), aligned(1), may_alias));

GW_INLINE vi load_integers(const void* p) { return *static_cast<const vi_unaligned*>(p); }
GW_INLINE void store_integers(void* p, vi x) { *static_cast<vi_unaligned*>(p) = x; }
GW_INLINE vi splat_integer(int32_t x) { return vi{} + x; }

// Bytes of the right operand that one column has in a word, and of the left one.
constexpr int kColumnBytes = 4;
template <Left L>
constexpr int kLeftBytes = L == Left::S16 ? 8 : 4;

// a[2i] * b[2i] + a[2i + 1] * b[2i + 1] in 32 bits.
GW_INLINE vi multiply_pairs(vh a, vh b) {
#if GW_LANES == 16 && defined(__AVX512BW__)
  return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif GW_LANES == 8 && defined(__AVX2__)
  return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif GW_LANES == 4 && defined(__SSE2__)
  return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  vi sums;
  for (int i = 0; i < kLanes; ++i) sums[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sums;
#endif
}

GW_INLINE vh signed_even(vi x) { return ((vh)x << 8) >> 8; }
GW_INLINE vh signed_odd(vi x) { return (vh)x >> 8; }
GW_INLINE vh unsigned_even(vi x) { return (vh)(x & 0x00FF00FF); }
GW_INLINE vh unsigned_odd(vi x) { return (vh)((vuh)x >> 8); }

#if defined(GW_VNNI)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// A vector of words, ready to be multiplied: whole, or as 16-bit elements, the even and the odd bytes.
struct WholeWords {
  vi all;
};
struct Halves {
  vh even, odd;
};
template <Left L>
using Bytes = std::conditional_t<kVnni && L != Left::S16, WholeWords, Halves>;

GW_INLINE void keep(WholeWords& x) { GW_KEEP(x.all); }
GW_INLINE void keep(Halves& x) {
  GW_KEEP(x.even);
  GW_KEEP(x.odd);
}

// Words of an 8-bit left operand.
template <Left L>
GW_INLINE Bytes<L> left_bytes(vi words) {
  static_assert(L != Left::S16);
  if constexpr (kVnni) {
    return {words};
  } else if constexpr (L == Left::U8) {
    return {unsigned_even(words), unsigned_odd(words)};
  } else {
    return {signed_even(words), signed_odd(words)};
  }
}
template <Left L>
GW_INLINE Bytes<L> right_bytes(const int8_t* p) {
  const vi words = load_integers(p);
  if constexpr (kVnni && L != Left::S16) {
    return {words};
  } else if constexpr (L == Left::S8) {
    return {unsigned_even(words), unsigned_odd(words)};
  } else {
    return {signed_even(words), signed_odd(words)};
  }
}
template <Left L>
GW_INLINE vi add_products(vi sums, Bytes<L> a, Bytes<L> b) {
#if defined(GW_VNNI)
  if constexpr (L == Left::U8) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)a.all, (__m512i)b.all);
  } else if constexpr (L == Left::S8) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)b.all, (__m512i)a.all);
  } else {
    const __m512i first = _mm512_dpwssd_epi32((__m512i)sums, (__m512i)a.even, (__m512i)b.even);
    return (vi)_mm512_dpwssd_epi32(first, (__m512i)a.odd, (__m512i)b.odd);
  }
#else
  sums += multiply_pairs(a.even, b.even);
  return sums + multiply_pairs(a.odd, b.odd);
#endif
}

GW_INLINE vi splat_bytes(const uint8_t* p) {
  int32_t word;
  memcpy(&word, p, 4);
  return splat_integer(word);
}

// One word of the left operand in every lane.
template <Left L>
GW_INLINE Bytes<L> left_word(const uint8_t* p) {
  if constexpr (L == Left::S16) {
    return {(vh)splat_bytes(p), (vh)splat_bytes(p + 4)};
  } else {
    return left_bytes<L>(splat_bytes(p));
  }
}
// The last word, of which n bytes exist (no memcpy: a call would spill all sums).
template <Left L>
GW_INLINE Bytes<L> left_part(const uint8_t* p, int64_t n) {
  const auto word = [&](const uint8_t* q, int64_t bytes) GW_INLINE_LAMBDA {
    uint32_t w = bytes > 0 ? q[0] : 0;
    if (bytes > 1) w |= static_cast<uint32_t>(q[1]) << 8;
    if (bytes > 2) w |= static_cast<uint32_t>(q[2]) << 16;
    if (bytes > 3) w |= static_cast<uint32_t>(q[3]) << 24;
    return splat_integer(static_cast<int32_t>(w));
  };
  if constexpr (L == Left::S16) {
    return {(vh)word(p, n), (vh)word(p + 4, n - 4)};
  } else {
    return left_bytes<L>(word(p, n));
  }
}

// The sum of the elements in `bytes` bytes of a left operand.
template <Left L>
GW_INLINE int32_t sum_elements(const uint8_t* p, int64_t bytes) {
  int32_t sum = 0;
  if constexpr (L == Left::S16) {
    for (int64_t i = 0; i < bytes; i += 2) {
      int16_t x;
      memcpy(&x, p + i, 2);
      sum += x;
    }
  } else {
    for (int64_t i = 0; i < bytes; ++i) sum += L == Left::U8 ? p[i] : static_cast<int8_t>(p[i]);
  }
  return sum;
}

// The microkernel: tile[r][c] = init[c] + sum over taps t and words w of rows[t][r] word w times panel word.
//
// rows   MR pointers a tap, each to `run` bytes; only the last word of the last tap may be incomplete.
// panel  [words][NV * kLanes][kColumnBytes] bytes, taps one after the other.
// tile   row stride kNR.
#if GW_LANES == 16
constexpr int kDotRows = 12;
#else
constexpr int kDotRows = 4;  // the halves of a word take registers
#endif

typedef void (*dot_fn)(int64_t taps, int64_t run, const uint8_t* const* rows, const int8_t* panel,
                       const int32_t* init, int32_t* tile);

template <Left L, int MR, int NV, int KU>
GW_NOINLINE void dot_tile(int64_t taps, int64_t run, const uint8_t* const* rows, const int8_t* panel,
                          const int32_t* init, int32_t* tile) {
  constexpr int W = NV * kLanes * kColumnBytes, V = kLanes * kColumnBytes, A = kLeftBytes<L>;
  vi acc[KU][MR][NV];
  GW_UNROLL
  for (int r = 0; r < MR; ++r) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) {
      acc[0][r][v] = load_integers(init + v * kLanes);
      GW_UNROLL
      for (int u = 1; u < KU; ++u) acc[u][r][v] = vi{};
    }
  }
  for (int64_t t = 0; t < taps; ++t) {
    const uint8_t* a[MR];
    GW_UNROLL
    for (int r = 0; r < MR; ++r) a[r] = rows[t * MR + r];
    int64_t i = 0;
    for (; i + A * KU <= run; i += A * KU) {
      GW_UNROLL
      for (int u = 0; u < KU; ++u) {
        Bytes<L> b[NV];
        GW_UNROLL
        for (int v = 0; v < NV; ++v) {
          b[v] = right_bytes<L>(panel + u * W + v * V);
          keep(b[v]);
        }
        GW_UNROLL
        for (int r = 0; r < MR; ++r) {
          const Bytes<L> word = left_word<L>(a[r] + i + A * u);
          GW_UNROLL
          for (int v = 0; v < NV; ++v) acc[u][r][v] = add_products<L>(acc[u][r][v], word, b[v]);
        }
      }
      panel += KU * W;
    }
    for (; i < run; i += A, panel += W) {
      const int64_t n = run - i < A ? run - i : A;
      GW_UNROLL
      for (int v = 0; v < NV; ++v) {
        const Bytes<L> b = right_bytes<L>(panel + v * V);
        GW_UNROLL
        for (int r = 0; r < MR; ++r)
          acc[0][r][v] = add_products<L>(acc[0][r][v], left_part<L>(a[r] + i, n), b);
      }
    }
  }
  GW_UNROLL
  for (int r = 0; r < MR; ++r) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) {
      vi x = acc[0][r][v];
      GW_UNROLL
      for (int u = 1; u < KU; ++u) x += acc[u][r][v];
      store_integers(tile + r * kNR + v * kLanes, x);
    }
  }
}

// fn[MR - 1][NV - 1]
struct DotTable {
  dot_fn fn[kDotRows][kNV];
};

namespace dot_detail {
// Chains of sums enough to hide the latency of a multiply-add, for the few rows that have too few.
constexpr int chains(int mr) {
  const int most = kLanes == 16 ? 16 : 8, count = most / (mr * kNV);
  return count >= 4 ? 4 : (count >= 2 ? 2 : 1);
}
template <Left L, int MR, int NV>
constexpr void fill(DotTable& t) {
  t.fn[MR - 1][NV - 1] = dot_tile<L, MR, NV, chains(MR)>;
  if constexpr (NV > 1) {
    fill<L, MR, NV - 1>(t);
  } else if constexpr (MR > 1) {
    fill<L, MR - 1, kNV>(t);
  }
}
template <Left L>
constexpr DotTable make() {
  DotTable t{};
  fill<L, kDotRows, kNV>(t);
  return t;
}
}  // namespace dot_detail

template <Left L>
inline constexpr DotTable dot_table = dot_detail::make<L>();

}  // namespace gw
