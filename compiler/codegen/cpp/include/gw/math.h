// Scalar float functions without branches or calls, so that GCC -O3 and clang vectorise loops over them
// (flags: -fno-math-errno -fno-trapping-math; no -ffast-math):
//
//   exp log log1p expm1 tanh sigmoid erf sqrt rsqrt sin cos tan pow      within 2 ulp of the exact value
//   floor ceil trunc round_even abs copysign                              exact
//   maximum minimum relu clip                                             a NaN operand gives NaN
//   asin acos atan atan2 sinh cosh asinh acosh atanh                      correct to 1 ulp, not vectorised
//
// All inputs are handled: infinities, NaN, denormals, -0.0 (whose sign survives where the function has it).
// Methods: exp and its kin by Cody-Waite reduction and minimax polynomials in float; sin, cos and pow in
// double inside the vector loop (sin and cos reduce every float exactly enough, no slow path). Polynomials
// were fitted by Remez exchange; each error quoted is that of the polynomial alone.
// The overloads for double call libm and do not vectorise.
#pragma once
#include <stdint.h>

#include "simd.h"

namespace gw GW_HIDDEN {

#if defined(__FMA__) || defined(__aarch64__)
#define GW_FMA_TARGET 1
GW_INLINE float mul_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GW_INLINE double mul_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
#define GW_FMA_TARGET 0
GW_INLINE float mul_add(float a, float b, float c) { return a * b + c; }
GW_INLINE double mul_add(double a, double b, double c) { return a * b + c; }
#endif

GW_INLINE int32_t bits(float x) { return __builtin_bit_cast(int32_t, x); }
GW_INLINE int64_t bits(double x) { return __builtin_bit_cast(int64_t, x); }
GW_INLINE float from_bits(int32_t x) { return __builtin_bit_cast(float, x); }
GW_INLINE double from_bits(int64_t x) { return __builtin_bit_cast(double, x); }

GW_INLINE float abs(float x) { return __builtin_fabsf(x); }
GW_INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
GW_INLINE float floor(float x) { return __builtin_floorf(x); }
GW_INLINE float ceil(float x) { return __builtin_ceilf(x); }
GW_INLINE float trunc(float x) { return __builtin_truncf(x); }
GW_INLINE float round_even(float x) { return __builtin_rintf(x); }
GW_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
GW_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

template <class T>
GW_INLINE T maximum(T a, T b) {
  return ((a > b) | (a != a)) ? a : b;
}
template <class T>
GW_INLINE T minimum(T a, T b) {
  return ((a < b) | (a != a)) ? a : b;
}
template <class T>
GW_INLINE T relu(T x) {
  return x < T(0) ? T(0) : x;
}
// min(max(x, low), high): high wins when low > high.
template <class T>
GW_INLINE T clip(T x, T low, T high) {
  return minimum(maximum(x, low), high);
}

namespace math_detail {

constexpr float kRound = 12582912.0f;             // 1.5 * 2^23: adding it rounds to an integer, half to even
constexpr double kRound64 = 6755399441055744.0;   // 1.5 * 2^52
constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62e400p-1f;        // 15 bits: n * kLn2High is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// 2^n for -126 <= n <= 127
GW_INLINE float power_of_two(int32_t n) { return from_bits((n + 127) << 23); }

// x = n ln 2 + r, |r| <= ln 2 / 2 (a little more at the ends); |x| < 2^15
GW_INLINE float reduce(float x, int32_t& n) {
  const float shifted = mul_add(x, kLog2e, kRound);
  const float whole = shifted - kRound;
  n = bits(shifted) - bits(kRound);
  const float r = mul_add(whole, -kLn2High, x);
  return mul_add(whole, -kLn2Low, r);
}

// exp(r) for reduced r; error 2^-28
GW_INLINE float exp_reduced(float r) {
  float p = 0x1.6db4e6p-10f;
  p = mul_add(p, r, 0x1.123bdep-7f);
  p = mul_add(p, r, 0x1.55545ep-5f);
  p = mul_add(p, r, 0x1.55548ep-3f);
  p = mul_add(p, r, 0.5f);
  return mul_add(p * r, r, r) + 1.0f;
}

// exp(r) - 1 for reduced r, relative error 2^-32
GW_INLINE float expm1_reduced(float r) {
  float p = 0x1.a1a210p-13f;
  p = mul_add(p, r, 0x1.6d7528p-10f);
  p = mul_add(p, r, 0x1.111090p-7f);
  p = mul_add(p, r, 0x1.5554aep-5f);
  p = mul_add(p, r, 0x1.555556p-3f);
  p = mul_add(p, r, 0.5f);
  return mul_add(p * r, r, r);
}

// log(m * 2^e) for m = 1 + f in [sqrt(1/2), sqrt(2)); relative error of the polynomial 2^-30
GW_INLINE float log_reduced(float f, float e) {
  float p = 0x1.1b40dap-4f;
  p = mul_add(p, f, -0x1.e2e844p-4f);
  p = mul_add(p, f, 0x1.e650bap-4f);
  p = mul_add(p, f, -0x1.fb436cp-4f);
  p = mul_add(p, f, 0x1.2332c2p-3f);
  p = mul_add(p, f, -0x1.5562e2p-3f);
  p = mul_add(p, f, 0x1.99a546p-3f);
  p = mul_add(p, f, -0x1.ffffeep-3f);
  p = mul_add(p, f, 0x1.555546p-2f);
  const float ff = f * f;
  float y = p * (ff * f);
  y = mul_add(e, kLn2Low, y);
  y = mul_add(ff, -0.5f, y);
  return mul_add(e, kLn2High, y + f);
}

// Positive normal x = m * 2^e with m in [sqrt(1/2), sqrt(2)); returns m - 1.
GW_INLINE float split(float x, float& e) {
  // Subtracting the bits of sqrt(1/2) makes the exponent step at sqrt(1/2) instead of 1.
  const int32_t offset = bits(x) - 0x3f3504f3;
  e = static_cast<float>(offset >> 23);
  return from_bits((offset & 0x7fffff) + 0x3f3504f3) - 1.0f;
}

}  // namespace math_detail

GW_INLINE float exp(float x) {
  using namespace math_detail;
  const float low = x < -104.0f ? -104.0f : x;
  const float y = low > 89.0f ? 89.0f : low;
  int32_t n;
  const float p = exp_reduced(reduce(y, n));
  // n is in [-150, 128]: two factors, each a normal number, so that denormal results round once.
  const int32_t half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
}

GW_INLINE float expm1(float x) {
  using namespace math_detail;
  const float low = x < -20.0f ? -20.0f : x;
  const float y = low > 89.0f ? 89.0f : low;
  int32_t n;
  const float q = expm1_reduced(reduce(y, n));
  const float half = power_of_two(n - 1);  // 2^(n-1), so that n = 128 does not overflow early
  const float value = mul_add(q, half, half - 0.5f) * 2.0f;
  return abs(x) < 0x1p-25f ? x : value;
}

GW_INLINE float log(float x) {
  using namespace math_detail;
  const bool tiny = x < 0x1p-126f;
  float e;
  const float f = split(tiny ? x * 0x1p23f : x, e);
  const float y = log_reduced(f, tiny ? e - 23.0f : e);
  const float special = x == 0.0f ? -__builtin_inff() : (x < 0.0f ? __builtin_nanf("") : x);
  return ((x > 0.0f) & (x < __builtin_inff())) ? y : special;
}

GW_INLINE float log1p(float x) {
  using namespace math_detail;
  // log(1 + x) = log(u) + c with u = 1 + x rounded and c what the rounding lost, relative to u.
  const float u = 1.0f + x;
  const float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  float e;
  const float f = split(u, e);
  const float y = log_reduced(f, e) + lost / u;
  const float small = abs(x) < 0x1p-25f ? x : y;
  const float special = x == -1.0f ? -__builtin_inff() : (x < -1.0f ? __builtin_nanf("") : x);
  return ((x > -1.0f) & (x < __builtin_inff())) ? small : special;
}

GW_INLINE float sigmoid(float x) {
  // exp of a negative number only: no overflow, and the left tail keeps its relative accuracy. The last
  // line gives back what rounding 1 + z lost (in full for x < 0, where it is needed to stay below 2 ulp).
  const float z = exp(-abs(x));
  const float d = 1.0f + z;
  const float q = (x < 0.0f ? z : 1.0f) / d;
  return mul_add(q, ((d - 1.0f) - z) * (1.0f - q), q);
}

GW_INLINE float tanh(float x) {
  const float a = abs(x);
  const float s = x * x;
  float p = -0x1.76ac12p-8f;  // error 2^-28 for |x| <= 0.625
  p = mul_add(p, s, 0x1.5256d6p-6f);
  p = mul_add(p, s, -0x1.b84448p-5f);
  p = mul_add(p, s, 0x1.110768p-3f);
  p = mul_add(p, s, -0x1.555534p-2f);
  const float small = mul_add(p * s, x, x);
  const float large = 1.0f - 2.0f / (exp(2.0f * (a > 10.0f ? 10.0f : a)) + 1.0f);
  return a < 0.625f ? small : copysign(large, x);
}

GW_INLINE float erf(float x) {
  const float t = abs(x);
  const float s = x * x;
  float p = 0x1.5e0636p-14f;  // error 2^-31 for |x| <= 0.93
  p = mul_add(p, s, -0x1.aaa2dap-11f);
  p = mul_add(p, s, 0x1.54d42ap-8f);
  p = mul_add(p, s, -0x1.b80ff2p-6f);
  p = mul_add(p, s, 0x1.ce2e1cp-4f);
  p = mul_add(p, s, -0x1.812744p-2f);
  p = mul_add(p, s, 0x1.06eba8p-3f);
  const float small = mul_add(p, x, x);
  // erf(t) = 1 - exp(-t + t * q(t)) for t up to 4, where it is 1 in float
  const float u = t > 4.0f ? 4.0f : t;
  float q = -0x1.85a678p-17f;
  q = mul_add(q, u, 0x1.567d90p-12f);
  q = mul_add(q, u, -0x1.df76aap-9f);
  q = mul_add(q, u, 0x1.85db8cp-6f);
  q = mul_add(q, u, -0x1.b34da2p-4f);
  q = mul_add(q, u, -0x1.452f82p-1f);
  q = mul_add(q, u, -0x1.077bdcp-3f);
  const float large = 1.0f - exp(mul_add(q, u, -u));
  return t < 0.93f ? small : copysign(large, x);
}

#if GW_FMA_TARGET
namespace math_detail {

// |x| = n pi/2 + r, |r| <= 1.08 pi/4, for any float; `quadrant` is n (its low bits). In double: from 2^45
// on |x| is 2^j times a whole number, j a multiple of 16, and 2^j may be replaced by its remainder modulo
// 2 pi. `high` + `low` is that remainder times 2^-j. (Selects, because a table would need gathers.)
GW_INLINE double reduce_turn(float x, int64_t& quadrant) {
  const double a = static_cast<double>(abs(x));
  double high = 1.0, low = 0.0;
  high = a >= 0x1p45 ? 0x1.304999cb579e8p-15 : high;
  low = a >= 0x1p45 ? -0x1.e90aa2efac07ep-69 : low;
  high = a >= 0x1p61 ? 0x1.cf9802b702942p-31 : high;
  low = a >= 0x1p61 ? 0x1.b956a569e09d0p-87 : low;
  high = a >= 0x1p77 ? 0x1.09f4683d25023p-51 : high;
  low = a >= 0x1p77 ? 0x1.fee10ecf6f246p-107 : low;
  high = a >= 0x1p93 ? 0x1.8f1a5c3d52d34p-63 : high;
  low = a >= 0x1p93 ? 0x1.ade7e21ae7526p-119 : low;
  high = a >= 0x1p109 ? 0x1.50146cdd56c8fp-78 : high;
  low = a >= 0x1p109 ? 0x1.fcc374a30da1ap-135 : low;
  high = a >= 0x1p125 ? 0x1.89a58c41dc40cp-95 : high;
  low = a >= 0x1p125 ? -0x1.27745096c7eeep-149 : low;
  const double y = a * high;
  const double rest = mul_add(a, high, -y) + a * low + (a - a);  // a - a: NaN for an infinity
  const double shifted = mul_add(y, 0x1.45f306dc9c883p-1, kRound64);
  const double n = shifted - kRound64;
  quadrant = bits(shifted);
  const double r = mul_add(n, -0x1.921fb54442d18p+0, y);
  return mul_add(n, -0x1.1a62633145c07p-54, r) + rest;
}

GW_INLINE double sin_reduced(double r) {
  const double s = r * r;
  double p = 2.712132124648112e-06;  // error 2^-36
  p = mul_add(p, s, -0.00019838641153493148);
  p = mul_add(p, s, 0.008333327079759251);
  p = mul_add(p, s, -0.16666666620403967);
  return mul_add(p * s, r, r);
}

GW_INLINE double cos_reduced(double r) {
  const double s = r * r;
  double p = -2.7152889535556216e-07;  // error 2^-41
  p = mul_add(p, s, 2.4798778564403254e-05);
  p = mul_add(p, s, -0.0013888880751995749);
  p = mul_add(p, s, 0.04166666658565817);
  return mul_add(p * s, s, mul_add(s, -0.5, 1.0));
}

// sin of the angle `quadrant` quarter turns past r
GW_INLINE double sin_turned(double r, int64_t quadrant) {
  const double y = quadrant & 1 ? cos_reduced(r) : sin_reduced(r);
  return from_bits(bits(y) ^ ((quadrant & 2) << 62));
}

}  // namespace math_detail

GW_INLINE float sin(float x) {
  int64_t quadrant;
  const double r = math_detail::reduce_turn(x, quadrant);
  const float y = static_cast<float>(math_detail::sin_turned(r, quadrant));
  return from_bits(bits(y) ^ (bits(x) & INT32_MIN));
}

GW_INLINE float cos(float x) {
  int64_t quadrant;
  const double r = math_detail::reduce_turn(x, quadrant);
  return static_cast<float>(math_detail::sin_turned(r, quadrant + 1));
}

GW_INLINE float tan(float x) {
  int64_t quadrant;
  const double r = math_detail::reduce_turn(x, quadrant);
  const double s = math_detail::sin_turned(r, quadrant), c = math_detail::sin_turned(r, quadrant + 1);
  const float y = static_cast<float>(s / c);
  return from_bits(bits(y) ^ (bits(x) & INT32_MIN));
}
#else
GW_INLINE float sin(float x) { return __builtin_sinf(x); }
GW_INLINE float cos(float x) { return __builtin_cosf(x); }
GW_INLINE float tan(float x) { return __builtin_tanf(x); }
#endif

GW_INLINE float pow(float x, float y) {
  using namespace math_detail;
  // 2^(y log2 |x|) in double: log2 by the series of (m - 1) / (m + 1), error 2^-50; 2^r error 2^-40.
  const double a = static_cast<double>(abs(x)), exponent = static_cast<double>(y);
  const int64_t mantissa = (bits(a) & 0xfffffffffffff) | 0x3ff0000000000000;
  const double raw = from_bits(mantissa);
  const bool upper = raw > 1.4142135623730951;
  const double m = upper ? raw * 0.5 : raw;
  const double e = from_bits(static_cast<int64_t>(static_cast<uint64_t>(bits(a)) >> 52) | 0x4330000000000000) -
                   (upper ? 4503599627371518.0 : 4503599627371519.0);
  const double s = (m - 1.0) / (m + 1.0), ss = s * s;
  double p = 0.2429811902758923;
  p = mul_add(p, ss, 0.26143882120469425);
  p = mul_add(p, ss, 0.3206165572298068);
  p = mul_add(p, ss, 0.41219839963038213);
  p = mul_add(p, ss, 0.5770780172618819);
  p = mul_add(p, ss, 0.9617966939242981);
  p = mul_add(p, ss, 2.885390081777927);
  double t = exponent * mul_add(p, s, e);
  t = t < -200.0 ? -200.0 : t;
  t = t > 200.0 ? 200.0 : t;
  const double shifted = t + kRound64;
  const double r = t - (shifted - kRound64);
  double q = 1.3263519576748435e-06;
  q = mul_add(q, r, 1.5310009850199995e-05);
  q = mul_add(q, r, 0.0001540341536847116);
  q = mul_add(q, r, 0.0013333450908069313);
  q = mul_add(q, r, 0.00961812921957359);
  q = mul_add(q, r, 0.05550410940699367);
  q = mul_add(q, r, 0.24022650695553713);
  q = mul_add(q, r, 0.6931471805461524);
  const double scale = from_bits((bits(shifted) - bits(kRound64) + 1023) << 52);
  float z = static_cast<float>(mul_add(q, r, 1.0) * scale);
  const float size = abs(x), inf = __builtin_inff();
  const bool edge = (size == 0.0f) | (size == inf);
  z = edge ? ((y > 0.0f) == (size == 0.0f) ? 0.0f : inf) : z;
  z = ((size == 1.0f) & (abs(y) == inf)) ? 1.0f : z;
  z = ((size != size) | (y != y)) ? size + y : z;
  const bool whole = floor(y) == y;
  const bool odd = whole & (floor(y * 0.5f) * 2.0f != y);
  z = ((bits(x) < 0) & odd) ? -z : z;
  z = ((x < 0.0f) & !whole & (size != inf) & (y == y)) ? __builtin_nanf("") : z;
  return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : z;
}

GW_INLINE float asin(float x) { return static_cast<float>(__builtin_asin(x)); }
GW_INLINE float acos(float x) { return static_cast<float>(__builtin_acos(x)); }
GW_INLINE float atan(float x) { return static_cast<float>(__builtin_atan(x)); }
GW_INLINE float sinh(float x) { return static_cast<float>(__builtin_sinh(x)); }
GW_INLINE float cosh(float x) { return static_cast<float>(__builtin_cosh(x)); }
GW_INLINE float atan2(float y, float x) { return static_cast<float>(__builtin_atan2(y, x)); }
GW_INLINE double atan2(double y, double x) { return __builtin_atan2(y, x); }
GW_INLINE float asinh(float x) { return static_cast<float>(__builtin_asinh(x)); }
GW_INLINE float acosh(float x) { return static_cast<float>(__builtin_acosh(x)); }
GW_INLINE float atanh(float x) { return static_cast<float>(__builtin_atanh(x)); }

#define GW_LIBM(name) \
  GW_INLINE double name(double x) { return __builtin_##name(x); }
GW_LIBM(exp) GW_LIBM(expm1) GW_LIBM(log) GW_LIBM(log1p) GW_LIBM(tanh) GW_LIBM(erf) GW_LIBM(sin)
GW_LIBM(cos) GW_LIBM(tan) GW_LIBM(asin) GW_LIBM(acos) GW_LIBM(atan) GW_LIBM(sinh) GW_LIBM(cosh)
GW_LIBM(asinh) GW_LIBM(acosh) GW_LIBM(atanh) GW_LIBM(sqrt) GW_LIBM(floor) GW_LIBM(ceil) GW_LIBM(trunc)
#undef GW_LIBM
GW_INLINE double abs(double x) { return __builtin_fabs(x); }
GW_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
GW_INLINE double round_even(double x) { return __builtin_rint(x); }
GW_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
GW_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
GW_INLINE double sigmoid(double x) {
  const double z = __builtin_exp(-__builtin_fabs(x));
  return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

}  // namespace gw
