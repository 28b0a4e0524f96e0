// Loops over gw/math.h that test_math.py measures; GCC and clang must vectorise those named v_*.
#include "gw/math.h"
#include "gw/runtime.h"

#define UNARY(name)                                                                              \
  extern "C" GW_EXPORT void v_##name(void* const* p, const int64_t* s, const gw_pool*) {         \
    const float* GW_RESTRICT x = static_cast<const float*>(p[0]);                                \
    float* GW_RESTRICT y = static_cast<float*>(p[1]);                                            \
    for (int64_t i = 0, n = s[0]; i < n; ++i) y[i] = gw::name(x[i]);                             \
  }                                                                                              \
  [[maybe_unused]] static double reference_##name(double x, double) { return gw::name(x); }

#define BINARY(name)                                                                             \
  extern "C" GW_EXPORT void v_##name(void* const* p, const int64_t* s, const gw_pool*) {         \
    const float* GW_RESTRICT x = static_cast<const float*>(p[0]);                                \
    const float* GW_RESTRICT z = static_cast<const float*>(p[2]);                                \
    float* GW_RESTRICT y = static_cast<float*>(p[1]);                                            \
    for (int64_t i = 0, n = s[0]; i < n; ++i) y[i] = gw::name(x[i], z[i]);                       \
  }

UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(tanh)
UNARY(sigmoid)
UNARY(erf)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(sin)
UNARY(cos)
UNARY(tan)
UNARY(floor)
UNARY(ceil)
UNARY(trunc)
UNARY(round_even)
UNARY(relu)
BINARY(pow)
BINARY(maximum)
BINARY(minimum)
static double reference_pow(double x, double y) { return gw::pow(x, y); }

typedef void (*loop)(void* const*, const int64_t*, const gw_pool*);
struct Entry {
  loop run;
  double (*reference)(double, double);
};
#define ENTRY(name) {v_##name, reference_##name}
static const Entry kEntries[] = {ENTRY(exp), ENTRY(expm1), ENTRY(log), ENTRY(log1p), ENTRY(tanh),
                                 ENTRY(sigmoid), ENTRY(erf), ENTRY(sqrt), ENTRY(rsqrt), ENTRY(sin),
                                 ENTRY(cos), ENTRY(tan), ENTRY(floor), ENTRY(ceil), ENTRY(trunc),
                                 ENTRY(round_even), ENTRY(pow)};

static double ulps(float y, double exact) {
  const float rounded = static_cast<float>(exact);
  if (rounded != rounded || y != y) return (rounded != rounded) == (y != y) ? 0.0 : 1e30;
  if (rounded == y) return __builtin_signbit(rounded) == __builtin_signbit(y) ? 0.0 : 1e30;
  if (__builtin_isinf(rounded)) return y == __builtin_copysignf(3.40282347e38f, rounded) ? 1.0 : 1e30;
  int exponent;
  __builtin_frexp(exact == 0.0 ? 1e-300 : exact, &exponent);
  const double unit = __builtin_ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
  return __builtin_fabs(static_cast<double>(y) - exact) / unit;
}

// p: float worst_x[2], double worst_ulps[1]; s: function, first, stride, count, second operand's multiplier.
// Goes through float bit patterns first + i * stride; the reference is libm in double.
extern "C" GW_EXPORT void worst_error(void* const* p, const int64_t* s, const gw_pool*) {
  const Entry& e = kEntries[s[0]];
  float* at = static_cast<float*>(p[0]);
  double worst = -1.0;
  constexpr int64_t kBlock = 1024;
  alignas(64) float x[kBlock], y[kBlock], z[kBlock];
  for (int64_t i = 0; i < s[3]; i += kBlock) {
    for (int64_t j = 0; j < kBlock; ++j) {
      const uint32_t pattern = static_cast<uint32_t>(s[1] + (i + j) * s[2]);
      __builtin_memcpy(&x[j], &pattern, 4);
      const uint32_t second = pattern * static_cast<uint32_t>(s[4]);
      __builtin_memcpy(&y[j], &second, 4);
    }
    void* pointers[] = {x, z, y};
    const int64_t n = kBlock;
    e.run(pointers, &n, nullptr);
    for (int64_t j = 0; j < kBlock; ++j) {
      const double error = ulps(z[j], e.reference(x[j], y[j]));
      if (error > worst) worst = error, at[0] = x[j], at[1] = y[j];
    }
  }
  *static_cast<double*>(p[1]) = worst;
}
