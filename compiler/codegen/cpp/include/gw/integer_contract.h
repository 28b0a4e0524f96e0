// The loop nest around the integer microkernels: row tiles x column panels, as contract.h has it for floats.
//
// Left operand: a `Source` that says where rows lie:
//   int64_t taps() const        upper bound of the pieces of a row
//   int64_t bytes() const       bytes of a row in all
//   Pieces fill(row0, rows, at) writes at[t * rows + r] for each piece t; all have one length, whole words
//                               unless there is one piece alone
//   const uint8_t* even(row0, &stride)  where the rows lie if they are `stride` bytes apart, in one piece; or null
//   bool copies() const         pieces are no whole words: rows are copied to lie in one piece
// Right operand: `IntegerPanels`, packed by integer_packing.py or pack_integer_panel below.
//
// With a_zero and b's zero points the sums of (a - a_zero) * (b - zero) are
//   sum of a * b  -  a_zero * sums[c]  -  zeros[c] * (sum of row r of a),   sums[c] = sum of (b - zero) of column c
// of which the first correction is where sums start and the second is added where zeros are not all 0.
//
// Epilogue: as in contract.h, of a tile of int32_t.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "integer_amx.h"
#include "pool.h"

namespace gw GW_HIDDEN {

// Words of a packed panel's column are a multiple of this, zeros after the last: what a step of the tile
// registers takes.
constexpr int64_t kPanelWords = kLanes == 16 ? 16 : 1;

constexpr int64_t round_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// sums and zeros [round_to(n, kLanes)] each, padded to 64 bytes together, then panels of kNR columns, the last
// one as narrow as a multiple of kLanes allows.
struct IntegerPanels {
  const int32_t* sums = nullptr;
  const int32_t* zeros = nullptr;  // null: all are 0
  const int8_t* data = nullptr;
  int64_t panel_bytes = 0;  // of a full panel
  int64_t n = 0;

  int64_t count() const { return (n + kNR - 1) / kNR; }

  static int64_t size(int64_t k, int64_t n) {
    const int64_t columns = round_to(n, kLanes);
    return round_to(8 * columns, 64) + columns * words(k) * kColumnBytes;
  }
  static int64_t words(int64_t k) { return round_to((k + 3) / 4, kPanelWords); }
  static IntegerPanels at(const void* packed, int64_t k, int64_t n, bool has_zeros) {
    const int64_t columns = round_to(n, kLanes);
    IntegerPanels p;
    p.sums = static_cast<const int32_t*>(packed);
    p.zeros = has_zeros ? p.sums + columns : nullptr;
    p.data = static_cast<const int8_t*>(packed) + round_to(8 * columns, 64);
    p.panel_bytes = kNR * words(k) * kColumnBytes;
    p.n = n;
    return p;
  }
};

struct Pieces {
  int64_t count;
  int64_t bytes;  // of each
};

constexpr int64_t kPieces = 4096;        // pointers of one row block (32 KiB of stack)
constexpr int64_t kWideRows = 96;        // rows of 16 bits that share one pass over the panels
constexpr int64_t kShare = 8;            // row tiles that share one pass over the panels
constexpr int64_t kSerialMacs = 1000000; // below this a second thread costs more than it brings
constexpr int64_t kUnitMacs = 500000;    // least work of one unit of the pool

// At least `bytes` bytes (64-byte aligned) of the calling thread, kept for the next call; slots are apart.
template <int Slot>
inline uint8_t* integer_scratch(int64_t bytes) {
  struct Kept {
    void* data = nullptr;
    int64_t size = 0;
    ~Kept() { free(data); }
  };
  static thread_local Kept kept;
  if (kept.size < bytes) {
    free(kept.data);
    kept.size = round_to(bytes, 4096);
    kept.data = aligned_alloc(64, static_cast<size_t>(kept.size));
    if (!kept.data) __builtin_trap();
  }
  return static_cast<uint8_t*>(kept.data);
}

namespace integer_detail {

// Rows [row0, row0 + rows) one after the other, `stride` bytes apart.
template <class Source>
inline void copy_rows(Source& source, int64_t row0, int64_t rows, const uint8_t** at, uint8_t* to,
                      int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const Pieces p = source.fill(row0 + r, 1, at);
    for (int64_t t = 0; t < p.count; ++t)
      memcpy(to + r * stride + t * p.bytes, at[t], static_cast<size_t>(p.bytes));
  }
}

inline void start_sums(const IntegerPanels& b, int64_t panel, int64_t columns, int32_t a_zero, int32_t* init) {
  const int32_t* sums = b.sums + panel * kNR;
  for (int64_t c = 0; c < columns; ++c)
    init[c] = static_cast<int32_t>(0u - static_cast<uint32_t>(a_zero) * static_cast<uint32_t>(sums[c]));
}

template <class Epi>
inline void finish(const IntegerPanels& b, int64_t panel, int32_t* tile, const int32_t* row_sums, int64_t batch,
                   int64_t row0, int64_t rows, int64_t col_base, const Epi& epi) {
  const int64_t col0 = panel * kNR;
  if (b.zeros) {
    const int32_t* GW_RESTRICT zeros = b.zeros + col0;
    const int64_t columns = round_to(b.n - col0 < kNR ? b.n - col0 : kNR, kLanes);
    for (int64_t r = 0; r < rows; ++r) {
      int32_t* GW_RESTRICT sums = tile + r * kNR;
      const uint32_t row = static_cast<uint32_t>(row_sums[r]);
      for (int64_t c = 0; c < columns; ++c)
        sums[c] = static_cast<int32_t>(static_cast<uint32_t>(sums[c]) - row * static_cast<uint32_t>(zeros[c]));
    }
  }
  const int32_t* done = tile;
  if (b.n - col0 >= kNR) {
    epi(done, kNR, batch, row0, rows, col_base + col0, kNR);
  } else if (b.n - col0 == kLanes) {
    epi(done, kNR, batch, row0, rows, col_base + col0, kLanes);
  } else {
    epi(done, kNR, batch, row0, rows, col_base + col0, b.n - col0);
  }
}

template <Left L>
inline int32_t sum_pieces(const uint8_t* const* at, int64_t step, Pieces p) {
  int32_t sum = 0;
  for (int64_t t = 0; t < p.count; ++t) sum += sum_elements<L>(at[t * step], p.bytes);
  return sum;
}

#if defined(GW_AMX)
template <Left L, class Source, class Epi>
inline void multiply_tiles(Source& source, const IntegerPanels& b, int32_t a_zero, int64_t m0, int64_t m1,
                           int64_t p0, int64_t p1, int64_t batch, int64_t col_base, const Epi& epi) {
  const uint8_t* at[kPieces];
  alignas(64) int32_t tile[kBlockRows * kNR];
  alignas(64) int32_t init[kNR];
  alignas(64) uint8_t tail[kBlockRows * kTileBytes];
  int32_t row_sums[kBlockRows];
  const int64_t bytes = source.bytes(), steps = (bytes + kTileBytes - 1) / kTileBytes;
  const int64_t copy_stride = steps * kTileBytes + kTileBytes;  // not a power of two
  const Tiles tiles;
  for (int64_t m = m0; m < m1; m += kBlockRows) {
    const int64_t rows = m1 - m < kBlockRows ? m1 - m : kBlockRows, half = rows <= kTileRows;
    TileRows a{nullptr, 0, tail, bytes / kTileBytes, steps};
    const uint8_t* first = rows == kBlockRows || rows == kTileRows ? source.even(m, &a.stride) : nullptr;
    if (first) {
      a.rows = first;
      if (a.full < steps) {
        memset(tail, 0, sizeof tail);
        for (int64_t r = 0; r < rows; ++r)
          memcpy(tail + r * kTileBytes, first + r * a.stride + a.full * kTileBytes,
                 static_cast<size_t>(bytes - a.full * kTileBytes));
      }
    } else {
      uint8_t* copy = integer_scratch<0>(kBlockRows * copy_stride);
      copy_rows(source, m, rows, at, copy, copy_stride);
      for (int64_t r = 0; r < rows; ++r)
        memset(copy + r * copy_stride + bytes, 0, static_cast<size_t>(steps * kTileBytes - bytes));
      a.rows = copy, a.stride = copy_stride, a.full = steps;
    }
    if (b.zeros) {
      for (int64_t r = 0; r < rows; ++r) row_sums[r] = sum_elements<L>(a.rows + r * a.stride, bytes);
    }
    for (int64_t panel = p0; panel < p1; ++panel) {
      const bool narrow = b.n - panel * kNR <= kLanes;
      start_sums(b, panel, narrow ? kLanes : kNR, a_zero, init);
      amx_of<L>(half, narrow)(a, b.data + panel * b.panel_bytes, init, tile);
      finish(b, panel, tile, row_sums, batch, m, rows, col_base, epi);
    }
  }
}

// The same for a left operand of 16 bits, whose high and low bytes are multiplied apart.
template <class Source, class Epi>
inline void multiply_wide_tiles(Source& source, const IntegerPanels& b, int32_t a_zero, int64_t m0, int64_t m1,
                                int64_t p0, int64_t p1, int64_t batch, int64_t col_base, const Epi& epi) {
  const uint8_t* at[kPieces];
  alignas(64) int32_t tile[kTileRows * kNR];
  alignas(64) int32_t high[kTileRows * kNR];
  alignas(64) int32_t init[kNR];
  const int64_t bytes = source.bytes(), steps = (bytes / 2 + kTileBytes - 1) / kTileBytes;
  const int64_t stride = steps * kTileBytes + kTileBytes;  // not a power of two
  // All rows are split once, so that each panel is read by all of them while it is in the cache.
  const int64_t shared = m1 - m0 < kWideRows ? round_to(m1 - m0, kTileRows) : kWideRows;
  uint8_t* planes = integer_scratch<0>(2 * shared * stride + bytes);
  int32_t row_sums[kWideRows];
  const Tiles tiles;
  for (int64_t m = m0; m < m1; m += kWideRows) {
    const int64_t rows = m1 - m < kWideRows ? m1 - m : kWideRows;
    for (int64_t r = 0; r < rows; ++r) {
      const Pieces pieces = source.fill(m + r, 1, at);
      const uint8_t* row = at[0];
      if (pieces.count > 1) {
        uint8_t* whole = planes + 2 * shared * stride;
        copy_rows(source, m + r, 1, at, whole, bytes);
        row = whole;
      }
      split_row(reinterpret_cast<const int16_t*>(row), bytes / 2, steps, planes + r * stride,
                planes + (shared + r) * stride);
      if (b.zeros) row_sums[r] = sum_elements<Left::S16>(row, bytes);
    }
    for (int64_t panel = p0; panel < p1; ++panel) {
      const bool narrow = b.n - panel * kNR <= kLanes;
      start_sums(b, panel, narrow ? kLanes : kNR, a_zero, init);
      for (int64_t r = 0; r < rows; r += kTileRows) {
        const int64_t some = rows - r < kTileRows ? rows - r : kTileRows;
        const auto multiply = narrow ? amx_wide_tile<true> : amx_wide_tile<false>;
        multiply(planes + r * stride, planes + (shared + r) * stride, stride, steps, b.data + panel * b.panel_bytes,
                 init, tile, high);
        finish(b, panel, tile, row_sums + r, batch, m + r, some, col_base, epi);
      }
    }
  }
}
#endif

template <Left L, class Source, class Epi>
inline void multiply_vectors(Source& source, const IntegerPanels& b, int32_t a_zero, int64_t m0, int64_t m1,
                             int64_t p0, int64_t p1, int64_t batch, int64_t col_base, const Epi& epi) {
  const uint8_t* at[kPieces];
  alignas(64) int32_t tile[kDotRows * kNR];
  alignas(64) int32_t init[kNR];
  int32_t row_sums[kShare * kDotRows];
  struct Tile {
    int64_t row0, rows;
    Pieces pieces;
  } block[kShare];
  const int64_t taps = source.taps(), bytes = source.bytes();
  const bool copies = source.copies() || taps * kDotRows > kPieces;
  int64_t share = copies ? 1 : kPieces / (taps * kDotRows);
  if (share > kShare) share = kShare;
  const int64_t tiles = (m1 - m0 + kDotRows - 1) / kDotRows;  // equal ones: a remainder costs nothing extra
  for (int64_t first = 0; first < tiles; first += share) {
    const int64_t count = tiles - first < share ? tiles - first : share;
    for (int64_t i = 0; i < count; ++i) {
      Tile& t = block[i];
      t.row0 = m0 + (m1 - m0) * (first + i) / tiles;
      t.rows = m0 + (m1 - m0) * (first + i + 1) / tiles - t.row0;
      const uint8_t** own = at + i * taps * kDotRows;
      if (copies) {
        uint8_t* copy = integer_scratch<0>(kDotRows * bytes);
        copy_rows(source, t.row0, t.rows, own, copy, bytes);
        for (int64_t r = 0; r < t.rows; ++r) own[r] = copy + r * bytes;
        t.pieces = {1, bytes};
      } else {
        t.pieces = source.fill(t.row0, t.rows, own);
      }
      if (b.zeros) {
        for (int64_t r = 0; r < t.rows; ++r)
          row_sums[i * kDotRows + r] = sum_pieces<L>(own + r, t.rows, t.pieces);
      }
    }
    for (int64_t panel = p0; panel < p1; ++panel) {
      const int64_t left = b.n - panel * kNR;
      const int nv = left >= kNR ? kNV : static_cast<int>((left + kLanes - 1) / kLanes);
      start_sums(b, panel, nv * kLanes, a_zero, init);
      for (int64_t i = 0; i < count; ++i) {
        const Tile& t = block[i];
        dot_table<L>.fn[t.rows - 1][nv - 1](t.pieces.count, t.pieces.bytes, at + i * taps * kDotRows,
                                            b.data + panel * b.panel_bytes, init, tile);
        finish(b, panel, tile, row_sums + i * kDotRows, batch, t.row0, t.rows, col_base, epi);
      }
    }
  }
}

}  // namespace integer_detail

// Rows [m0, m1) x panels [p0, p1) on the calling thread. `col_base` is added to the column numbers.
template <Left L, class Source, class Epi>
inline void multiply_integers(Source source, const IntegerPanels& b, int32_t a_zero, int64_t m0, int64_t m1,
                              int64_t p0, int64_t p1, int64_t batch, int64_t col_base, const Epi& epi) {
#if defined(GW_AMX)
  if (m1 - m0 >= 4 && source.bytes() >= 32 && has_amx()) {
    if constexpr (L == Left::S16) {
      return integer_detail::multiply_wide_tiles(source, b, a_zero, m0, m1, p0, p1, batch, col_base, epi);
    } else {
      return integer_detail::multiply_tiles<L>(source, b, a_zero, m0, m1, p0, p1, batch, col_base, epi);
    }
  }
#endif
  integer_detail::multiply_vectors<L>(source, b, a_zero, m0, m1, p0, p1, batch, col_base, epi);
}

// One of `count` products of equal sizes (groups of a convolution).
template <class Source>
struct IntegerJob {
  Source rows;
  IntegerPanels panels;
  int64_t col_base;
};

// Jobs 0 .. count - 1 over the pool, each m rows x n columns x k elements.
template <Left L, class JobOf, class Epi>
inline void multiply_integers_parallel(int64_t count, int64_t m, int64_t n, int64_t k, int32_t a_zero,
                                       const JobOf& job, const Epi& epi, const gw_pool* pool) {
  if (m <= 0 || n <= 0 || count <= 0) return;
  const int64_t threads = thread_count(pool), panels = (n + kNR - 1) / kNR;
  const double each = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k > 0 ? k : 1);
  int64_t row_blocks = 1, panel_blocks = 1, grain = count;
  if (threads > 1 && each * static_cast<double>(count) >= kSerialMacs) {
    // Enough units for the threads to even out, none below kUnitMacs: rows first, unless they are few.
    int64_t units = (threads * 4 + count - 1) / count;
    if (each < static_cast<double>(units) * kUnitMacs) units = static_cast<int64_t>(each / kUnitMacs);
    const int64_t blocks = (m + 31) / 32;
    if (units > 1 && blocks >= threads) {
      row_blocks = blocks < units ? blocks : units;
    } else if (units > 1) {
      panel_blocks = panels < units ? panels : units;
    }
    grain = each / static_cast<double>(row_blocks * panel_blocks) < kUnitMacs && row_blocks * panel_blocks == 1
                ? static_cast<int64_t>(kUnitMacs / each) + 1
                : 1;
  }
  parallel_for(pool, count * row_blocks * panel_blocks, grain,
               [&](int64_t begin, int64_t end, int) {
    while (begin < end) {
      // Units of one job and panel block that follow each other are one range of rows.
      const int64_t row = begin % row_blocks, rest = begin / row_blocks;
      const int64_t column = rest % panel_blocks, which = rest / panel_blocks;
      const int64_t row_end = row + (end - begin) < row_blocks ? row + (end - begin) : row_blocks;
      // Cut at multiples of 32 rows, which whole blocks of tiles have.
      const auto cut = [&](int64_t i) { return i == row_blocks ? m : m * i / row_blocks / 32 * 32; };
      const auto j = job(which);
      multiply_integers<L>(j.rows, j.panels, a_zero, cut(row), cut(row_end), panels * column / panel_blocks,
                           panels * (column + 1) / panel_blocks, 0, j.col_base, epi);
      begin += row_end - row;
    }
  });
}

}  // namespace gw
