// Tables of a resize along one axis: which elements make each result element, and with which weights.
// Coordinates are calculated in double, as the IR's reference does (compiler/ir/ops/resize.py).
#pragma once
#include <stdint.h>

#include <vector>

#include "loops.h"
#include "math.h"

namespace gw GW_HIDDEN {

enum class Resampling { nearest, linear, cubic };
enum class Coordinates {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_crop_and_resize,
  tf_half_pixel_for_nn,
};
enum class Nearest { round_prefer_floor, round_prefer_ceil, floor, ceil };

struct ResizeAxis {
  int64_t extent = 0, size = 0;
  double scale = 0;  // 0: size / extent
  Coordinates coordinates = Coordinates::half_pixel;
  Nearest nearest = Nearest::round_prefer_floor;
  double cubic_a = -0.75;
  bool exclude_outside = false;
  double roi_start = 0, roi_end = 1;
  int reach = 0;  // antialiasing: elements to each side that the stretched kernel covers
};

inline double resize_coordinate(const ResizeAxis& a, int64_t i) {
  const double extent = static_cast<double>(a.extent), size = static_cast<double>(a.size);
  const double scale = a.scale > 0 ? a.scale : size / extent, place = static_cast<double>(i);
  switch (a.coordinates) {
    case Coordinates::asymmetric:
      return place / scale;
    case Coordinates::align_corners:
      return a.size > 1 ? place * (extent - 1) / (size - 1) : place;
    case Coordinates::tf_half_pixel_for_nn:
      return (place + 0.5) / scale;
    case Coordinates::tf_crop_and_resize:
      if (a.size == 1) return 0.5 * (a.roi_start + a.roi_end) * (extent - 1);
      return a.roi_start * (extent - 1) + place * (a.roi_end - a.roi_start) * (extent - 1) / (size - 1);
    case Coordinates::pytorch_half_pixel:
      if (a.size == 1) return place;
      break;
    case Coordinates::half_pixel_symmetric:
      return (place + 0.5) / scale - 0.5 + extent / 2 * (1 - size / (scale * extent));
    case Coordinates::half_pixel:
      break;
  }
  return (place + 0.5) / scale - 0.5;
}

// The kernel stretched by 1 / scale around `at`: 2 * reach weights that add up to 1; the first index.
template <class T>
inline int64_t antialiased(const ResizeAxis& a, Resampling mode, double at, T* weights) {
  const double scale = a.scale > 0 ? a.scale : static_cast<double>(a.size) / static_cast<double>(a.extent);
  const int64_t first = static_cast<int64_t>(ceil(at)) - a.reach;
  const auto weight = [&](int t) {
    if (a.exclude_outside && (first + t < 0 || first + t >= a.extent)) return 0.0;
    const double d = abs(static_cast<double>(first + t) - at) * scale, c = a.cubic_a;
    if (mode == Resampling::linear) return d < 1 ? 1 - d : 0.0;
    if (d <= 1) return ((c + 2) * d - (c + 3)) * d * d + 1;
    return d < 2 ? ((c * d - 5 * c) * d + 8 * c) * d - 4 * c : 0.0;
  };
  double sum = 0;
  for (int t = 0; t < 2 * a.reach; ++t) sum += weight(t);
  for (int t = 0; t < 2 * a.reach; ++t) weights[t] = static_cast<T>(weight(t) / sum);
  return first;
}

// index[i * taps + t] and weights likewise, with 1, 2 or 4 taps (2 * reach when antialiasing); outside[i] (may be null): beyond the image.
template <class T>
inline void resize_table(const ResizeAxis& a, Resampling mode, int64_t* index, T* weights, uint8_t* outside) {
  const int taps = mode == Resampling::nearest ? 1 : mode == Resampling::linear ? 2 : 4;
  for (int64_t i = 0; i < a.size; ++i) {
    const double at = resize_coordinate(a, i);
    if (outside) outside[i] = at < 0 || at > static_cast<double>(a.extent - 1);
    double w[4] = {1, 0, 0, 0};
    int64_t first;
    if (a.reach > 0) {
      first = antialiased(a, mode, at, weights + i * 2 * a.reach);
      for (int t = 0; t < 2 * a.reach; ++t) {
        index[i * 2 * a.reach + t] = smaller(larger(first + t, 0), a.extent - 1);
      }
      continue;
    }
    if (mode == Resampling::nearest) {
      double whole = 0;
      switch (a.nearest) {
        case Nearest::round_prefer_floor: whole = ceil(at - 0.5); break;
        case Nearest::round_prefer_ceil: whole = floor(at + 0.5); break;
        case Nearest::floor: whole = floor(at); break;
        case Nearest::ceil: whole = ceil(at); break;
      }
      first = static_cast<int64_t>(whole);
    } else {
      const double base = floor(at), t = at - base;
      first = static_cast<int64_t>(base);
      if (mode == Resampling::linear) {
        w[0] = 1 - t;
        w[1] = t;
      } else {  // R. Keys, Cubic convolution interpolation for digital image processing (1981), (4)
        const double c = a.cubic_a;
        const auto far = [=](double x) { return ((c * x - 5 * c) * x + 8 * c) * x - 4 * c; };
        const auto near = [=](double x) { return ((c + 2) * x - (c + 3)) * x * x + 1; };
        first -= 1;
        w[0] = far(1 + t);
        w[1] = near(t);
        w[2] = near(1 - t);
        w[3] = far(2 - t);
      }
      if (a.exclude_outside) {
        double sum = 0;
        for (int t_ = 0; t_ < taps; ++t_) {
          if (first + t_ < 0 || first + t_ >= a.extent) w[t_] = 0;
          sum += w[t_];
        }
        for (int t_ = 0; t_ < taps; ++t_) w[t_] /= sum;
      }
    }
    for (int t = 0; t < taps; ++t) {
      index[i * taps + t] = smaller(larger(first + t, 0), a.extent - 1);
      if (weights) weights[i * taps + t] = static_cast<T>(w[t]);
    }
  }
}

// What all axes share where scales or the reach of a stretched kernel are only known now.
struct ResizeRules {
  Coordinates coordinates = Coordinates::half_pixel;
  Nearest nearest = Nearest::round_prefer_floor;
  double cubic_a = -0.75;
  bool exclude_outside = false, antialias = false;
  double extrapolation = 0;
};

struct ResizeTaps {
  std::vector<int64_t> index;
  std::vector<double> weights;
  std::vector<uint8_t> outside;
  int64_t taps = 1, stride = 1;  // the stride of the operand
};

inline ResizeTaps resize_taps(ResizeAxis a, Resampling mode, const ResizeRules& rules) {
  a.coordinates = rules.coordinates;
  a.nearest = rules.nearest;
  a.cubic_a = rules.cubic_a;
  a.exclude_outside = rules.exclude_outside;
  ResizeTaps t;
  t.taps = mode == Resampling::nearest ? 1 : mode == Resampling::linear ? 2 : 4;
  const double scale = a.scale > 0 ? a.scale : static_cast<double>(a.size) / static_cast<double>(a.extent);
  if (rules.antialias && scale < 1 && mode != Resampling::nearest) {
    // No more than the whole axis, whatever the data say.
    const double reach = ceil((mode == Resampling::linear ? 1 : 2) / scale), most = static_cast<double>(a.extent) + 4;
    a.reach = static_cast<int>(reach < most ? reach : most);
    t.taps = 2 * a.reach;
  }
  const size_t count = static_cast<size_t>(a.size * t.taps);
  t.index.resize(count);
  t.weights.assign(count, 1.0);
  t.outside.assign(static_cast<size_t>(a.size), 0);
  const bool crop = rules.coordinates == Coordinates::tf_crop_and_resize;
  double* const weights = mode == Resampling::nearest ? nullptr : t.weights.data();
  resize_table<double>(a, mode, t.index.data(), weights, crop ? t.outside.data() : nullptr);
  bool identity = a.size == a.extent;
  for (int64_t i = 0; identity && i < a.size; ++i) {
    double own = 0;
    for (int64_t k = 0; k < t.taps; ++k) {
      const size_t e = static_cast<size_t>(i * t.taps + k);
      if (t.index[e] == i && t.weights[e] == 1) own += 1;
      else if (t.weights[e] != 0) identity = false;
    }
    identity = identity && own > 0;
  }
  if (identity) {  // infinities must not meet zero weights on an axis that is not resized
    for (int64_t i = 0; i < a.size; ++i) t.index[static_cast<size_t>(i)] = i;
    t.weights.assign(t.weights.size(), 1.0);
    t.taps = 1;
  }
  return t;
}

template <class V, class At>
inline V resize_sum(const ResizeTaps* table, const int64_t* place, int axis, int rank, int64_t offset, const At& at) {
  if (axis == rank) return at(offset);
  const ResizeTaps& t = table[axis];
  const int64_t first = place[axis] * t.taps;
  if (t.taps == 1) {
    return resize_sum<V>(table, place, axis + 1, rank, offset + t.index[static_cast<size_t>(first)] * t.stride, at);
  }
  V sum = 0;
  for (int64_t k = 0; k < t.taps; ++k) {
    const size_t e = static_cast<size_t>(first + k);
    const V part = resize_sum<V>(table, place, axis + 1, rank, offset + t.index[e] * t.stride, at);
    sum = static_cast<V>(sum + part * static_cast<V>(t.weights[e]));
  }
  return sum;
}

// The whole resize with tables made here: at(i) reads the element at an offset, store(i, v) writes one.
template <class V, class At, class Store>
inline void resize_any(const ResizeAxis* axes, int rank, Resampling mode, const ResizeRules& rules,
                       const int64_t* from, const int64_t* to, const gw_pool* pool, At at, Store store) {
  int64_t total = 1, elements = 1, cost = 32;
  for (int i = 0; i < rank; ++i) {
    total *= axes[i].size;
    elements *= axes[i].extent;
  }
  if (total == 0) return;
  if (elements == 0) {
    for (int64_t i = 0; i < total; ++i) store(i, V(0));
    return;
  }
  std::vector<ResizeTaps> table(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    table[static_cast<size_t>(i)] = resize_taps(axes[i], mode, rules);
    table[static_cast<size_t>(i)].stride = from[i];
    cost *= table[static_cast<size_t>(i)].taps;
  }
  parallel_for(pool, total, grain(cost), [&](int64_t begin, int64_t end, int) {
    std::vector<int64_t> place(static_cast<size_t>(rank) + 1);
    for (int64_t item = begin; item < end; ++item) {
      int64_t rest = item, offset = 0;
      bool outside = false;
      for (int i = rank - 1; i >= 0; --i) {
        place[static_cast<size_t>(i)] = rest % axes[i].size;
        rest /= axes[i].size;
        offset += place[static_cast<size_t>(i)] * to[i];
        outside = outside || table[static_cast<size_t>(i)].outside[static_cast<size_t>(place[static_cast<size_t>(i)])];
      }
      store(offset, outside ? static_cast<V>(rules.extrapolation)
                            : resize_sum<V>(table.data(), place.data(), 0, rank, 0, at));
    }
  });
}

}  // namespace gw
