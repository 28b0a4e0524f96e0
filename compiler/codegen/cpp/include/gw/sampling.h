// Sampling between elements (grid_sample, roi_align) and determinants: compiler/ir/ops/sampling.py says what
// they mean. Coordinates, weights and sums are in double. Indices are kept inside whatever the data says.
#pragma once
#include <stdint.h>

#include "loops.h"
#include "math.h"
#include "pool.h"

namespace gw GW_HIDDEN {

enum class Padding { zeros, border, reflection };
enum class Sampling { nearest, linear, cubic };

struct Taps {
  int64_t index[4];  // -1: a zero
  double weight[4];
};

inline double reflect(double x, double low, double high) {
  const double span = high - low;
  if (span <= 0) return low;
  if (x >= low && x <= high) return x;
  const double far = __builtin_fmod(abs(x - low), 2 * span);
  return low + (far < 2 * span - far ? far : 2 * span - far);
}

inline void grid_taps(double x, int64_t size, Sampling mode, Padding padding, bool aligned, Taps& taps) {
  const double extent = static_cast<double>(size), last = extent - 1;
  const double low = aligned ? 0.0 : -0.5, high = aligned ? last : extent - 0.5;
  double at = aligned ? (x + 1) / 2 * last : ((x + 1) * extent - 1) / 2;
  if (mode == Sampling::nearest) at = round_even(at);
  const bool moved = mode != Sampling::cubic;  // a cubic kernel lies around the position itself
  if (moved && padding == Padding::border && (at < low || at > high)) at = at < 0 ? 0 : (at > last ? last : at);
  if (moved && padding == Padding::reflection) at = reflect(at, low, high);
  const double base = mode == Sampling::nearest ? trunc(at) : floor(at), t = at - base;
  const int count = mode == Sampling::nearest ? 1 : mode == Sampling::linear ? 2 : 4;
  const int first = mode == Sampling::cubic ? -1 : 0;
  if (mode == Sampling::nearest) {
    taps.weight[0] = 1;
  } else if (mode == Sampling::linear) {
    taps.weight[0] = 1 - t;
    taps.weight[1] = t;
  } else {
    constexpr double a = -0.75;
    const auto far = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const auto near = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    taps.weight[0] = far(1 + t);
    taps.weight[1] = near(t);
    taps.weight[2] = near(1 - t);
    taps.weight[3] = far(2 - t);
  }
  for (int k = 0; k < count; ++k) {
    double place = base + first + k;
    if (padding == Padding::reflection) place = trunc(reflect(place, low, high));
    if (padding != Padding::zeros) place = place < 0 ? 0 : (place > last ? last : place);
    taps.index[k] = place >= 0 && place <= last ? static_cast<int64_t>(place) : -1;
  }
}

struct GridSample {
  int64_t images = 1, channels = 1, positions = 1;
  int axes = 2;  // spatial ones; `extent` has the last three of them, ones before
  int64_t extent[3] = {1, 1, 1};
  Sampling mode = Sampling::linear;
  Padding padding = Padding::zeros;
  bool align_corners = false;
};

template <class T>
inline void grid_sample(const GridSample& s, const T* x, const T* grid, T* y, const gw_pool* pool) {
  const int count = s.mode == Sampling::nearest ? 1 : s.mode == Sampling::linear ? 2 : 4;
  const int64_t plane = s.extent[0] * s.extent[1] * s.extent[2];
  const int64_t cost = 64 * count * count * s.channels;
  parallel_for(pool, s.images * s.positions, grain(cost), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t n = item / s.positions, p = item % s.positions;
      Taps taps[3] = {{{0}, {1}}, {{0}, {1}}, {{0}, {1}}};
      int counts[3] = {1, 1, 1};
      for (int i = 0; i < s.axes; ++i) {
        const int axis = 3 - s.axes + i;
        const double at = static_cast<double>(grid[item * s.axes + (s.axes - 1 - i)]);
        grid_taps(at, s.extent[axis], s.mode, s.padding, s.align_corners, taps[axis]);
        counts[axis] = count;
      }
      for (int64_t c = 0; c < s.channels; ++c) {
        const T* from = x + (n * s.channels + c) * plane;
        double sum = 0;
        for (int i = 0; i < counts[0]; ++i) {
          for (int j = 0; j < counts[1]; ++j) {
            for (int k = 0; k < counts[2]; ++k) {
              const int64_t a = taps[0].index[i], b = taps[1].index[j], d = taps[2].index[k];
              if (a < 0 || b < 0 || d < 0) continue;
              const double weight = taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k];
              sum += static_cast<double>(from[(a * s.extent[1] + b) * s.extent[2] + d]) * weight;
            }
          }
        }
        y[(n * s.channels + c) * s.positions + p] = static_cast<T>(sum);
      }
    }
  });
}

struct RoiAlign {
  int64_t images = 1, channels = 1, rows = 1, columns = 1, regions = 0, height = 1, width = 1, sampling = 0;
  double scale = 1;
  bool half_pixel = true, maximum = false;
};

struct Neighbours {
  int64_t low, high;
  double near, far;  // weights of the two, 0 outside
};

inline Neighbours neighbours(double at, int64_t extent) {
  const double last = static_cast<double>(extent - 1);
  if (!(at >= -1 && at <= last + 1)) return {0, 0, 0, 0};
  at = at < 0 ? 0 : at;
  const double low = trunc(at) < last ? trunc(at) : last, t = low >= last ? 0 : at - low;
  const int64_t i = static_cast<int64_t>(low);
  return {i, smaller(i + 1, extent - 1), 1 - t, t};
}

template <class T, class I>
inline void roi_align(const RoiAlign& s, const T* x, const T* rois, const I* images, T* y, const gw_pool* pool) {
  const int64_t each = s.height * s.width;
  parallel_for(pool, s.regions * s.channels, grain(256 * each), [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item / s.channels, c = item % s.channels;
      const int64_t image = wrap_index(static_cast<int64_t>(images[r]), s.images);
      const T* from = x + (image * s.channels + c) * s.rows * s.columns;
      double corner[4];
      for (int i = 0; i < 4; ++i) {
        corner[i] = static_cast<double>(rois[r * 4 + i]) * s.scale - (s.half_pixel ? 0.5 : 0.0);
      }
      double w = corner[2] - corner[0], h = corner[3] - corner[1];
      if (!s.half_pixel) {
        w = w > 1 ? w : 1;
        h = h > 1 ? h : 1;
      }
      w /= static_cast<double>(s.width);
      h /= static_cast<double>(s.height);
      // An adaptive count is bounded: a region of absurd size must not run for ever.
      const auto samples = [&](double size) {
        if (s.sampling) return s.sampling;
        const double n = ceil(size);
        return n > 0 ? static_cast<int64_t>(n < 4096 ? n : 4096) : static_cast<int64_t>(0);
      };
      const int64_t ny = samples(h), nx = samples(w);
      for (int64_t bin = 0; bin < each; ++bin) {
        const double top = corner[1] + static_cast<double>(bin / s.width) * h;
        const double left = corner[0] + static_cast<double>(bin % s.width) * w;
        double sum = 0, best = 0;
        bool any = false;
        for (int64_t i = 0; i < ny; ++i) {
          const Neighbours v = neighbours(top + (static_cast<double>(i) + 0.5) * h / static_cast<double>(ny), s.rows);
          for (int64_t j = 0; j < nx; ++j) {
            const Neighbours u =
                neighbours(left + (static_cast<double>(j) + 0.5) * w / static_cast<double>(nx), s.columns);
            const double terms[4] = {
                static_cast<double>(from[v.low * s.columns + u.low]) * (v.near * u.near),
                static_cast<double>(from[v.low * s.columns + u.high]) * (v.near * u.far),
                static_cast<double>(from[v.high * s.columns + u.low]) * (v.far * u.near),
                static_cast<double>(from[v.high * s.columns + u.high]) * (v.far * u.far)};
            for (const double term : terms) {
              sum += term;
              best = any ? maximum(best, term) : term;
              any = true;
            }
          }
        }
        const double count = static_cast<double>(larger(ny * nx, 1));
        y[item * each + bin] = static_cast<T>(s.maximum ? best : sum / count);
      }
    }
  });
}

// Gaussian elimination with partial pivoting, in double; `space` holds n * n numbers.
template <class T>
inline void determinants(const T* x, T* y, int64_t matrices, int64_t n, double* space) {
  for (int64_t m = 0; m < matrices; ++m) {
    for (int64_t i = 0; i < n * n; ++i) space[i] = static_cast<double>(x[m * n * n + i]);
    double product = 1;
    for (int64_t k = 0; k < n; ++k) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < n; ++i) {
        if (abs(space[i * n + k]) > abs(space[pivot * n + k])) pivot = i;
      }
      if (pivot != k) {
        product = -product;
        for (int64_t j = k; j < n; ++j) {
          const double kept = space[k * n + j];
          space[k * n + j] = space[pivot * n + j];
          space[pivot * n + j] = kept;
        }
      }
      const double head = space[k * n + k];
      product *= head;
      if (head == 0) break;
      for (int64_t i = k + 1; i < n; ++i) {
        const double factor = space[i * n + k] / head;
        for (int64_t j = k + 1; j < n; ++j) space[i * n + j] -= factor * space[k * n + j];
      }
    }
    y[m] = static_cast<T>(product);
  }
}

}  // namespace gw
