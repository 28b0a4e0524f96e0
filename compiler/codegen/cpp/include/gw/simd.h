// One float vector type `gw::vf` of kLanes lanes, its width chosen from the compiler's target macros
// (-march=x86-64-v4: 16, -march=x86-64-v3: 8, anything else: 4), on GCC vector extensions, which clang
// shares. + - * / and comparisons are the language's own operators. fma() is always a fused
// multiply-add, whatever -ffp-contract says, so that contractions round the same under every compiler.
//
// kNV vectors by kMR rows is the largest register tile of micro.h on that target.
#pragma once
#include <stdint.h>

#include "abi.h"

#define GW_INLINE inline __attribute__((always_inline))
#define GW_NOINLINE __attribute__((noinline))
#define GW_INLINE_LAMBDA __attribute__((always_inline))
#define GW_RESTRICT __restrict__

#if defined(__clang__)
#define GW_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GW_UNROLL _Pragma("GCC unroll 64")
#endif

// Hides how an integer or pointer was computed, so that the compiler keeps it in a register.
#define GW_OPAQUE(x) __asm__("" : "+r"(x))
// The same for a vector: without it a load used several times becomes several loads.
#if defined(__x86_64__)
#define GW_KEEP(x) __asm__("" : "+v"(x))
#elif defined(__aarch64__)
#define GW_KEEP(x) __asm__("" : "+w"(x))
#else
#define GW_KEEP(x) (void)0
#endif

// Goes before the innermost (column) loop of an epilogue: iterations are independent, and the loop is to be
// vectorised as it stands. Without it GCC unrolls loops of constant length up to 16 first and then makes
// a hash of them (20 times the instructions), and tests each row for overlap.
#if defined(__clang__)
#define GW_COLUMNS _Pragma("clang loop vectorize(assume_safety)")
#else
#define GW_COLUMNS _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

#if defined(__AVX512F__)
#define GW_LANES 16
#elif defined(__AVX__)
#define GW_LANES 8
#else
#define GW_LANES 4
#endif

#if GW_LANES == 4 && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace gw GW_HIDDEN {

constexpr int kLanes = GW_LANES;
#if GW_LANES == 16
constexpr int kNV = 2, kMR = 14;  // 28 accumulators of 32 registers: loads, 16 for 28 products, bound it
#elif defined(__aarch64__)
constexpr int kNV = 4, kMR = 6;  // 24 of 32
#else
constexpr int kNV = 2, kMR = 6;  // 12 of 16
#endif
constexpr int kNR = kNV * kLanes;  // columns of a register tile
// Columns of a packed panel of floats. It is the same with vectors of 8 and of 16, so that an artifact for
// both stores its weights once; a tile is one panel wide, or two.
constexpr int kPanel = kNR < 16 ? kNR : 16;

typedef float vf __attribute__((vector_size(GW_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(GW_LANES * 4)));
typedef float vf_unaligned __attribute__((vector_size(GW_LANES * 4), aligned(4), may_alias));

GW_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
GW_INLINE void store(float* p, vf x) { *reinterpret_cast<vf_unaligned*>(p) = x; }

GW_INLINE vf splat(float x) {
#if GW_LANES == 16
  return vf{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif GW_LANES == 8
  return vf{x, x, x, x, x, x, x, x};
#else
  return vf{x, x, x, x};
#endif
}

// a * b + c, rounded once.
GW_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__clang__) && defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
#define GW_HAVE_FMA 1
#endif
#endif
#if !defined(GW_HAVE_FMA)
#if GW_LANES == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, static_cast<unsigned short>(-1), 4);
#elif GW_LANES == 8 && defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif GW_LANES == 4 && defined(__FMA__)
  return __builtin_ia32_vfmaddps(a, b, c);
#elif GW_LANES == 4 && defined(__aarch64__)
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  vf r;
  for (int i = 0; i < kLanes; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#endif
#endif
}

// First n lanes from p (0 <= n <= kLanes), zeros after them; reads nothing past p[n).
GW_INLINE vf load_partial(const float* p, int64_t n) {
#if GW_LANES == 16
  return __builtin_ia32_loadups512_mask(p, splat(0.0f), static_cast<unsigned short>((1u << n) - 1u));
#elif GW_LANES == 8
  const vi lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const vi mask = lane < vi{} + static_cast<int32_t>(n);
  return __builtin_ia32_maskloadps256(reinterpret_cast<const vf*>(p), mask);
#else
  vf r = splat(0.0f);
  __builtin_memcpy(&r, p, static_cast<unsigned long>(n) * 4);
  return r;
#endif
}

// False when any lane is NaN or not zero.
GW_INLINE bool all_equal_zero(vf x) {
  const vi wrong = x == splat(0.0f) ? vi{} : ~vi{};
  int64_t any[sizeof(vi) / 8];
  __builtin_memcpy(any, &wrong, sizeof any);
  int64_t together = 0;
  for (unsigned i = 0; i < sizeof(vi) / 8; ++i) together |= any[i];
  return together == 0;
}

GW_INLINE float sum(vf x) {
  float part[kLanes];
  __builtin_memcpy(part, &x, sizeof x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}

}  // namespace gw
