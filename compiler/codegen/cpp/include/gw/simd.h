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
constexpr int kNV = 2, kMR = 12;  // 24 accumulators of 32 registers; 12 row pointers fit 16 integer registers
#elif defined(__aarch64__)
constexpr int kNV = 4, kMR = 6;  // 24 of 32
#else
constexpr int kNV = 2, kMR = 6;  // 12 of 16
#endif
constexpr int kNR = kNV * kLanes;  // columns of a packed panel

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

// First n lanes from p, the rest `fill`; reads nothing past p[n).
GW_INLINE vf load_partial(const float* p, int64_t n, float fill = 0.0f) {
  vf r = splat(fill);
  if (n >= kLanes) return load(p);
  __builtin_memcpy(&r, p, static_cast<unsigned long>(n) * 4);
  return r;
}

GW_INLINE void store_partial(float* p, vf x, int64_t n) {
  if (n >= kLanes) return store(p, x);
  __builtin_memcpy(p, &x, static_cast<unsigned long>(n) * 4);
}

GW_INLINE float sum(vf x) {
  float part[kLanes];
  __builtin_memcpy(part, &x, sizeof x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}

}  // namespace gw
