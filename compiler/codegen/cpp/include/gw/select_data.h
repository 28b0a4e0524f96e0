// Ops whose results have as many elements as the data say: each fills the front of its results and
// tells how much of them. `at` reads an element of the operand: at(i), or at(row, column).
#pragma once
#include <stdint.h>

#include <algorithm>
#include <vector>

#include "pool.h"
#include "simd.h"

namespace gw GW_HIDDEN {

// positions[0..count): the i below n with at(i), ascending; zeros from there to n. Blocks are counted, then
// filled, on all threads, so that every thread knows where its part begins.
template <class At>
inline void non_zero(const gw_pool* pool, int64_t n, At at, int64_t* positions, int64_t* count) {
  constexpr int64_t kBlock = 1 << 14;
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const auto fill = [&](int64_t block, int64_t* to) {
    const int64_t begin = block * kBlock, end = std::min(n, begin + kBlock);
    int64_t k = 0;
    for (int64_t i = begin; i < end; ++i) {
      to[k] = i;  // k <= i - begin: stays inside the block's own part
      k += at(i) ? 1 : 0;
    }
    return k;
  };
  if (blocks <= 1) {
    const int64_t found = blocks ? fill(0, positions) : 0;
    std::fill(positions + found, positions + n, int64_t{0});
    *count = found;
    return;
  }
  std::vector<int64_t> found(blocks);
  gw::parallel_for(pool, blocks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) found[b] = fill(b, positions + b * kBlock);
  });
  int64_t total = found[0];
  for (int64_t b = 1; b < blocks; ++b) {
    if (total != b * kBlock) {
      std::copy(positions + b * kBlock, positions + b * kBlock + found[b], positions + total);
    }
    total += found[b];
  }
  std::fill(positions + total, positions + n, int64_t{0});
  *count = total;
}

template <class T>
inline int compare_values(T a, T b) {  // NaN is equal to itself and above every number
  if (a < b) return -1;
  if (b < a) return 1;
  return (a != a) - (b != b);
}

// The different rows of an n x m tensor; see the IR's `unique`.
template <bool Sorted, class At>
inline void unique(int64_t n, int64_t m, At at, int64_t* first, int64_t* inverse, int64_t* counts,
                   int64_t* count) {
  const auto compare = [&](int64_t i, int64_t j) {
    for (int64_t c = 0; c < m; ++c) {
      const int order = compare_values(at(i, c), at(j, c));
      if (order) return order;
    }
    return 0;
  };
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const int by_value = compare(i, j);
    return by_value ? by_value < 0 : i < j;
  });
  int64_t groups = 0;
  std::fill(first, first + n, int64_t{0});
  std::fill(counts, counts + n, int64_t{0});
  for (int64_t k = 0; k < n; ++k) {
    if (k == 0 || compare(order[k - 1], order[k]) != 0) first[groups++] = order[k];
    inverse[order[k]] = groups - 1;
    ++counts[groups - 1];
  }
  if (!Sorted) {
    std::vector<int64_t> by_first(groups), number(groups), held(counts, counts + groups);
    for (int64_t g = 0; g < groups; ++g) by_first[g] = g;
    std::sort(by_first.begin(), by_first.end(),
              [&](int64_t a, int64_t b) { return first[a] < first[b]; });
    for (int64_t g = 0; g < groups; ++g) number[by_first[g]] = g;
    std::sort(first, first + groups);
    for (int64_t g = 0; g < groups; ++g) counts[number[g]] = held[g];
    for (int64_t i = 0; i < n; ++i) inverse[i] = number[inverse[i]];
  }
  *count = groups;
}

struct Box {
  float low[2], high[2], area;
};

template <bool Centered>
inline Box make_box(float a, float b, float c, float d) {
  Box box;
  if (Centered) {
    box.low[0] = a - c / 2, box.high[0] = a + c / 2;
    box.low[1] = b - d / 2, box.high[1] = b + d / 2;
  } else {
    box.low[0] = std::min(a, c), box.high[0] = std::max(a, c);
    box.low[1] = std::min(b, d), box.high[1] = std::max(b, d);
  }
  box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
  return box;
}

inline float overlap(const Box& a, const Box& b) {
  float side[2];
  for (int i = 0; i < 2; ++i) {
    side[i] = std::max(std::min(a.high[i], b.high[i]) - std::max(a.low[i], b.low[i]), 0.0f);
  }
  const float common = side[0] * side[1], all = a.area + b.area - common;
  return std::min(a.area, b.area) > 0 && all > 0 ? common / all : 0.0f;
}

// boxes(i): four numbers of box i of all batches, `box(b * n + i, k)`; score((b * classes + c) * n + i). Each
// (batch, class) is done by one thread into its own `limit` rows; the rows then close up.
template <bool Centered, class BoxAt, class Score>
inline void non_max_suppression(const gw_pool* pool, int64_t batches, int64_t classes, int64_t n,
                                int64_t limit, BoxAt box, Score score, int64_t most, float most_overlap,
                                float least_score, int64_t* selected, int64_t* count) {
  most = std::max<int64_t>(std::min(most, limit), 0);
  std::vector<Box> all(batches * n);
  for (int64_t i = 0; i < batches * n; ++i) {
    all[i] = make_box<Centered>(box(i, 0), box(i, 1), box(i, 2), box(i, 3));
  }
  std::vector<int64_t> found(batches * classes, 0);
  gw::parallel_for(pool, most ? batches * classes : 0, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<int64_t> order;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch = row / classes;
      order.clear();
      for (int64_t i = 0; i < n; ++i) {
        if (score(row * n + i) > least_score) order.push_back(i);
      }
      std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        const float a = score(row * n + i), b = score(row * n + j);
        return a != b ? a > b : i < j;
      });
      int64_t* to = selected + row * limit * 3;
      int64_t taken = 0;
      for (const int64_t i : order) {
        if (taken == most) break;
        const Box& candidate = all[batch * n + i];
        bool keep = true;
        for (int64_t k = 0; keep && k < taken; ++k) {
          keep = overlap(candidate, all[batch * n + to[3 * k + 2]]) <= most_overlap;
        }
        if (!keep) continue;
        to[3 * taken] = batch, to[3 * taken + 1] = row % classes, to[3 * taken + 2] = i;
        ++taken;
      }
      found[row] = taken;
    }
  });
  int64_t total = 0;
  for (int64_t row = 0; row < batches * classes; ++row) {
    std::copy(selected + row * limit * 3, selected + (row * limit + found[row]) * 3,
              selected + total * 3);
    total += found[row];
  }
  std::fill(selected + total * 3, selected + batches * classes * limit * 3, int64_t{0});
  *count = total;
}

}  // namespace gw
