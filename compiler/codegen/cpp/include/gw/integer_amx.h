// Sums of products of bytes by the tile registers of AMX (Intel 64 and IA-32 Architectures Software
// Developer's Manual, TDPBUSD): used beside integer_dot.h by what is built for VNNI, where the processor has
// them and the system lets the process use them, asked once. The sums are the same bits.
//
// GRAPHWRIGHT_AMX=0 in the environment rules them out.
#pragma once
#include "integer_dot.h"

#if defined(GW_VNNI) && defined(__linux__) && defined(__x86_64__)
#define GW_AMX 1
#include <cpuid.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gw GW_HIDDEN {

constexpr int64_t kTileRows = 16, kTileBytes = 64;
constexpr int64_t kBlockRows = 32;                  // rows of a block: two tiles
constexpr int64_t kStepWords = kTileBytes / 4;      // words along k of one step

inline bool has_amx() {
  static const bool found = [] {
    const char* asked = getenv("GRAPHWRIGHT_AMX");
    if (asked && asked[0] == '0') return false;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d >> 24 & 1) || !(d >> 25 & 1)) return false;  // AMX-TILE, AMX-INT8
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return found;
}

// The tile registers are set up as long as one of these lives on the thread.
class Tiles {
 public:
  __attribute__((target("amx-tile"))) Tiles() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((target("amx-tile"))) ~Tiles() { __asm__ volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

#define GW_TILE_LOAD(t, p, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"(static_cast<int64_t>(stride)) : "memory")
#define GW_TILE_STORE(t, p, stride) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"(static_cast<int64_t>(stride)) : "memory")
#define GW_TILE_ADD(signs, c, a, b) \
  __asm__ volatile("tdp" signs " %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

// Left operand of a block: `steps` steps of 64 bytes a row, of which the first `full` lie in the rows themselves
// and the last one, if it is not full, in `tail` ([32][64], zero padded).
struct TileRows {
  const uint8_t* rows;
  int64_t stride;
  const uint8_t* tail;
  int64_t full, steps;
};

// tile[32][kNR] = init + rows times a panel of kNR columns ([words][kNR][4], words a multiple of 16).
// Half: only the first 16 rows.  Narrow: a panel of kLanes columns.
template <Left L, bool Half, bool Narrow>
__attribute__((target("amx-tile,amx-int8"))) GW_NOINLINE void amx_tile(const TileRows& a, const int8_t* panel,
                                                                      const int32_t* init, int32_t* tile) {
  constexpr int64_t kPanelStride = Narrow ? 64 : 128;
  GW_TILE_LOAD(0, init, 0);
  if (!Narrow) GW_TILE_LOAD(1, init + kLanes, 0);
  if (!Half) GW_TILE_LOAD(2, init, 0);
  if (!Half && !Narrow) GW_TILE_LOAD(3, init + kLanes, 0);
  for (int64_t s = 0; s < a.steps; ++s, panel += kStepWords * kPanelStride) {
    const uint8_t* from = s < a.full ? a.rows + s * kTileBytes : a.tail;
    const int64_t stride = s < a.full ? a.stride : kTileBytes;
    GW_TILE_LOAD(4, from, stride);
    GW_TILE_LOAD(6, panel, kPanelStride);
    if (!Narrow) GW_TILE_LOAD(7, panel + 64, kPanelStride);
    if (!Half) GW_TILE_LOAD(5, from + kTileRows * stride, stride);
    if constexpr (L == Left::U8) {
      GW_TILE_ADD("busd", 0, 4, 6);
      if (!Narrow) GW_TILE_ADD("busd", 1, 4, 7);
      if (!Half) GW_TILE_ADD("busd", 2, 5, 6);
      if (!Half && !Narrow) GW_TILE_ADD("busd", 3, 5, 7);
    } else {
      GW_TILE_ADD("bsud", 0, 4, 6);
      if (!Narrow) GW_TILE_ADD("bsud", 1, 4, 7);
      if (!Half) GW_TILE_ADD("bsud", 2, 5, 6);
      if (!Half && !Narrow) GW_TILE_ADD("bsud", 3, 5, 7);
    }
  }
  GW_TILE_STORE(0, tile, kNR * 4);
  if (!Narrow) GW_TILE_STORE(1, tile + kLanes, kNR * 4);
  if (!Half) GW_TILE_STORE(2, tile + kTileRows * kNR, kNR * 4);
  if (!Half && !Narrow) GW_TILE_STORE(3, tile + kTileRows * kNR + kLanes, kNR * 4);
}

// tile[16][kNR] = init + 16 rows of 16-bit elements times a panel, the elements' low and high bytes apart ([16] rows
// of `steps` steps each, `stride` bytes apart, the bytes of a word in the order of the panel's).  `high`: scratch.
template <bool Narrow>
__attribute__((target("amx-tile,amx-int8"))) GW_NOINLINE void amx_wide_tile(
    const uint8_t* low_rows, const uint8_t* high_rows, int64_t stride, int64_t steps, const int8_t* panel,
    const int32_t* init, int32_t* tile, int32_t* high) {
  constexpr int64_t kPanelStride = Narrow ? 64 : 128;
  GW_TILE_LOAD(0, init, 0);
  if (!Narrow) GW_TILE_LOAD(1, init + kLanes, 0);
  __asm__ volatile("tilezero %%tmm2" ::: "memory");
  if (!Narrow) __asm__ volatile("tilezero %%tmm3" ::: "memory");
  for (int64_t s = 0; s < steps; ++s, panel += kStepWords * kPanelStride) {
    GW_TILE_LOAD(4, low_rows + s * kTileBytes, stride);
    GW_TILE_LOAD(5, high_rows + s * kTileBytes, stride);
    GW_TILE_LOAD(6, panel, kPanelStride);
    if (!Narrow) GW_TILE_LOAD(7, panel + 64, kPanelStride);
    GW_TILE_ADD("busd", 0, 4, 6);
    GW_TILE_ADD("bssd", 2, 5, 6);
    if (!Narrow) GW_TILE_ADD("busd", 1, 4, 7);
    if (!Narrow) GW_TILE_ADD("bssd", 3, 5, 7);
  }
  GW_TILE_STORE(0, tile, kNR * 4);
  GW_TILE_STORE(2, high, kNR * 4);
  if (!Narrow) GW_TILE_STORE(1, tile + kLanes, kNR * 4);
  if (!Narrow) GW_TILE_STORE(3, high + kLanes, kNR * 4);
  for (int64_t r = 0; r < kTileRows; ++r) {
    for (int64_t v = 0; v < (Narrow ? 1 : kNV); ++v) {
      int32_t* sums = tile + r * kNR + v * kLanes;
      store_integers(sums, load_integers(sums) + (load_integers(high + r * kNR + v * kLanes) << 8));
    }
  }
}

// The low and the high bytes of a row of k elements, zeros behind them up to whole steps, the two in the middle of
// each word exchanged as packing does with weights of a 16-bit left operand.
GW_INLINE void split_row(const int16_t* row, int64_t k, int64_t steps, uint8_t* low, uint8_t* high) {
  const __m128i words = _mm_set_epi32(0x0F0D0E0C, 0x0B090A08, 0x07050604, 0x03010200);
  const __m256i exchange = _mm256_broadcastsi128_si256(words);
  for (int64_t i = 0; i < steps * kTileBytes; i += 32) {
    __m512i x = _mm512_setzero_si512();
    if (i + 32 <= k) {
      x = _mm512_loadu_si512(row + i);
    } else if (i < k) {
      x = _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << (k - i)) - 1), row + i);
    }
    const __m256i lows = _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(x), exchange);
    const __m256i highs = _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(_mm512_srai_epi16(x, 8)), exchange);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low + i), lows);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high + i), highs);
  }
}

typedef void (*amx_fn)(const TileRows&, const int8_t*, const int32_t*, int32_t*);

template <Left L>
inline amx_fn amx_of(bool half, bool narrow) {
  if (half) return narrow ? amx_tile<L, true, true> : amx_tile<L, true, false>;
  return narrow ? amx_tile<L, false, true> : amx_tile<L, false, false>;
}

}  // namespace gw

#undef GW_TILE_LOAD
#undef GW_TILE_STORE
#undef GW_TILE_ADD
#endif
