// The loop nest around the microkernel, shared by gemm.h, conv.h and matmul.h: row tiles x column panels.
//
// Left operand: a `Rows` object that says where the rows of a tile start (see micro.h for taps):
//   int64_t taps() const            upper bound of the taps of a tile
//   int64_t segment() const         tiles never cross a multiple of this row number (an output row, say)
//   static constexpr int64_t kScratch   floats of stack that fill() may use for one tile (0: none)
//   bool shareable() const          fill() leaves the scratch alone, so several tiles may be open at once
//   Taps fill(row0, rows, tap0, tap1, const float** at, int64_t* koff, float* scratch)
//       writes at[t * rows + r] and koff[t] for the taps of [tap0, tap1) that matter; returns their
//       number and the run length. Not const: each job has its own copy, which may remember where it was.
// Right operand: `Panels`, packed at compile time.
// Epilogue: epi(tile, ld, batch, row0, rows, col0, cols), called once a finished tile, on any thread.
//   tile[r * ld + c] is the sum for row row0 + r, column col0 + c; ld is a compile-time constant after
//   inlining, and so is cols for full panels. Mark the operator GW_INLINE.
//
// Tiling. Rows are cut in equal tiles of at most kMR (a remainder costs nothing extra: 49 rows are 10 + 10
// + 10 + 10 + 9). A few row tiles share one pass over the panels, so that a panel is read from L1 or L2 all
// but the first time; when the panels exceed half of L2, as many as L2 has room for. Weights are mostly far
// away when a layer's turn comes: the first pass over a panel prefetches it, or, where there are enough row
// tiles, the last passes over a panel fetch the next one.
#pragma once
#include "micro.h"
#include "pool.h"

namespace gw GW_HIDDEN {

struct Panels {
  const float* data = nullptr;  // tile column j starts at data + j * k * kNR
  int64_t k = 0;
  int64_t n = 0;
  bool backwards = false;  // the order in which they are gone through
  int64_t count() const { return (n + kNR - 1) / kNR; }
};

struct Taps {
  int64_t count;
  int64_t run;
};

constexpr int64_t kL2Bytes = 1 << 20;       // assumed private cache
constexpr int64_t kNearBytes = 1 << 16;     // a right operand this small is not worth prefetching
constexpr int64_t kTable = 4096;            // pointers of one row block (32 KiB of stack)
constexpr int64_t kBlockTiles = 32;         // most row tiles that share a pass over the panels
constexpr int64_t kFewTiles = 4;            // as many do when the panels fit in half of L2
constexpr int64_t kSoonTiles = kNR / soon_floats(Fetch::Soon);  // row tiles in which a whole panel is fetched
constexpr int64_t kSerialFlops = 200000;    // below this a second thread costs more than it brings
constexpr int64_t kUnitFlops = 100000;      // least work of one unit of the pool

// How `count` jobs of m rows x n columns x depth k are cut: each in a grid of row blocks x panel blocks,
// `grain` units to a piece of the pool.
struct Split {
  int64_t row_blocks = 1, panel_blocks = 1, grain = 1;
};

inline Split plan_split(int64_t count, int64_t m, int64_t n, int64_t k, int64_t a_bytes, int threads) {
  Split s;
  const double each = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (threads < 2 || each * static_cast<double>(count) < kSerialFlops) {
    s.grain = count;
    return s;
  }
  const int64_t tiles = (m + kMR - 1) / kMR, panels = (n + kNR - 1) / kNR;
  int64_t units = (threads * 8 + count - 1) / count;
  if (each < static_cast<double>(units) * kUnitFlops) units = static_cast<int64_t>(each / kUnitFlops);
  if (units < 2) {
    s.grain = each > 0 ? static_cast<int64_t>(kUnitFlops / each) : count;
    if (s.grain < 1) s.grain = 1;
    if (count >= threads) return s;
    units = 2;
  }
  const int64_t b_bytes = n * k * 4;
  // A row split makes each thread read all of B, a panel split all of A: cut the larger operand, unless
  // that leaves threads without work.
  const bool by_panels = tiles < threads || (b_bytes > a_bytes && panels >= 2 * threads);
  if (by_panels) {
    s.panel_blocks = panels < units ? panels : units;
    const int64_t wanted = (units + s.panel_blocks - 1) / s.panel_blocks;
    if (s.panel_blocks * count < threads) s.row_blocks = tiles < wanted ? tiles : wanted;
  } else {
    s.row_blocks = tiles < units ? tiles : units;
    const int64_t wanted = (units + s.row_blocks - 1) / s.row_blocks;
    if (s.row_blocks * count < threads) s.panel_blocks = panels < wanted ? panels : wanted;
  }
  return s;
}

// Rows [m0, m1) x panels [p0, p1) on the calling thread. `col_base` is added to the column numbers.
template <class Rows, class Epi>
inline void multiply(Rows source, const Panels& b, int64_t m0, int64_t m1, int64_t p0, int64_t p1,
                     int64_t batch, int64_t col_base, const MicroTable& micros, const Epi& epi) {
  const float* at[kTable];
  int64_t koff[kTable / kMR];
  alignas(64) float tile[kMR * kNR];
  alignas(64) float scratch[Rows::kScratch ? Rows::kScratch : 1];
  const int64_t taps = source.taps(), gap = b.k * kPanel;
  const int64_t tap_limit = kTable / kMR;
  const bool chunked = taps > tap_limit;
  const int64_t b_bytes = b.n * b.k * 4;
  const bool near = b_bytes <= kNearBytes, big = b_bytes > kL2Bytes / 2;
  int64_t share = 1;
  if (!chunked && source.shareable()) {
    share = kFewTiles;
    if (big) {
      // All panels pass by for each block of rows: make the block as large as L2 lets it (a pixel's
      // channels count once, whatever the number of taps that read them).
      share = kL2Bytes / 2 / (kMR * 4 * (b.k / taps) + 1);
      if (share < kFewTiles) share = kFewTiles;
      if (share > kBlockTiles) share = kBlockTiles;
    }
    if (share > tap_limit / taps) share = tap_limit / taps;
  }
  struct Tile {
    int64_t row0, rows;
    Taps taps;
  } block[kBlockTiles];

  const auto finish = [&](const Tile& t, int64_t panel) GW_INLINE_LAMBDA {
    const int64_t col0 = panel * kNR;
    if (b.n - col0 >= kNR) {
      epi(static_cast<const float*>(tile), kNR, batch, t.row0, t.rows, col_base + col0, kNR);
    } else if (b.n - col0 == kLanes) {
      epi(static_cast<const float*>(tile), kNR, batch, t.row0, t.rows, col_base + col0, kLanes);
    } else {
      epi(static_cast<const float*>(tile), kNR, batch, t.row0, t.rows, col_base + col0, b.n - col0);
    }
  };

  int64_t m = m0;
  while (m < m1) {
    // One segment at a time, cut in equal tiles.
    const int64_t segment_end = (m / source.segment() + 1) * source.segment();
    const int64_t end = segment_end < m1 ? segment_end : m1;
    const int64_t rows = end - m, tiles = (rows + kMR - 1) / kMR;
    const int64_t blocks = (tiles + share - 1) / share, most = (tiles + blocks - 1) / blocks;
    for (int64_t first = 0; first < tiles; first += most) {
      const int64_t count = tiles - first < most ? tiles - first : most;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row0 = m + rows * (first + i) / tiles;
        block[i].row0 = row0;
        block[i].rows = m + rows * (first + i + 1) / tiles - row0;
        if (!chunked) {
          block[i].taps = source.fill(row0, block[i].rows, 0, taps, at + i * taps * kMR,
                                      koff + i * taps, scratch);
        }
      }
      const bool at_ease = count >= kSoonTiles;
      for (int64_t step = p0; step < p1; ++step) {
        const int64_t panel = b.backwards ? p0 + p1 - 1 - step : step;
        const int nv = panel_vectors(b.n, panel);
        const float* data = b.data + panel * b.k * kNR;
        const int64_t wanted = at_ease ? kSoonTiles : kSoonTiles / 2;
        const int64_t after = first + count < tiles || step + 1 < p1 ? count - wanted : count;
        const int64_t follower = step + 1 == p1 ? (b.backwards ? p1 - 1 : p0) : panel + (b.backwards ? -1 : 1);
        const float* next = b.data + follower * b.k * kNR;
        const bool comes = big && count >= wanted;  // each panel but the first is fetched before
        for (int64_t i = 0; i < count; ++i) {
          const Tile& t = block[i];
          const bool start = m == m0 && first == 0;
          const bool far = i == 0 && nv == kNV && (comes ? start && step == p0 : big || (start && !near));
          const bool soon = comes && nv == kNV && i >= after;
          const float* fetched = next + (soon ? i - after : 0) * (kNR / wanted) * b.k;
          const micro_fn kernel = far    ? micros.first[t.rows - 1]
                                  : soon ? micros.soon[at_ease][t.rows - 1]
                                         : micros.fn[t.rows - 1][nv - 1];
          if (!chunked) {
            kernel(t.taps.count, t.taps.run, at + i * taps * kMR, koff + i * taps, data, gap, tile, kNR,
                   false, fetched);
          } else {
            for (int64_t tap = 0; tap < taps; tap += tap_limit) {
              const int64_t stop = tap + tap_limit < taps ? tap + tap_limit : taps;
              const Taps some = source.fill(t.row0, t.rows, tap, stop, at, koff, scratch);
              kernel(some.count, some.run, at, koff, data, gap, tile, kNR, tap > 0, fetched);
            }
          }
          finish(t, panel);
        }
      }
    }
    m = end;
  }
}

// One of `count` contractions of equal sizes (groups of a convolution, matrices of a batch).
template <class Rows>
struct Job {
  Rows rows;
  Panels panels;
  int64_t batch;     // handed to the epilogue
  int64_t col_base;  // added to its column numbers
};

// Jobs 0 .. count - 1 over the pool; job(i) returns the Job, all of them with m rows, n columns, depth k.
template <class JobOf, class Epi>
inline void multiply_parallel(int64_t count, int64_t m, int64_t n, int64_t k, int64_t a_bytes,
                              const JobOf& job, const Epi& epi, const gw_pool* pool) {
  if (m <= 0 || n <= 0 || count <= 0) return;
  const Split s = plan_split(count, m, n, k, a_bytes, thread_count(pool));
  const int64_t panels = (n + kNR - 1) / kNR;
  const MicroTable& micros = m <= kSkinny ? skinny_table : micro_table;
  parallel_for(pool, count * s.row_blocks * s.panel_blocks, s.grain, [&](int64_t begin, int64_t end, int) {
    while (begin < end) {
      // Of several jobs all do a block of rows and panels before the next one: a thread then writes the
      // whole of its pixels, and not the channels between those of another. Units of a lone job that follow
      // each other are one range of rows.
      const int64_t which = begin % count, rest = begin / count;
      const int64_t row = rest % s.row_blocks, column = rest / s.row_blocks;
      const int64_t more = count == 1 ? end - begin : 1;
      const int64_t row_end = row + more < s.row_blocks ? row + more : s.row_blocks;
      const auto j = job(which);
      multiply(j.rows, j.panels, m * row / s.row_blocks, m * row_end / s.row_blocks,
               panels * column / s.panel_blocks, panels * (column + 1) / s.panel_blocks, j.batch,
               j.col_base, micros, epi);
      begin += row_end - row;
    }
  });
}

}  // namespace gw
