// What generated loop nests use besides the math: index helpers, small-float storage, loop hints.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include "abi.h"
#include "pool.h"
#include "simd.h"

// The next loop carries no dependence from one iteration to another: kernels read an element of an
// operand before they write the element of a result that may share its storage.
#if defined(__clang__)
#define GW_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define GW_IVDEP _Pragma("GCC ivdep")
#endif

// The next loop stays one.  GCC 12 gives wrong results for a loop of two iterations with loads that a
// condition guards, once it has unrolled it and vectorises the loop around it with masked loads.
#if defined(__clang__)
#define GW_ROLLED
#else
#define GW_ROLLED _Pragma("GCC unroll 1")
#endif

namespace gw GW_HIDDEN {

GW_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
GW_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Division rounded down and its remainder in [0, b), for b > 0 and any a.
GW_INLINE int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
GW_INLINE int64_t floor_modulo(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

constexpr int64_t kMostColumns = 64;  // of one call of an epilogue

// to[at[i]] = from[i] for i < n; no two places are the same.
template <class T>
GW_INLINE void scatter(T* GW_RESTRICT to, const int32_t* at, const T* from, int64_t n) {
  GW_IVDEP
  for (int64_t i = 0; i < n; ++i) to[at[i]] = from[i];
}

// A loaded index: negative ones count from the end; kept inside [0, extent) so that no read leaves the
// tensor whatever the data says.
GW_INLINE int64_t wrap_index(int64_t i, int64_t extent) {
  return smaller(larger(i < 0 ? i + extent : i, 0), extent - 1);
}

// How many items one piece of a parallel loop holds at least, when an item costs `cost` units (about a
// byte moved, a quarter of a nanosecond of one core): below it, waking a thread costs more than it brings.
GW_INLINE int64_t grain(int64_t cost) { return 1 + 98304 / (cost > 0 ? cost : 1); }

// A reduction of everything is cut in chunks, whose number follows from the work alone: `items` of `cost`
// units each. Chunk c of `chunks` begins at item chunk_start(items, chunks, c).
constexpr int64_t kMostChunks = 64;
GW_INLINE int64_t chunk_count(int64_t items, int64_t cost) {
  const double wanted = static_cast<double>(items) * static_cast<double>(cost) / 49152;
  const int64_t some = wanted < kMostChunks ? static_cast<int64_t>(wanted) : kMostChunks;
  return smaller(larger(some, 1), items);
}
GW_INLINE int64_t chunk_start(int64_t items, int64_t chunks, int64_t c) {
  return items / chunks * c + smaller(c, items % chunks);
}

namespace loops_detail {
struct Scratch {
  float* data = nullptr;
  int64_t size = 0;
  ~Scratch() { free(data); }
};
inline thread_local Scratch scratch;
}  // namespace loops_detail

// At least n floats (64-byte aligned) of the calling thread, whose size depends on the number of threads
// and so cannot be planned. Kept for the next call: in steady state nothing is allocated.
inline float* scratch(int64_t n) {
  loops_detail::Scratch& s = loops_detail::scratch;
  if (s.size < n) {
    free(s.data);
    const int64_t bytes = (n * 4 + 63) / 64 * 64;
    s.data = static_cast<float*>(aligned_alloc(64, static_cast<size_t>(bytes)));
    s.size = n;
    if (!s.data) __builtin_trap();
  }
  return s.data;
}

// 4-bit integers lie two a byte, the first one in the low half.
GW_INLINE uint8_t load_u4(const uint8_t* p, int64_t i) {
  return static_cast<uint8_t>(p[i >> 1] >> ((i & 1) * 4)) & 15u;
}
GW_INLINE int8_t load_i4(const uint8_t* p, int64_t i) {
  return static_cast<int8_t>(static_cast<int8_t>(load_u4(p, i) << 4) >> 4);
}

// f16 and bf16 live in memory as their bits; arithmetic is in float. All branch-free, so that they
// vectorise; rounding is to nearest even, NaN stays NaN.
GW_INLINE float bits_float(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
GW_INLINE uint32_t float_bits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}

GW_INLINE float from_bf16(uint16_t h) { return bits_float(static_cast<uint32_t>(h) << 16); }
GW_INLINE uint16_t to_bf16(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

GW_INLINE float from_f16(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13;
  const uint32_t scaled = float_bits(bits_float(magnitude) * bits_float(0x77800000u));  // 2^112
  const uint32_t special = magnitude | 0x7f800000u;
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  return bits_float(((h & 0x7c00u) == 0x7c00u ? special : scaled) | sign);
}
GW_INLINE uint16_t to_f16(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t sign = (u >> 16) & 0x8000u;
  // Normal results: round the 13 dropped bits to even, rebias the exponent by 112.
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Below 2^-14: adding 0.5 leaves the rounded subnormal in the low bits of the sum.
  const uint32_t tiny = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
  const uint32_t infinite = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<uint16_t>((magnitude >= 0x477ff000u ? infinite : finite) | sign);
}

// Reductions along contiguous memory: element i goes to lane i % L, lanes are combined at the end. The
// order of the sums therefore follows from L alone, not from the ISA or the number of threads.
template <int L, class Step>
GW_INLINE void lanes(int64_t n, const Step& step) {
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    GW_IVDEP
    for (int64_t l = 0; l < L; ++l) step(i + l, l);
  }
  const int64_t rest = n - i;
  GW_IVDEP
  for (int64_t l = 0; l < rest; ++l) step(i + l, l);
}

// The lanes as one value, combined in a tree.
template <int L, class T, class Combine>
GW_INLINE T combine_lanes(T* acc, const Combine& combine) {
  for (int width = L / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) acc[l] = combine(acc[l], acc[l + width]);
  }
  return acc[0];
}

// Whether x takes the place of the best so far in arg_max (Max) or arg_min; a NaN beats any number, and of
// equals the later one wins with Last.
template <bool Max, bool Last, class T>
GW_INLINE bool beats(T x, T best) {
  const bool x_nan = x != x, best_nan = best != best;
  const bool more = Max ? x > best : x < best;
  return (more && !best_nan) || (x_nan && !best_nan) || (Last && (x == best || (x_nan && best_nan)));
}

// The position of the best of the lanes; lanes with a negative position hold nothing.
template <int L, bool Max, bool Last, class T>
GW_INLINE int64_t best_lane(const T* best, const int64_t* where) {
  int lane = 0;
  for (int l = 1; l < L; ++l) {
    if (where[l] < 0) continue;
    const bool tie = !beats<Max, false>(best[l], best[lane]) && !beats<Max, false>(best[lane], best[l]);
    const bool earlier = where[l] < where[lane];
    if (tie ? earlier != Last : beats<Max, false>(best[l], best[lane])) lane = l;
  }
  return where[lane];
}

}  // namespace gw
