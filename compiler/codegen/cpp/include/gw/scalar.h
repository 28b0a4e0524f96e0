// The pointwise ops that are neither a C++ operator nor an elementary function of math.h: what the op table
// (compiler/ir/ops/pointwise.py, functions.py) spells as gw:: calls. Templates over the element type; all but
// pow and mod of floats are branch-free, so that loops over them vectorise.
#pragma once
#include <stdint.h>

#include <limits>
#include <type_traits>

#include "math.h"
#include "narrow.h"
#include "small.h"

namespace gw GW_HIDDEN {

// Integers: toward zero; by zero 0; the most negative by -1 wraps.
template <class T>
GW_INLINE T div(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    if (b == T(0)) return T(0);
    if constexpr (std::is_signed_v<T>) {
      if (b == T(-1)) return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(a));
    }
    return static_cast<T>(a / b);
  }
}

// The remainder with the sign of b, or with fmod that of a. Integers by zero: 0.
template <class T>
GW_INLINE T mod(T a, T b, bool fmod) {
  T r;
  if constexpr (std::is_same_v<T, float>) {
    r = __builtin_fmodf(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    r = __builtin_fmod(a, b);
  } else {
    if (b == T(0)) return T(0);
    if constexpr (std::is_signed_v<T>) {
      if (b == T(-1)) return T(0);
    }
    r = static_cast<T>(a % b);
  }
  if (!fmod && r != T(0) && (r < T(0)) != (b < T(0))) r = static_cast<T>(r + b);
  return r;
}

// Integer powers wrap; a negative exponent gives 0, but powers of 1 and -1 are exact.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
GW_INLINE T pow(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b < 0) return a == T(1) ? T(1) : a == T(-1) ? (b % 2 ? T(-1) : T(1)) : T(0);
  }
  using U = std::make_unsigned_t<T>;
  uint64_t base = static_cast<U>(a), result = 1;
  for (U n = static_cast<U>(b); n; n = static_cast<U>(n >> 1)) {
    if (n & 1) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
GW_INLINE T abs(T x) {
  return x < T(0) ? static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x)) : x;
}
template <class T>
GW_INLINE T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : x;
}
template <class T>
GW_INLINE T prelu(T x, T slope) {
  return x < T(0) ? static_cast<T>(x * slope) : x;
}
template <class T>
GW_INLINE bool is_nan(T x) {
  return x != x;
}
template <class T>
GW_INLINE bool is_inf(T x, bool negative, bool positive) {
  const T infinite = std::numeric_limits<T>::infinity();
  return (positive & (x == infinite)) | (negative & (x == -infinite));
}

// A count that is negative or at least the width leaves nothing, or the sign of an arithmetic shift.
template <class T>
GW_INLINE T shift_left(T a, T b) {
  const bool outside = (b < T(0)) | (b >= T(sizeof(T) * 8));
  using U = std::make_unsigned_t<T>;
  const T shifted = static_cast<T>(static_cast<U>(a) << (outside ? T(0) : b));
  return outside ? T(0) : shifted;
}
template <class T>
GW_INLINE T shift_right(T a, T b) {
  const bool outside = (b < T(0)) | (b >= T(sizeof(T) * 8));
  const T rest = a < T(0) ? static_cast<T>(-1) : T(0);
  const T shifted = static_cast<T>(a >> (outside ? T(0) : b));
  return outside ? rest : shifted;
}

// Float to integer: toward zero, limited to the type's range, NaN is 0. Integer to integer wraps.
template <class To, class From>
GW_INLINE To cast(From x, bool) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<To> || !std::is_floating_point_v<From>) {
    return static_cast<To>(x);
  } else {
    constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
    // One more than `most` is a power of two, which every float type holds.
    constexpr From above = static_cast<From>(most / 2 + 1) * From(2);
    const From low = x > static_cast<From>(least) ? x : static_cast<From>(least);  // also takes NaN
    const From inside = low < above ? low : From(0);
    using Wide = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
    const To whole = static_cast<To>(static_cast<Wide>(inside));
    return x != x ? To(0) : low < above ? whole : most;
  }
}

// x / scale, correctly rounded, by the reciprocal of a scale that does not change in a loop (P. Markstein, IA-64 and
// Elementary Functions, 2000: a quotient within an ulp or so becomes the right one by its remainder, which fma
// gives exactly). Scales are 2^-100 to 2^100; beyond that the last bit may differ. Where the reciprocal's product is
// infinite or no number, so is the quotient.
GW_INLINE float divide_by_scale(float x, float scale) {
  const float inverse = 1.0f / scale, near = x * inverse;
  const float exact = __builtin_fmaf(__builtin_fmaf(-near, scale, x), inverse, near);
  return exact == exact ? exact : near;
}
GW_INLINE double divide_by_scale(double x, double scale) { return x / scale; }

// Rounded to an integer, moved by the zero point and limited to the range of To, NaN is 0; the scale is 1. `wide`: in
// 32 bits, for loops that are all of that width.
template <class To, class T, class Zero>
GW_INLINE int32_t quantize_unscaled_wide(T x, Zero zero_point) {
  constexpr T least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  const T moved = round_even(x) + static_cast<T>(zero_point);
  const T low = moved > least ? moved : least, inside = low < most ? low : most;
  return moved != moved ? 0 : static_cast<int32_t>(inside);
}
template <class To, class T, class Zero>
GW_INLINE int32_t quantize_wide(T x, T scale, Zero zero_point) {
  return quantize_unscaled_wide<To>(divide_by_scale(x, scale), zero_point);
}
template <class To, class T>
GW_INLINE To quantize_unscaled(T x, To zero_point) {
  if constexpr (sizeof(To) > 2) {
    return cast<To>(round_even(x) + static_cast<T>(zero_point), true);
  } else {
    return static_cast<To>(quantize_unscaled_wide<To>(x, zero_point));
  }
}
template <class To, class T>
GW_INLINE To quantize(T x, T scale, To zero_point) {
  return quantize_unscaled<To>(divide_by_scale(x, scale), zero_point);
}
template <class To, class From, class S>
GW_INLINE To dequantize(From x, S scale, From zero_point) {
  return static_cast<To>((static_cast<S>(x) - static_cast<S>(zero_point)) * scale);
}

template <class T>
GW_INLINE T reciprocal(T x) {
  return T(1) / x;
}
template <class T>
GW_INLINE T softplus(T x) {
  return maximum(x, T(0)) + log1p(exp(-abs(x)));
}
template <class T>
GW_INLINE T softsign(T x) {
  return x / (T(1) + abs(x));
}
template <class T>
GW_INLINE T silu(T x) {
  return x * sigmoid(x);
}
// tanh(log(1 + e^x)) = n / (n + 2) with n = e^x * (e^x + 2), which is 1 long before it overflows.
template <class T>
GW_INLINE T mish(T x) {
  const T e = exp(x > T(20) ? T(20) : x);
  const T n = e * (e + T(2));
  return x * (n / (n + T(2)));
}
template <class T>
GW_INLINE T hard_sigmoid(T x, T alpha, T beta) {
  return clip(alpha * x + beta, T(0), T(1));
}
template <class T>
GW_INLINE T hard_swish(T x) {
  return x * hard_sigmoid(x, T(1) / T(6), T(0.5));
}
template <class T>
GW_INLINE T gelu_none(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T>
GW_INLINE T gelu_tanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + tanh(inner));
}
template <class T>
GW_INLINE T elu(T x, T alpha) {
  return x > T(0) ? x : alpha * expm1(x);
}
template <class T>
GW_INLINE T selu(T x, T alpha, T gamma) {
  return gamma * elu(x, alpha);
}
template <class T>
GW_INLINE T celu(T x, T alpha) {
  return x > T(0) ? x : alpha * expm1(x / alpha);
}
template <class T>
GW_INLINE T leaky_relu(T x, T alpha) {
  return x < T(0) ? alpha * x : x;
}
template <class T>
GW_INLINE T thresholded_relu(T x, T alpha) {
  return x > alpha ? x : T(0);
}
template <class T>
GW_INLINE T shrink(T x, T bias, T lambd) {
  return x < -lambd ? x + bias : x > lambd ? x - bias : T(0);
}

}  // namespace gw
