// Deformed kernels and maxima of regions: compiler/ir/ops/deform.py says what they mean. Coordinates and sums are in double.
#pragma once
#include <math.h>
#include <stdint.h>

#include "loops.h"
#include "pool.h"

namespace gw GW_HIDDEN {

struct DeformColumns {
  int64_t images = 1, channels = 1, height = 1, width = 1, rows = 1, columns = 1;
  int64_t kernel[2] = {1, 1}, strides[2] = {1, 1}, low[2] = {0, 0}, dilations[2] = {1, 1};
  int64_t groups = 1;
};

template <class T>
inline void deform_columns(const DeformColumns& s, const T* x, const T* offset, const T* mask, T* y,
                           const gw_pool* pool) {
  const int64_t taps = s.kernel[0] * s.kernel[1], positions = s.rows * s.columns, each = s.channels / s.groups;
  parallel_for(pool, s.images * s.groups * taps, grain(32 * positions * each), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t k = item % taps, g = item / taps % s.groups, n = item / taps / s.groups;
      const T* const dy = offset + item * 2 * positions;
      const T* const dx = dy + positions;
      const T* const factor = mask ? mask + item * positions : nullptr;
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t row = p / s.columns * s.strides[0] - s.low[0] + k / s.kernel[1] * s.dilations[0];
        const int64_t column = p % s.columns * s.strides[1] - s.low[1] + k % s.kernel[1] * s.dilations[1];
        const double at[2] = {static_cast<double>(row) + static_cast<double>(dy[p]),
                              static_cast<double>(column) + static_cast<double>(dx[p])};
        const double base[2] = {::floor(at[0]), ::floor(at[1])};
        int64_t place[4];
        double weight[4];
        int count = 0;
        for (int corner = 0; corner < 4; ++corner) {
          const int i = corner >> 1, j = corner & 1;
          const double r = base[0] + i, c = base[1] + j;
          if (!(r >= 0 && r < static_cast<double>(s.height) && c >= 0 && c < static_cast<double>(s.width))) continue;
          const double t = at[0] - base[0], u = at[1] - base[1];
          weight[count] = (i ? t : 1 - t) * (j ? u : 1 - u);
          place[count++] = static_cast<int64_t>(r) * s.width + static_cast<int64_t>(c);
        }
        const double scale = factor ? static_cast<double>(factor[p]) : 1.0;
        for (int64_t c = g * each; c < (g + 1) * each; ++c) {
          const T* const from = x + (n * s.channels + c) * s.height * s.width;
          double sum = 0;
          for (int i = 0; i < count; ++i) sum += static_cast<double>(from[place[i]]) * weight[i];
          y[((n * s.channels + c) * taps + k) * positions + p] = static_cast<T>(factor ? sum * scale : sum);
        }
      }
    }
  });
}

struct MaxRoiPool {
  int64_t images = 1, channels = 1, rows = 1, columns = 1, regions = 0, height = 1, width = 1;
  double scale = 1;
};

template <class T>
inline void max_roi_pool(const MaxRoiPool& s, const T* x, const T* rois, T* y, const gw_pool* pool) {
  const auto edge = [](double at, int64_t first, int64_t extent) {
    return smaller(larger(static_cast<int64_t>(at) + first, 0), extent);
  };
  const auto whole = [](double v) {  // kept where a region can have a meaning, whatever the data say
    const double limit = 1e15, r = ::round(v);
    return static_cast<int64_t>(r > limit ? limit : (r > -limit ? r : -limit));
  };
  parallel_for(pool, s.regions * s.channels, grain(256 * s.height * s.width), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item / s.channels, c = item % s.channels;
      const T* const region = rois + r * 5;
      int64_t corner[4];
      for (int i = 0; i < 4; ++i) corner[i] = whole(static_cast<double>(region[1 + i]) * s.scale);
      const int64_t image = wrap_index(whole(static_cast<double>(region[0])), s.images);
      const T* const from = x + (image * s.channels + c) * s.rows * s.columns;
      const double high = static_cast<double>(larger(corner[3] - corner[1] + 1, 1)) / static_cast<double>(s.height);
      const double wide = static_cast<double>(larger(corner[2] - corner[0] + 1, 1)) / static_cast<double>(s.width);
      for (int64_t i = 0; i < s.height; ++i) {
        const int64_t top = edge(::floor(static_cast<double>(i) * high), corner[1], s.rows);
        const int64_t bottom = edge(::ceil(static_cast<double>(i + 1) * high), corner[1], s.rows);
        for (int64_t j = 0; j < s.width; ++j) {
          const int64_t left = edge(::floor(static_cast<double>(j) * wide), corner[0], s.columns);
          const int64_t right = edge(::ceil(static_cast<double>(j + 1) * wide), corner[0], s.columns);
          bool any = false;
          T most = 0;
          for (int64_t a = top; a < bottom; ++a) {
            for (int64_t b = left; b < right; ++b) {
              const T v = from[a * s.columns + b];
              if (!any || v > most || v != v) most = most != most && any ? most : v;
              any = true;
            }
          }
          y[(item * s.height + i) * s.width + j] = most;
        }
      }
    }
  });
}

}  // namespace gw
