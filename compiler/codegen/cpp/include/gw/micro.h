// The register-tiled microkernel that GEMM, convolution and transposed convolution share.
//
//   tile[r][c] (+)= sum over taps t, i < run:  rows[t][r][i] * panel[koff[t] + i][c]
//
// rows   kMR-agnostic table of pointers, MR of them a tap: where row r of the left operand starts for
//        tap t. A plain GEMM has one tap of run K; a KHxKW convolution has a tap for each kernel position
//        of run CI (a pointer to zeros where the window leaves the image), or one for each kernel row of
//        run KW*CI when the window is contiguous in memory. The pointers may be anywhere: strided rows,
//        rows of different images, one shared zero row.
// panel  right operand packed by packing.py (or pack_panel of matmul.h): [K][kPanel], zero padded; where a
//        tile is wider, its next panel begins `gap` floats on.
// tile   float, row stride ld; written, or with `accumulate` the sums to go on from.
//
// Each accumulator lives in a register; per k the kernel loads NV vectors of B and broadcasts MR scalars
// of A. With MR <= 4 there are too few independent chains to hide the latency of an FMA, so skinny_table
// holds kernels that keep KU partial sums along k (added in a fixed order at the end). Which table a
// problem uses must follow from its sizes alone: an element's bits then do not depend on how its rows
// were split over threads.
//
// The kernels do not depend on the epilogue: a program with hundreds of layers instantiates each once.
#pragma once
#include "simd.h"

namespace gw GW_HIDDEN {

constexpr int64_t kFetchAhead = 64 * kPanel;  // floats of the panel: 64 rows, some 200 ns
// What a microkernel fetches meanwhile: nothing, its own panel some rows ahead, or what is needed next, `taps *
// run * soon_floats(How)` floats from `soon` on, at a pace that memory keeps up with.
enum class Fetch { None, Ahead, Soon, Sooner };

constexpr int64_t soon_floats(Fetch how) {
  return how == Fetch::Soon ? 4 : (how == Fetch::Sooner ? 8 : 0);
}

typedef void (*micro_fn)(int64_t taps, int64_t run, const float* const* rows, const int64_t* koff,
                         const float* panel, int64_t gap, float* tile, int64_t ld, bool accumulate,
                         const float* soon);

template <int MR, int NV, int KU, Fetch How>
GW_NOINLINE void micro(int64_t taps, int64_t run, const float* const* rows, const int64_t* koff,
                       const float* panel, int64_t gap, float* tile, int64_t ld, bool accumulate,
                       const float* soon) {
  constexpr int W = kPanel, P = kPanel / kLanes;  // vectors of a panel
  vf acc[KU][MR][NV];
  GW_UNROLL
  for (int u = 0; u < KU; ++u) {
    GW_UNROLL
    for (int r = 0; r < MR; ++r) {
      GW_UNROLL
      for (int v = 0; v < NV; ++v) acc[u][r][v] = splat(0.0f);
    }
  }
  // Going on from the sums in the tile makes one chain of the pieces: cutting k does not change a bit.
  if (accumulate) {
    GW_UNROLL
    for (int r = 0; r < MR; ++r) {
      GW_UNROLL
      for (int v = 0; v < NV; ++v) acc[0][r][v] = load(tile + r * ld + v * kLanes);
    }
  }
  const int64_t whole = run / KU * KU;
  for (int64_t t = 0; t < taps; ++t) {
    // Pointers to the ends and an index that counts up to zero, so that little else is live in the loop: the
    // integer registers do not hold all rows of the largest tile.
    const float* a[MR];
    GW_UNROLL
    for (int r = 0; r < MR; ++r) a[r] = rows[t * MR + r] + whole;
    const float* b = panel + koff[t] * W;
    soon += whole * soon_floats(How);
    int64_t i = -whole * 4, next = gap * 4;  // bytes
    GW_OPAQUE(next);
    if (i < 0) {
      do {
        GW_UNROLL
        for (int u = 0; u < KU; ++u) {
          vf bv[NV];
          GW_UNROLL
          for (int v = 0; v < NV; ++v) {
            const float* from = reinterpret_cast<const float*>(
                reinterpret_cast<const char*>(b + u * W + v % P * kLanes) + v / P * next);
            bv[v] = load(from);
            if (How == Fetch::Ahead) __builtin_prefetch(from + kFetchAhead, 0, 2);
          }
          GW_UNROLL
          for (int r = 0; r < MR; ++r) {
            const vf av = splat(*reinterpret_cast<const float*>(reinterpret_cast<const char*>(a[r] + u) + i));
            GW_UNROLL
            for (int v = 0; v < NV; ++v) acc[u][r][v] = fma(av, bv[v], acc[u][r][v]);
          }
        }
        if (soon_floats(How) != 0)
          __builtin_prefetch(reinterpret_cast<const char*>(soon) + i * soon_floats(How), 0, 2);
        b += KU * W;
        i += KU * 4;
        GW_OPAQUE(i);
      } while (i != 0);
    }
    if (KU > 1) {
      for (int64_t rest = 0; rest < run - whole; ++rest, b += W) {
        GW_UNROLL
        for (int v = 0; v < NV; ++v) {
          const vf bv = load(b + v % P * kLanes + v / P * gap);
          GW_UNROLL
          for (int r = 0; r < MR; ++r) acc[0][r][v] = fma(splat(a[r][rest]), bv, acc[0][r][v]);
        }
      }
    }
  }
  GW_UNROLL
  for (int r = 0; r < MR; ++r) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) {
      vf x = acc[0][r][v];
      GW_UNROLL
      for (int u = 1; u < KU; ++u) x += acc[u][r][v];
      store(tile + r * ld + v * kLanes, x);
    }
  }
}

constexpr int kSkinny = 4;  // problems of at most this many rows use skinny_table

// fn[MR - 1][NV - 1] fetches nothing; for full panels, first[MR - 1] is for a first pass over one that may be
// far away, soon[.][MR - 1] for passes while the next one comes, fast or at ease.
struct MicroTable {
  micro_fn fn[kMR][kNV];
  micro_fn first[kMR];
  micro_fn soon[2][kMR];
};

namespace micro_detail {
constexpr int skinny_sums(int mr) {
  const int most = kLanes == 16 || kNV == 4 ? 16 : 12;  // accumulators
  const int sums = most / (mr * kNV);
  return sums >= 4 ? 4 : (sums >= 2 ? 2 : 1);
}
template <int MR, int NV, bool Skinny>
constexpr void fill(MicroTable& t) {
  constexpr int KU = Skinny ? skinny_sums(MR) : 1;
  t.fn[MR - 1][NV - 1] = micro<MR, NV, KU, Fetch::None>;
  if (NV == kNV) {
    t.first[MR - 1] = micro<MR, kNV, KU, Fetch::Ahead>;
    t.soon[0][MR - 1] = micro<MR, kNV, KU, Fetch::Sooner>;
    t.soon[1][MR - 1] = micro<MR, kNV, KU, Fetch::Soon>;
  }
  if constexpr (NV > 1) {
    fill<MR, NV - 1, Skinny>(t);
  } else if constexpr (MR > 1) {
    fill<MR - 1, kNV, Skinny>(t);
  }
}
template <int MR, bool Skinny>
constexpr MicroTable make() {
  MicroTable t{};
  fill<MR, kNV, Skinny>(t);
  return t;
}
}  // namespace micro_detail

// A library of several translation units has them once: in one that includes micro_tables.h, while the others
// define GW_TABLES_APART first.
#if defined(GW_TABLES_APART)
extern const MicroTable micro_table, skinny_table;
#else
inline constexpr MicroTable micro_table = micro_detail::make<kMR, false>();
inline constexpr MicroTable skinny_table = micro_detail::make<kSkinny, true>();
#endif

// Width of tile column number `panel` of a right operand with n columns, in vectors.
GW_INLINE int panel_vectors(int64_t n, int64_t panel) {
  const int64_t left = n - panel * kNR;
  return left >= kNR ? kNV : static_cast<int>((left + kLanes - 1) / kLanes);
}

// Floats of a packed [k, n].
GW_INLINE int64_t packed_floats(int64_t k, int64_t n) { return k * ((n + kPanel - 1) / kPanel * kPanel); }

}  // namespace gw
