// Element types below 16 bits: 8-bit and 4-bit floats by their codes, packed 4-bit and 2-bit elements.
// Arithmetic is in float (int8_t, uint8_t for the integers); `to_` rounds to nearest even.
#pragma once
#include <stdint.h>

#include <type_traits>

#include "loops.h"

namespace gw GW_HIDDEN {
namespace small_detail {

// M mantissa bits, exponent bias; the largest finite code. `nan_code`: without a sign where only one exists.
template <int M, int Bias>
GW_INLINE float decode(uint32_t magnitude) {
  // The code's bits as those of a float that is 2^(127 - Bias) too small, subnormal ones included.
  return bits_float(magnitude << (23 - M)) * bits_float(static_cast<uint32_t>(254 - Bias) << 23);
}

// The code of |x| rounded to nearest even, beyond the largest exponent too; x is finite.
template <int M, int Bias>
GW_INLINE uint32_t encode(uint32_t magnitude) {
  constexpr uint32_t least = static_cast<uint32_t>(128 - Bias) << 23;  // the smallest normal number
  const uint32_t half = (1u << (22 - M)) - 1u + ((magnitude >> (23 - M)) & 1u);
  const uint32_t normal = ((magnitude + half) >> (23 - M)) - (static_cast<uint32_t>(127 - Bias) << M);
  // Adding 2^(24 - Bias - M) leaves a subnormal, rounded, in the low bits of the sum.
  constexpr uint32_t shifter = static_cast<uint32_t>(127 + 24 - Bias - M) << 23;
  const uint32_t tiny = float_bits(bits_float(magnitude) + bits_float(shifter)) - shifter;
  return magnitude < least ? tiny : normal;
}

template <int M, int Bias, uint32_t Most, uint32_t Infinite, uint32_t Nan>
GW_INLINE uint8_t encode_signed(float x, bool saturate) {
  const uint32_t u = float_bits(x), magnitude = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(Nan | sign);
  const uint32_t code = magnitude == 0x7f800000u ? Most + 1 : encode<M, Bias>(magnitude);
  return static_cast<uint8_t>((code > Most ? (saturate ? Most : Infinite) : code) | sign);
}

// No negative zero; 0x80 is the only NaN, and what is infinite becomes it.
template <int M, int Bias>
GW_INLINE uint8_t encode_fnuz(float x, bool saturate) {
  const uint32_t u = float_bits(x), magnitude = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return 0x80u;
  const uint32_t code = magnitude == 0x7f800000u ? 0x80u : encode<M, Bias>(magnitude);
  if (code > 0x7fu) return static_cast<uint8_t>(saturate ? 0x7fu | sign : 0x80u);
  return static_cast<uint8_t>(code ? code | sign : 0u);
}

template <int M, int Bias>
GW_INLINE float decode_fnuz(uint8_t h) {
  const float x = decode<M, Bias>(h & 0x7fu);
  return h == 0x80u ? __builtin_nanf("") : (h & 0x80u ? -x : x);
}

}  // namespace small_detail

GW_INLINE float from_f8e4m3fn(uint8_t h) {
  const float x = (h & 0x7fu) == 0x7fu ? __builtin_nanf("") : small_detail::decode<3, 7>(h & 0x7fu);
  return h & 0x80u ? -x : x;
}
GW_INLINE uint8_t to_f8e4m3fn(float x, bool saturate = false) {
  return small_detail::encode_signed<3, 7, 0x7e, 0x7f, 0x7f>(x, saturate);
}
GW_INLINE float from_f8e5m2(uint8_t h) {
  const uint32_t m = h & 0x7fu;
  const float big = m == 0x7cu ? __builtin_inff() : __builtin_nanf("");
  const float x = m >= 0x7cu ? big : small_detail::decode<2, 15>(m);
  return h & 0x80u ? -x : x;
}
GW_INLINE uint8_t to_f8e5m2(float x, bool saturate = false) {
  return small_detail::encode_signed<2, 15, 0x7b, 0x7c, 0x7e>(x, saturate);
}
GW_INLINE float from_f8e4m3fnuz(uint8_t h) { return small_detail::decode_fnuz<3, 8>(h); }
GW_INLINE uint8_t to_f8e4m3fnuz(float x, bool saturate = false) {
  return small_detail::encode_fnuz<3, 8>(x, saturate);
}
GW_INLINE float from_f8e5m2fnuz(uint8_t h) { return small_detail::decode_fnuz<2, 16>(h); }
GW_INLINE uint8_t to_f8e5m2fnuz(float x, bool saturate = false) {
  return small_detail::encode_fnuz<2, 16>(x, saturate);
}

// A power of two: the code is its exponent plus 127, 255 is NaN. Ties go up; without `saturate` what is not
// positive or too large becomes NaN.
GW_INLINE float from_f8e8m0fnu(uint8_t h) {
  const uint32_t bits = h ? static_cast<uint32_t>(h) << 23 : 0x400000u;
  return h == 255u ? __builtin_nanf("") : bits_float(bits);
}
GW_INLINE uint8_t to_f8e8m0fnu(float x, bool saturate = false) {
  if (x != x) return 255u;
  if (saturate) x = x > 0x1p127f ? 0x1p127f : (x > 0x1p-127f ? x : 0x1p-127f);
  if (!(x > 0.0f)) return 255u;
  const uint32_t u = float_bits(x);
  const uint32_t code = u < 0x800000u ? (u >= 0x600000u ? 1u : 0u) : (u + 0x400000u) >> 23;
  return static_cast<uint8_t>(code > 255u ? 255u : code);
}

// 4-bit floats have neither infinities nor NaN: the largest is 6, NaN becomes -0.
GW_INLINE float from_f4e2m1fn(uint8_t h) {
  const float x = small_detail::decode<1, 1>(h & 7u);
  return h & 8u ? -x : x;
}
GW_INLINE uint8_t to_f4e2m1fn(float x, bool = true) {
  const uint32_t u = float_bits(x), magnitude = u & 0x7fffffffu, sign = (u >> 28) & 8u;
  if (magnitude > 0x7f800000u) return 8u;
  const uint32_t code = magnitude >= 0x40c00000u ? 7u : small_detail::encode<1, 1>(magnitude);
  return static_cast<uint8_t>((code > 7u ? 7u : code) | sign);
}

// 4-bit elements lie two a byte, 2-bit ones four, the first one in the low bits.
GW_INLINE uint8_t load_u2(const uint8_t* p, int64_t i) {
  return static_cast<uint8_t>(p[i >> 2] >> ((i & 3) * 2)) & 3u;
}
GW_INLINE int8_t load_i2(const uint8_t* p, int64_t i) {
  return static_cast<int8_t>(static_cast<int8_t>(load_u2(p, i) << 6) >> 6);
}

// What an integer type of N bits keeps of an integer: its low bits; of a float: the nearest it has.
template <int N, bool Signed, class T>
GW_INLINE auto wrap_bits(T x) {
  using To = std::conditional_t<Signed, int8_t, uint8_t>;
  const uint32_t low = static_cast<uint32_t>(x) << (32 - N);
  if constexpr (Signed) return static_cast<To>(static_cast<int32_t>(low) >> (32 - N));
  else return static_cast<To>(low >> (32 - N));
}
template <int N, bool Signed, class T>
GW_INLINE auto limit_bits(T x) {
  using To = std::conditional_t<Signed, int8_t, uint8_t>;
  constexpr T least = Signed ? static_cast<T>(-(1 << (N - 1))) : T(0);
  constexpr T most = static_cast<T>((1 << (Signed ? N - 1 : N)) - 1);
  const T inside = x < least ? least : (x > most ? most : x);
  return x != x ? To(0) : static_cast<To>(inside);
}

}  // namespace gw
