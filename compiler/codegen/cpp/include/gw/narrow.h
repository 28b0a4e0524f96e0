// Between small integers in memory and 32 bits in registers, a few at a time: what epilogues do before and behind a
// loop of one width. Values to be narrowed are within the range of the type.
#pragma once
#include <stdint.h>

#include <type_traits>

#include "simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gw GW_HIDDEN {

template <class T>
GW_INLINE void narrow(T* to, const int32_t* from, int64_t n) {
  static_assert(sizeof(T) <= 2, "int8_t, uint8_t or int16_t");
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m512i x = _mm512_loadu_si512(from + i);
    if constexpr (sizeof(T) == 1) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(x));
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_cvtepi32_epi16(x));
    }
  }
#elif defined(__AVX2__)
  for (; i + 16 <= n; i += 16) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 8));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    if constexpr (sizeof(T) == 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), both);
    } else {
      const __m128i low = _mm256_castsi256_si128(both), high = _mm256_extracti128_si256(both, 1);
      const __m128i bytes = std::is_signed_v<T> ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bytes);
    }
  }
#endif
  for (; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

template <class T>
GW_INLINE void widen(int32_t* to, const T* from, int64_t n) {
  static_assert(sizeof(T) <= 2, "int8_t, uint8_t or int16_t");
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    __m512i x;
    if constexpr (sizeof(T) == 2) {
      x = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    } else {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      x = std::is_signed_v<T> ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    }
    _mm512_storeu_si512(to + i, x);
  }
#elif defined(__AVX2__)
  for (; i + 8 <= n; i += 8) {
    __m256i x;
    if constexpr (sizeof(T) == 2) {
      x = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    } else {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
      x = std::is_signed_v<T> ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), x);
  }
#endif
  for (; i < n; ++i) to[i] = from[i];
}

}  // namespace gw
