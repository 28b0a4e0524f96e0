// Batched product of two activations of bytes with arbitrary strides, as matmul.h has it for floats:
//
//   C[i][r][c] = sum over k: (A[i][r][k] - a_zero) * (B[i][k][c] - b_zero),   i over up to 4 batch axes
//
// The right operand is packed at run time, a panel at a time, into memory of the calling thread; the left one is
// read in place when its k stride is 1, else copied. Zero points are one number each.
#pragma once
#include "integer_gemm.h"

namespace gw GW_HIDDEN {

struct IntegerMatmul {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_k = 1, b_k = 0, b_col = 1;  // strides in elements (bytes)
  int64_t batch[4] = {1, 1, 1, 1};                 // outermost first
  int64_t a_batch[4] = {0, 0, 0, 0}, b_batch[4] = {0, 0, 0, 0};  // 0: broadcast
  int32_t a_zero = 0, b_zero = 0;
};

// Rows whose elements are a_k bytes apart.
struct SpacedSource {
  const uint8_t* a;
  int64_t row, apart, length;
  uint8_t* copy;  // of a block of rows
  int64_t taps() const { return 1; }
  int64_t bytes() const { return length; }
  bool copies() const { return false; }
  const uint8_t* even(int64_t row0, int64_t* stride) const {
    *stride = row;
    return apart == 1 ? a + row0 * row : nullptr;
  }
  Pieces fill(int64_t row0, int64_t rows, const uint8_t** at) const {
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* from = a + (row0 + r) * row;
      if (apart != 1) {
        uint8_t* to = copy + (row0 + r) % kCopied * length;
        for (int64_t i = 0; i < length; ++i) to[i] = from[i * apart];
        from = to;
      }
      at[r] = from;
    }
    return {1, length};
  }
  static constexpr int64_t kCopied = kShare * kDotRows;
};

namespace integer_detail {

// Columns [0, cols) of b as one panel with its column sums: bytes xor `flip`, `zero` in terms of those.
template <Left L>
inline void pack_integer_panel(const uint8_t* b, int64_t b_k, int64_t b_col, int64_t k, int64_t cols, uint8_t flip,
                               int32_t zero, int64_t width, int64_t words, int8_t* to, int32_t* sums) {
  const uint32_t flips = 0x01010101u * flip;
  for (int64_t c = 0; c < width; ++c) sums[c] = 0;
  uint8_t* out = reinterpret_cast<uint8_t*>(to);
  memset(out, 0, static_cast<size_t>(words * width * 4));
  for (int64_t w = 0; w < words; ++w, out += width * 4) {
    const int64_t first = 4 * w, count = k - first < 4 ? k - first : 4;
    if (count <= 0) break;
    const uint8_t* from = b + first * b_k;
    if (count == 4 && b_k == 1) {
      for (int64_t c = 0; c < cols; ++c) {
        uint32_t word;
        memcpy(&word, from + c * b_col, 4);
        word ^= flips;
        memcpy(out + 4 * c, &word, 4);
      }
    } else if (count == 4 && b_col == 1) {
      for (int64_t c = 0; c < cols; ++c) {
        uint32_t word = from[c] | static_cast<uint32_t>(from[b_k + c]) << 8 |
                        static_cast<uint32_t>(from[2 * b_k + c]) << 16 | static_cast<uint32_t>(from[3 * b_k + c]) << 24;
        word ^= flips;
        memcpy(out + 4 * c, &word, 4);
      }
    } else {
      for (int64_t c = 0; c < cols; ++c) {
        for (int64_t i = 0; i < count; ++i) out[4 * c + i] = from[i * b_k + c * b_col] ^ flip;
      }
    }
  }
  // A left operand of ones gives the sums; u8 ones meet signed, i8 ones unsigned bytes.
  const Bytes<L> ones = left_bytes<L>(splat_integer(0x01010101));
  for (int64_t c = 0; c < width; c += kLanes) {
    vi total = splat_integer(static_cast<int32_t>(0u - static_cast<uint32_t>(zero) * static_cast<uint32_t>(k)));
    for (int64_t w = 0; w < words; ++w) total = add_products<L>(total, ones, right_bytes<L>(to + (w * width + c) * 4));
    store_integers(sums + c, total);
  }
}

}  // namespace integer_detail

// RightSigned: b is i8, else u8.
template <Left L, bool RightSigned, class Epi>
inline void integer_matmul(const IntegerMatmul& g, const Epi& epi, const gw_pool* pool) {
  using namespace integer_detail;
  static_assert(L != Left::S16, "16-bit activations meet constant weights");
  int64_t count = 1;
  for (int64_t extent : g.batch) count *= extent;
  if (g.m <= 0 || g.n <= 0 || count <= 0) return;
  // Packed bytes are signed for a u8 left operand, unsigned for an i8 one.
  constexpr bool flipped = RightSigned != (L == Left::U8);
  const uint8_t flip = flipped ? 0x80 : 0;
  const int32_t zero = flipped ? g.b_zero + (RightSigned ? 128 : -128) : g.b_zero;
  const int64_t panels = (g.n + kNR - 1) / kNR, words = IntegerPanels::words(g.k);
  const double macs = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const int64_t threads = thread_count(pool);
  // Row splits repeat the packing, so they come last: batches, then panels, then rows.
  int64_t row_blocks = 1;
  if (count * panels < threads && macs > kSerialMacs) {
    row_blocks = (threads + count * panels - 1) / (count * panels);
    const int64_t tiles = (g.m + 31) / 32;
    if (row_blocks > tiles) row_blocks = tiles;
  }
  const double each = macs / static_cast<double>(panels) / static_cast<double>(row_blocks);
  const int64_t grain = each > 0 ? static_cast<int64_t>(kUnitMacs / each) + 1 : count * panels;
  const int64_t panel_bytes = words * kNR * 4, copied = g.a_k == 1 ? 0 : SpacedSource::kCopied * g.k;

  parallel_for(pool, count * panels * row_blocks, grain, [&](int64_t begin, int64_t end, int) {
    uint8_t* own = integer_scratch<1>(round_to(panel_bytes, 64) + copied);
    int8_t* packed = reinterpret_cast<int8_t*>(own);
    alignas(64) int32_t sums[kNR], zeros[kNR];
    for (int32_t& z : zeros) z = zero;
    int64_t packed_unit = -1;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t block = unit % row_blocks, panel = unit / row_blocks % panels;
      const int64_t which = unit / row_blocks / panels;
      const uint8_t *a = static_cast<const uint8_t*>(g.a), *b = static_cast<const uint8_t*>(g.b);
      int64_t rest = which;
      for (int i = 3; i >= 0; --i) {
        a += rest % g.batch[i] * g.a_batch[i];
        b += rest % g.batch[i] * g.b_batch[i];
        rest /= g.batch[i];
      }
      const int64_t col0 = panel * kNR, cols = g.n - col0 < kNR ? g.n - col0 : kNR;
      if (packed_unit != unit / row_blocks) {
        packed_unit = unit / row_blocks;
        pack_integer_panel<L>(b + col0 * g.b_col, g.b_k, g.b_col, g.k, cols, flip, zero, round_to(cols, kLanes),
                              words, packed, sums);
      }
      IntegerPanels p;
      p.sums = sums, p.zeros = zero ? zeros : nullptr, p.data = packed, p.panel_bytes = panel_bytes, p.n = cols;
      const auto cut = [&](int64_t i) { return i == row_blocks ? g.m : g.m * i / row_blocks / 32 * 32; };
      multiply_integers<L>(SpacedSource{a, g.a_row, g.a_k, g.k, own + round_to(panel_bytes, 64)}, p, g.a_zero,
                           cut(block), cut(block + 1), 0, 1, which, col0, epi);
    }
  });
}

}  // namespace gw
