// Tables of a resize along one axis: which elements make each result element, and with which weights.
// Coordinates are calculated in double, as the IR's reference does (compiler/ir/ops/resize.py).
#pragma once
#include <stdint.h>

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

}  // namespace gw
