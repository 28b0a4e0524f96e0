// Attention with the scores of a few rows at a time, never all of them:
//
//   out[b][h][s][:] = softmax over t of (scale * q[b][h][s] . k[b][g][t], capped, biased) times v[b][g][t][:]
//
// with g = h / (heads / groups). Any strides. A unit of work is a block of query rows of one group: all
// heads that share keys are rows of one product. Keys pass by in chunks, each packed into panels for
// micro.h; a tile of rows keeps the maximum m, the sum l and the weighted values of the chunks so far
// (online softmax: Milakov and Gimelshein 2018; Dao et al. 2022) and rescales them when m grows. The keys
// that take part in a row are one range [low, high): chunks outside the range of a tile are skipped.
//
// With at most kFewRows rows a group, packing would cost as much as the product: keys are read in place, and
// few groups with many keys are split into parts of keys, joined at the end in a fixed order. What is split
// follows from the sizes alone, never from the number of threads.
//
// Epilogue as in gemm.h over the finished rows: batch is b * heads + h, rows are s, columns those of v.
#pragma once
#include "math.h"
#include "matmul.h"

namespace gw GW_HIDDEN {

struct Attention {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const void* bias = nullptr;           // floats that are added, or bools (bytes) that hide where 0
  const int64_t* lengths = nullptr;     // [batch]; null: all keys count
  const int32_t* lengths32 = nullptr;   // or these
  int64_t lengths_step = 1;
  int64_t batch = 1, heads = 1, groups = 1, steps = 0, length = 0, size = 0, width = 0;
  int64_t qs[4] = {0, 0, 0, 1};         // strides in elements: batch, head, position, element
  int64_t ks[4] = {0, 0, 0, 1};
  int64_t vs[4] = {0, 0, 0, 1};
  int64_t bs[4] = {0, 0, 0, 0};         // batch, head, query, key; 0 broadcasts
  int64_t offset = 0;                   // position of query 0; from the end of the keys when to_end
  int64_t left = -1, right = -1;        // window around the position; -1: no limit
  float scale = 1.0f, cap = 0.0f, fill = -__builtin_inff();
  float empty = 0.0f;                   // what a row without keys gives
  bool to_end = false;
};

enum class Bias { none, bools, floats };

namespace attention_detail {

constexpr int64_t kChunk = 512;    // keys packed at a time: with heads of 64, 256 KiB of L2
constexpr int64_t kBlock = 256;    // query rows that share the packing
constexpr int64_t kFewRows = 2 * kSkinny;
constexpr int64_t kManyGroups = 16, kManyParts = 32;

GW_INLINE vf larger(vf a, vf b) { return a > b ? a : b; }

// exp(x) for x <= 0 or NaN, as gw::exp.
GW_INLINE vf exp_down(vf x) {
  using namespace math_detail;
  const vf least = splat(-104.0f);
  x = least > x ? least : x;
  const vf shifted = fma(x, splat(kLog2e), splat(kRound));
  const vf whole = shifted - splat(kRound);
  vf r = fma(whole, splat(-kLn2High), x);
  r = fma(whole, splat(-kLn2Low), r);
  vf p = splat(0x1.6db4e6p-10f);
  p = fma(p, r, splat(0x1.123bdep-7f));
  p = fma(p, r, splat(0x1.55545ep-5f));
  p = fma(p, r, splat(0x1.55548ep-3f));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r) + splat(1.0f);
#if GW_LANES == 16
  return __builtin_ia32_scalefps512_mask(p, whole, p, static_cast<unsigned short>(-1), 4);
#else
  const vi n = (vi)shifted - (vi)splat(kRound);
  const vi half = n >> 1;
  const vi one = (vi)splat(1.0f);
  return p * (vf)((half << 23) + one) * (vf)(((n - half) << 23) + one);
#endif
}

struct Range {
  int64_t low, high;
};

GW_INLINE int64_t keys_of(const Attention& g, int64_t b) {
  int64_t n = g.length;
  if (g.lengths) n = g.lengths[b * g.lengths_step];
  if (g.lengths32) n = g.lengths32[b * g.lengths_step];
  return n < 0 ? 0 : (n > g.length ? g.length : n);
}

// The keys that take part for query s.
GW_INLINE Range range_of(const Attention& g, int64_t keys, int64_t s) {
  const int64_t at = s + g.offset + (g.to_end ? keys - g.steps : 0);
  Range r{0, keys};
  if (g.left >= 0 && at - g.left > 0) r.low = at - g.left;
  if (g.right >= 0 && at + g.right + 1 < keys) r.high = at + g.right + 1;
  if (r.high < r.low) r.high = r.low;
  return r;
}

// The scores s[from .. to) of one row for keys of a chunk, of which [low, high) take part: capped, biased,
// -inf for the others. from and to are multiples of kLanes. Returns the largest.
template <Bias kind>
GW_INLINE float finish_scores(const Attention& g, float* GW_RESTRICT s, int64_t from, int64_t to, int64_t low,
                              int64_t high, const void* bias) {
  if (g.cap != 0.0f) {
    const float cap = g.cap;
    GW_COLUMNS
    for (int64_t j = from; j < to; ++j) s[j] = cap * gw::tanh(s[j] / cap);
  }
  if constexpr (kind == Bias::floats) {
    const float* GW_RESTRICT add = static_cast<const float*>(bias);
    if (g.bs[3] == 1) {
      GW_COLUMNS
      for (int64_t j = low; j < high; ++j) s[j] += add[j];
    } else {
      for (int64_t j = low; j < high; ++j) s[j] += add[j * g.bs[3]];
    }
  }
  if constexpr (kind == Bias::bools) {
    const uint8_t* GW_RESTRICT seen = static_cast<const uint8_t*>(bias);
    const float fill = g.fill;
    if (g.bs[3] == 1) {
      GW_COLUMNS
      for (int64_t j = low; j < high; ++j) s[j] = seen[j] ? s[j] : fill;
    } else {
      for (int64_t j = low; j < high; ++j) s[j] = seen[j * g.bs[3]] ? s[j] : fill;
    }
  }
  for (int64_t j = from; j < low; ++j) s[j] = -__builtin_inff();
  for (int64_t j = high; j < to; ++j) s[j] = -__builtin_inff();
  vf most = splat(-__builtin_inff());
  for (int64_t j = from; j < to; j += kLanes) most = larger(load(s + j), most);
  float part[kLanes];
  __builtin_memcpy(part, &most, sizeof most);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] = part[i + width] > part[i] ? part[i + width] : part[i];
  return part[0];
}

// Maximum and sum of one row so far, and its weighted values.
struct Row {
  float most, total;
};

// s becomes exp(s - new maximum); returns by what the earlier sums, if any, must be multiplied.
GW_INLINE float weigh(Row& row, float most, float* GW_RESTRICT s, int64_t from, int64_t to) {
  if (row.most > most) most = row.most;
  const float base = most == -__builtin_inff() ? 0.0f : most;
  const float before = row.most == most || row.most == -__builtin_inff() ? 1.0f : gw::exp(row.most - base);
  vf total = splat(0.0f);
  for (int64_t j = from; j < to; j += kLanes) {
    const vf p = exp_down(load(s + j) - splat(base));
    store(s + j, p);
    total += p;
  }
  row.total = row.total * before + sum(total);
  row.most = most;
  return before;
}

// Where the memory of one thread lies, in floats from its start.
struct Areas {
  int64_t keys, panel;      // keys of a chunk, rounded up; columns of v, rounded up
  int64_t k, v, scores, q, rows, sums, all;
  Areas(const Attention& g, int64_t block) {
    const int64_t most = g.length < kChunk ? g.length : kChunk;
    keys = (most + kNR - 1) / kNR * kNR;
    panel = (g.width + kNR - 1) / kNR * kNR;
    k = 0;
    v = k + keys * g.size;
    scores = v + keys * panel;
    q = scores + kMR * keys;
    rows = q + kMR * ((g.size + kLanes - 1) / kLanes * kLanes);
    sums = rows + (2 * block + 15) / 16 * 16;
    all = sums + block * panel;
  }
};

// One block of rows [row0, row0 + rows) of group `group` (b * groups + g); row = head in the group * steps
// + position. Keys of chunks [chunk0, chunk1).
template <Bias kind>
struct Block {
  const Attention& g;
  const Areas& at;
  float* memory;
  Row* state;   // [rows]
  float* sums;  // [rows][at.panel]
  int64_t b, group, row0, rows, keys, shared;
  const MicroTable& micros;

  Block(const Attention& attention, const Areas& areas, float* thread, int64_t which, int64_t first, int64_t count)
      : g(attention), at(areas), memory(thread), state(reinterpret_cast<Row*>(thread + areas.rows)),
        sums(thread + areas.sums), b(which / attention.groups), group(which % attention.groups), row0(first),
        rows(count), keys(keys_of(attention, which / attention.groups)),
        shared(attention.heads / attention.groups),
        micros(shared * attention.steps <= kSkinny ? skinny_table : micro_table) {}

  GW_INLINE int64_t head(int64_t row) const { return shared == 1 ? group : group * shared + row / g.steps; }
  GW_INLINE int64_t step(int64_t row) const { return shared == 1 ? row : row % g.steps; }

  const float* query(int64_t row) const {
    return g.q + b * g.qs[0] + head(row) * g.qs[1] + step(row) * g.qs[2];
  }

  const void* bias_of(int64_t row, int64_t key) const {
    const int64_t start = b * g.bs[0] + head(row) * g.bs[1] + step(row) * g.bs[2] + key * g.bs[3];
    if constexpr (kind == Bias::floats) return static_cast<const float*>(g.bias) + start;
    if constexpr (kind == Bias::bools) return static_cast<const uint8_t*>(g.bias) + start;
    return nullptr;
  }

  void pack(int64_t key0, int64_t count) const {
    const float* k = g.k + b * g.ks[0] + group * g.ks[1] + key0 * g.ks[2];
    for (int64_t j = 0; j < count; j += kPanel) {
      const int64_t cols = count - j < kPanel ? count - j : kPanel;
      matmul_detail::pack_panel(k + j * g.ks[2], g.ks[3], g.ks[2], g.size, cols, memory + at.k + j * g.size);
    }
    const float* v = g.v + b * g.vs[0] + group * g.vs[1] + key0 * g.vs[2];
    for (int64_t j = 0; j < g.width; j += kPanel) {
      const int64_t cols = g.width - j < kPanel ? g.width - j : kPanel;
      matmul_detail::pack_panel(v + j * g.vs[3], g.vs[2], g.vs[3], count, cols, memory + at.v + j * at.keys);
    }
  }

  // Scaled copies of the queries of a tile, as the microkernel wants them.
  void copy_queries(int64_t first, int64_t count, const float** to) const {
    const int64_t stride = (g.size + kLanes - 1) / kLanes * kLanes;
    for (int64_t r = 0; r < count; ++r) {
      const float* GW_RESTRICT from = query(first + r);
      float* GW_RESTRICT copy = memory + at.q + r * stride;
      if (g.qs[3] == 1) {
        GW_COLUMNS
        for (int64_t i = 0; i < g.size; ++i) copy[i] = from[i] * g.scale;
      } else {
        for (int64_t i = 0; i < g.size; ++i) copy[i] = from[i * g.qs[3]] * g.scale;
      }
      to[r] = copy;
    }
  }

  // A tile of rows [first, first + count) of the block against one chunk of keys, packed or not.
  template <bool Few>
  void tile(int64_t first, int64_t count, int64_t key0, int64_t chunk) const {
    Range of[kMR], all{INT64_MAX, 0};
    for (int64_t r = 0; r < count; ++r) {
      of[r] = range_of(g, keys, step(row0 + first + r));
      of[r].low = clamp(of[r].low - key0, chunk);
      of[r].high = clamp(of[r].high - key0, chunk);
      if (of[r].low < of[r].high) {
        if (of[r].low < all.low) all.low = of[r].low;
        if (of[r].high > all.high) all.high = of[r].high;
      }
    }
    if (all.low >= all.high) return;
    const int64_t from = all.low / kNR * kNR, to = (all.high + kLanes - 1) / kLanes * kLanes;
    const float* rows_at[kMR];
    copy_queries(row0 + first, count, rows_at);
    float* scores = memory + at.scores;
    if (Few) {
      score_in_place(rows_at, count, key0, from, all.high);
    } else {
      const int64_t zero = 0;
      for (int64_t j = from; j < to; j += kNR)
        micros.fn[count - 1][panel_vectors(chunk, j / kNR) - 1](1, g.size, rows_at, &zero,
                                                               memory + at.k + j * g.size, g.size * kPanel,
                                                               scores + j, at.keys, false, nullptr);
    }
    float most[kMR];
    for (int64_t r = 0; r < count; ++r) {
      // A row without keys here keeps its sums: all its weights are 0.
      const bool none = of[r].low >= of[r].high;
      const int64_t low = none ? to : of[r].low, high = none ? to : of[r].high;
      most[r] = finish_scores<kind>(g, scores + r * at.keys, from, to, low, high, bias_of(row0 + first + r, key0));
    }
    for (int64_t r = 0; r < count; ++r) {
      float* s = scores + r * at.keys;
      const float before = weigh(state[first + r], most[r], s, from, to);
      float* GW_RESTRICT sum = sums + (first + r) * at.panel;
      if (before != 1.0f) {
        GW_COLUMNS
        for (int64_t i = 0; i < at.panel; ++i) sum[i] *= before;
      }
      rows_at[r] = s + from;
    }
    if (Few) {
      add_in_place(rows_at, first, count, key0 + from, all.high - from);
      return;
    }
    for (int64_t j = 0; j < g.width; j += kNR)
      micros.fn[count - 1][panel_vectors(g.width, j / kNR) - 1](1, all.high - from, rows_at, &from,
                                                               memory + at.v + j * at.keys, at.keys * kPanel,
                                                               sums + first * at.panel + j, at.panel, true,
                                                               nullptr);
  }

  // Scores [from, high) of a few rows, keys read where they lie; zeros up to a whole vector.
  void score_in_place(const float* const* queries, int64_t count, int64_t key0, int64_t from, int64_t high) const {
    alignas(64) float part[kSkinny * kNR] = {};
    const float* k = g.k + b * g.ks[0] + group * g.ks[1] + key0 * g.ks[2];
    for (int64_t r = 0; r < count; r += kSkinny) {
      const int64_t some = count - r < kSkinny ? count - r : kSkinny;
      for (int64_t j = from; j < high; j += kNR) {
        const int64_t cols = high - j < kNR ? high - j : kNR;
        matmul_detail::skinny_dots(some, queries + r, k + j * g.ks[2], g.ks[2], g.size, cols, part);
        for (int64_t i = 0; i < some; ++i)
          __builtin_memcpy(memory + at.scores + (r + i) * at.keys + j, part + i * kNR, kNR * sizeof(float));
      }
    }
  }

  // sums += weights times v for a few rows, values read where they lie.
  void add_in_place(const float* const* weights, int64_t first, int64_t count, int64_t key, int64_t n) const {
    alignas(64) float part[kSkinny * kNR];
    const float* v = g.v + b * g.vs[0] + group * g.vs[1] + key * g.vs[2];
    for (int64_t j = 0; j < g.width; j += kNR) {
      const bool whole = g.vs[3] == 1 && g.width - j >= kNR;
      const int nv = panel_vectors(g.width, j / kNR);
      float* packed = memory + at.v;
      const int64_t columns = whole ? 0 : (g.width - j < kNR ? g.width - j : kNR);
      for (int64_t c = 0; c < columns; c += kPanel) {
        const int64_t cols = columns - c < kPanel ? columns - c : kPanel;
        matmul_detail::pack_panel(v + (j + c) * g.vs[3], g.vs[2], g.vs[3], n, cols, packed + c * n);
      }
      for (int64_t r = 0; r < count; r += kSkinny) {
        const int64_t some = count - r < kSkinny ? count - r : kSkinny;
        const int64_t zero = 0;
        if (whole) {
          matmul_detail::skinny_rows(some, weights + r, 1, v + j, g.vs[2], n, part);
        } else {
          skinny_table.fn[some - 1][nv - 1](1, n, weights + r, &zero, packed, n * kPanel, part, kNR, false,
                                         nullptr);
        }
        for (int64_t i = 0; i < some; ++i) {
          float* GW_RESTRICT sum = sums + (first + r + i) * at.panel + j;
          for (int64_t c = 0; c < nv * kLanes; c += kLanes) store(sum + c, load(sum + c) + load(part + i * kNR + c));
        }
      }
    }
  }

  GW_INLINE static int64_t clamp(int64_t x, int64_t high) { return x < 0 ? 0 : (x > high ? high : x); }

  void start() const {
    for (int64_t r = 0; r < rows; ++r) state[r] = Row{-__builtin_inff(), 0.0f};
    for (int64_t i = 0; i < rows * at.panel; i += kLanes) store(sums + i, splat(0.0f));
  }

  template <bool Few>
  void run(int64_t chunk0, int64_t chunk1) const {
    start();
    int64_t low = INT64_MAX, high = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const Range of = range_of(g, keys, step(row0 + r));
      if (of.low < of.high) {
        if (of.low < low) low = of.low;
        if (of.high > high) high = of.high;
      }
    }
    const int64_t tiles = (rows + kMR - 1) / kMR;
    for (int64_t c = chunk0; c < chunk1; ++c) {
      const int64_t key0 = c * kChunk, chunk = keys - key0 < kChunk ? keys - key0 : kChunk;
      if (key0 >= high || key0 + chunk <= low) continue;
      if (!Few) pack(key0, chunk);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = rows * t / tiles;
        tile<Few>(first, rows * (t + 1) / tiles - first, key0, chunk);
      }
    }
  }

  // Divides by the sums of weights and hands the rows on.
  template <class Epi>
  void finish(const Epi& epi) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT sum = sums + r * at.panel;
      const float total = state[r].total;
      if (total == 0.0f) {
        for (int64_t i = 0; i < at.panel; ++i) sum[i] = g.empty;
        continue;
      }
      const float each = 1.0f / total;
      GW_COLUMNS
      for (int64_t i = 0; i < at.panel; ++i) sum[i] *= each;
    }
    for (int64_t r = 0; r < rows;) {
      const int64_t s = step(row0 + r), left = g.steps - s, count = rows - r < left ? rows - r : left;
      epi(static_cast<const float*>(sums + r * at.panel), at.panel, b * g.heads + head(row0 + r), s, count,
          static_cast<int64_t>(0), g.width);
      r += count;
    }
  }

  // Joins the state of another part of the keys into this one.
  void join(const Row* other, const float* values) const {
    for (int64_t r = 0; r < rows; ++r) {
      const float most = other[r].most > state[r].most ? other[r].most : state[r].most;
      const float base = most == -__builtin_inff() ? 0.0f : most;
      const float mine = gw::exp(state[r].most - base), theirs = gw::exp(other[r].most - base);
      state[r] = Row{most, state[r].total * mine + other[r].total * theirs};
      float* GW_RESTRICT sum = sums + r * at.panel;
      const float* GW_RESTRICT more = values + r * at.panel;
      GW_COLUMNS
      for (int64_t i = 0; i < at.panel; ++i) sum[i] = sum[i] * mine + more[i] * theirs;
    }
  }
};

}  // namespace attention_detail

template <Bias kind, class Epi>
inline void attention(const Attention& g, const Epi& epi, const gw_pool* pool) {
  using namespace attention_detail;
  const int64_t rows = g.groups > 0 ? g.heads / g.groups * g.steps : 0, count = g.batch * g.groups;
  if (rows <= 0 || count <= 0 || g.width <= 0) return;
  const int64_t chunks = (g.length + kChunk - 1) / kChunk;
  const bool few = rows <= kFewRows && g.ks[3] == 1;
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(g.length) *
                       static_cast<double>(g.size + g.width + 16);
  const int64_t grain = flops > 0 ? static_cast<int64_t>(kUnitFlops / flops) + 1 : count;
  const int64_t threads = thread_count(pool);
  if (few) {
    int64_t parts = count < kManyGroups ? chunks : 1;
    if (parts > kManyParts) parts = kManyParts;
    if (parts < 1) parts = 1;
    const Areas at(g, rows);
    const int64_t partial = at.all - at.rows;
    float* memory = scratch(threads * at.all + (parts > 1 ? parts * count * partial : 0));
    float* results = memory + threads * at.all;
    parallel_for(pool, count * parts, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t part = unit % parts;
        Block<kind> block(g, at, memory + thread * at.all, unit / parts, 0, rows);
        if (parts > 1) {
          block.state = reinterpret_cast<Row*>(results + unit * partial);
          block.sums = results + unit * partial + (at.sums - at.rows);
        }
        block.template run<true>(chunks * part / parts, chunks * (part + 1) / parts);
        if (parts == 1) block.finish(epi);
      }
    });
    for (int64_t which = 0; which < count && parts > 1; ++which) {
      Block<kind> block(g, at, memory, which, 0, rows);
      float* first = results + which * parts * partial;
      block.state = reinterpret_cast<Row*>(first);
      block.sums = first + (at.sums - at.rows);
      for (int64_t part = 1; part < parts; ++part)
        block.join(reinterpret_cast<const Row*>(first + part * partial), first + part * partial + (at.sums - at.rows));
      block.finish(epi);
    }
    return;
  }
  int64_t blocks = (rows + kBlock - 1) / kBlock;
  const int64_t wanted = (2 * threads + count - 1) / count, most = (rows + 2 * kMR - 1) / (2 * kMR);
  if (threads > 1 && blocks < wanted && flops * static_cast<double>(count) > kSerialFlops)
    blocks = wanted < most ? wanted : most;
  const Areas at(g, (rows + blocks - 1) / blocks);
  float* memory = scratch(threads * at.all);
  parallel_for(pool, count * blocks, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % blocks, first = rows * part / blocks;
      Block<kind> block(g, at, memory + thread * at.all, unit / blocks, first, rows * (part + 1) / blocks - first);
      block.template run<false>(0, chunks);
      block.finish(epi);
    }
  });
}

}  // namespace gw
