// Batched product of two activations with arbitrary strides (transposed views, broadcast batches):
//
//   C[i][r][c] = sum over k: A[i][r][k] * B[i][k][c],   i over up to 4 batch axes
//
// The right operand is packed at run time, panel by panel, into the calling thread's part of the workspace;
// the left one is read in place when its k stride is 1, else packed a row tile at a time. With m <= kSkinny
// packing would cost as much as the product: B is then read in place, by columns of dot products when its
// k stride is 1, by rows when its column stride is 1.
//
// Epilogue as in gemm.h; batch is the flattened index i. The caller guarantees matmul_workspace(k, threads)
// floats of workspace. A constant right operand belongs in gemm.h (packed once, at compile time); use this
// with `packed` set when only A is unusual (k not contiguous).
#pragma once
#include "contract.h"

namespace gw GW_HIDDEN {

constexpr int kBatchAxes = 4;

struct Matmul {
  const float* a = nullptr;
  const float* b = nullptr;
  float* workspace = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_k = 1, b_k = 0, b_col = 1;  // strides in floats
  int64_t batch[kBatchAxes] = {1, 1, 1, 1};        // outermost first
  int64_t a_batch[kBatchAxes] = {0, 0, 0, 0}, b_batch[kBatchAxes] = {0, 0, 0, 0};  // 0: broadcast
  bool packed = false;  // b was made by packing.pack_gemm_b; its strides are not used, b_batch is
};

// Floats of workspace for `threads` threads.
inline int64_t matmul_workspace(int64_t k, int64_t threads) { return threads * k * (kNR + kMR); }

namespace matmul_detail {

typedef float v4 __attribute__((vector_size(16)));
typedef float v4u __attribute__((vector_size(16), aligned(4), may_alias));

// to[i * to_row + j] = from[j * from_row + i] for a 4 x 4 block
GW_INLINE void transpose4(const float* from, int64_t from_row, float* to, int64_t to_row) {
  typedef int32_t i4 __attribute__((vector_size(16)));
  const v4 a = *reinterpret_cast<const v4u*>(from);
  const v4 b = *reinterpret_cast<const v4u*>(from + from_row);
  const v4 c = *reinterpret_cast<const v4u*>(from + 2 * from_row);
  const v4 d = *reinterpret_cast<const v4u*>(from + 3 * from_row);
#if defined(__clang__)
#define GW_SHUFFLE4(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
#define GW_SHUFFLE4(x, y, i, j, k, l) __builtin_shuffle(x, y, i4{i, j, k, l})
#endif
  (void)sizeof(i4);
  const v4 ab0 = GW_SHUFFLE4(a, b, 0, 4, 1, 5), ab1 = GW_SHUFFLE4(a, b, 2, 6, 3, 7);
  const v4 cd0 = GW_SHUFFLE4(c, d, 0, 4, 1, 5), cd1 = GW_SHUFFLE4(c, d, 2, 6, 3, 7);
  *reinterpret_cast<v4u*>(to) = GW_SHUFFLE4(ab0, cd0, 0, 1, 4, 5);
  *reinterpret_cast<v4u*>(to + to_row) = GW_SHUFFLE4(ab0, cd0, 2, 3, 6, 7);
  *reinterpret_cast<v4u*>(to + 2 * to_row) = GW_SHUFFLE4(ab1, cd1, 0, 1, 4, 5);
  *reinterpret_cast<v4u*>(to + 3 * to_row) = GW_SHUFFLE4(ab1, cd1, 2, 3, 6, 7);
#undef GW_SHUFFLE4
}

// Packs columns [0, cols) of b, at most kPanel, into a panel, zeros after them.
inline void pack_panel(const float* b, int64_t b_k, int64_t b_col, int64_t k, int64_t cols, float* to) {
  constexpr int64_t width = kPanel;
  if (b_col == 1) {
    for (int64_t i = 0; i < k; ++i) {
      const float* from = b + i * b_k;
      float* row = to + i * width;
      int64_t c = 0;
      for (; c + kLanes <= cols; c += kLanes) store(row + c, load(from + c));
      for (; c < width; c += kLanes) store(row + c, load_partial(from + c, cols > c ? cols - c : 0));
    }
    return;
  }
  int64_t c = 0;
  if (b_k == 1) {
    for (; c + 4 <= cols; c += 4) {
      int64_t i = 0;
      for (; i + 4 <= k; i += 4) transpose4(b + c * b_col + i, b_col, to + i * width + c, width);
      for (; i < k; ++i)
        for (int64_t j = c; j < c + 4; ++j) to[i * width + j] = b[j * b_col + i];
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    float* row = to + i * width;
    for (int64_t j = c; j < cols; ++j) row[j] = b[i * b_k + j * b_col];
    for (int64_t j = cols; j < width; ++j) row[j] = 0.0f;
  }
}

// tile[r][j] = dot(a row r, column j of b) for the columns of one panel; both contiguous along k.
template <int MR>
GW_NOINLINE void dots(const float* const* rows, const float* b, int64_t b_col, int64_t k, int64_t cols,
                      float* tile) {
  for (int64_t j = 0; j < cols; ++j) {
    const float* column = b + j * b_col;
    constexpr int KU = MR == 1 ? 4 : 2;
    vf acc[KU][MR];
    GW_UNROLL
    for (int u = 0; u < KU; ++u) {
      GW_UNROLL
      for (int r = 0; r < MR; ++r) acc[u][r] = splat(0.0f);
    }
    int64_t i = 0;
    for (; i + KU * kLanes <= k; i += KU * kLanes) {
      GW_UNROLL
      for (int u = 0; u < KU; ++u) {
        const vf bv = load(column + i + u * kLanes);
        GW_UNROLL
        for (int r = 0; r < MR; ++r) acc[u][r] = fma(load(rows[r] + i + u * kLanes), bv, acc[u][r]);
      }
    }
    for (; i < k; i += kLanes) {
      const int64_t left = k - i < kLanes ? k - i : kLanes;
      const vf bv = load_partial(column + i, left);
      GW_UNROLL
      for (int r = 0; r < MR; ++r) acc[0][r] = fma(load_partial(rows[r] + i, left), bv, acc[0][r]);
    }
    GW_UNROLL
    for (int r = 0; r < MR; ++r) {
      vf total = acc[0][r];
      GW_UNROLL
      for (int u = 1; u < KU; ++u) total += acc[u][r];
      tile[r * kNR + j] = sum(total);
    }
  }
}

// tile[r][c] for a full panel of b read in place: columns contiguous, rows b_k floats apart.
template <int MR>
GW_NOINLINE void rows_times(const float* const* rows, int64_t a_k, const float* b, int64_t b_k, int64_t k,
                            float* tile) {
  constexpr int KU = 4 / MR > 0 ? 4 / MR : 1;
  vf acc[KU][MR][kNV];
  GW_UNROLL
  for (int u = 0; u < KU; ++u) {
    GW_UNROLL
    for (int r = 0; r < MR; ++r) {
      GW_UNROLL
      for (int v = 0; v < kNV; ++v) acc[u][r][v] = splat(0.0f);
    }
  }
  int64_t i = 0;
  for (; i + KU <= k; i += KU) {
    GW_UNROLL
    for (int u = 0; u < KU; ++u) {
      GW_UNROLL
      for (int v = 0; v < kNV; ++v) {
        const vf bv = load(b + (i + u) * b_k + v * kLanes);
        GW_UNROLL
        for (int r = 0; r < MR; ++r) acc[u][r][v] = fma(splat(rows[r][(i + u) * a_k]), bv, acc[u][r][v]);
      }
    }
  }
  for (; i < k; ++i) {
    GW_UNROLL
    for (int v = 0; v < kNV; ++v) {
      const vf bv = load(b + i * b_k + v * kLanes);
      GW_UNROLL
      for (int r = 0; r < MR; ++r) acc[0][r][v] = fma(splat(rows[r][i * a_k]), bv, acc[0][r][v]);
    }
  }
  GW_UNROLL
  for (int r = 0; r < MR; ++r) {
    GW_UNROLL
    for (int v = 0; v < kNV; ++v) {
      vf total = acc[0][r][v];
      GW_UNROLL
      for (int u = 1; u < KU; ++u) total += acc[u][r][v];
      store(tile + r * kNR + v * kLanes, total);
    }
  }
}

inline void skinny_dots(int64_t m, const float* const* rows, const float* b, int64_t b_col, int64_t k,
                        int64_t cols, float* tile) {
  switch (m) {
    case 1: return dots<1>(rows, b, b_col, k, cols, tile);
    case 2: return dots<2>(rows, b, b_col, k, cols, tile);
    case 3: return dots<3>(rows, b, b_col, k, cols, tile);
    default: return dots<4>(rows, b, b_col, k, cols, tile);
  }
}

inline void skinny_rows(int64_t m, const float* const* rows, int64_t a_k, const float* b, int64_t b_k,
                        int64_t k, float* tile) {
  switch (m) {
    case 1: return rows_times<1>(rows, a_k, b, b_k, k, tile);
    case 2: return rows_times<2>(rows, a_k, b, b_k, k, tile);
    case 3: return rows_times<3>(rows, a_k, b, b_k, k, tile);
    default: return rows_times<4>(rows, a_k, b, b_k, k, tile);
  }
}

}  // namespace matmul_detail

template <class Epi>
inline void matmul(const Matmul& g, const Epi& epi, const gw_pool* pool) {
  using namespace matmul_detail;
  int64_t count = 1;
  for (int i = 0; i < kBatchAxes; ++i) count *= g.batch[i];
  if (g.m <= 0 || g.n <= 0 || count <= 0) return;
  const int64_t panels = (g.n + kNR - 1) / kNR, tiles = (g.m + kMR - 1) / kMR;
  // Row splits repeat the packing, so they come last: batches, then panels, then rows.
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const int64_t threads = thread_count(pool);
  int64_t row_blocks = 1;
  if (count * panels < threads && flops > kSerialFlops) {
    row_blocks = (threads + count * panels - 1) / (count * panels);
    if (row_blocks > tiles) row_blocks = tiles;
  }
  const double each = flops / static_cast<double>(panels) / static_cast<double>(row_blocks);
  const int64_t grain = each > 0 ? static_cast<int64_t>(kUnitFlops / each) + 1 : count * panels;
  const bool skinny = g.m <= kSkinny && !g.packed;
  const MicroTable& micros = g.m <= kSkinny ? skinny_table : micro_table;

  parallel_for(pool, count * panels * row_blocks, grain, [&](int64_t begin, int64_t end, int thread) {
    float* panel_copy = g.workspace + thread * g.k * (kNR + kMR);
    float* rows_copy = panel_copy + g.k * kNR;
    alignas(64) float tile[kMR * kNR];
    const float* at[kMR];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t block = unit % row_blocks, panel = unit / row_blocks % panels;
      const int64_t which = unit / row_blocks / panels;
      const float *a = g.a, *b = g.b;
      int64_t rest = which;
      for (int i = kBatchAxes - 1; i >= 0; --i) {
        a += rest % g.batch[i] * g.a_batch[i];
        b += rest % g.batch[i] * g.b_batch[i];
        rest /= g.batch[i];
      }
      const int64_t col0 = panel * kNR, cols = g.n - col0 < kNR ? g.n - col0 : kNR;
      const int nv = panel_vectors(g.n, panel);
      const bool by_dots = skinny && g.b_k == 1 && g.a_k == 1;
      const bool by_rows = skinny && g.b_col == 1 && cols == kNR;
      const float* data = b + (g.packed ? panel * g.k * kNR : 0);
      if (!g.packed) {
        data = b + col0 * g.b_col;
        if (!by_dots && !by_rows) {
          for (int64_t c = 0; c < cols; c += kPanel) {
            const int64_t some = cols - c < kPanel ? cols - c : kPanel;
            pack_panel(data + c * g.b_col, g.b_k, g.b_col, g.k, some, panel_copy + c * g.k);
          }
          data = panel_copy;
        }
      }
      const int64_t first = g.m * block / row_blocks, last = g.m * (block + 1) / row_blocks;
      const int64_t parts = (last - first + kMR - 1) / kMR;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t row0 = first + (last - first) * part / parts;
        const int64_t rows = first + (last - first) * (part + 1) / parts - row0;
        for (int64_t r = 0; r < rows; ++r) {
          at[r] = a + (row0 + r) * g.a_row;
          if (g.a_k != 1 && !by_rows) {
            float* copy = rows_copy + r * g.k;
            for (int64_t i = 0; i < g.k; ++i) copy[i] = at[r][i * g.a_k];
            at[r] = copy;
          }
        }
        const int64_t zero = 0;
        if (by_dots) {
          skinny_dots(rows, at, data, g.b_col, g.k, cols, tile);
        } else if (by_rows) {
          skinny_rows(rows, at, g.a_k, data, g.b_k, g.k, tile);
        } else {
          micros.fn[rows - 1][nv - 1](1, g.k, at, &zero, data, g.k * kPanel, tile, kNR, false,
                                      nullptr);
        }
        if (cols == kNR) {
          epi(static_cast<const float*>(tile), kNR, which, row0, rows, col0, kNR);
        } else {
          epi(static_cast<const float*>(tile), kNR, which, row0, rows, col0, cols);
        }
      }
    }
  });
}

}  // namespace gw
