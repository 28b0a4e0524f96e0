// Max and average pooling of channels-last tensors, one to three spatial axes, with padding, strides,
// dilation, ceil mode; global pooling is a kernel as large as the image.
//
//   max:      y = max over the window's positions inside the image (NaN wins)
//   average:  y = sum over them / their number, or with count_include_pad / the positions inside the padded
//             image [-pad, in + pad_end), as ONNX (since opset 19) and torch count in ceil mode
//
// Vectorised over channels, 4 vectors at a time; a tile is up to 8 neighbouring output pixels. Sums are
// added up per kernel row, then over rows, so that global means of large images keep float accuracy. The
// machine's maximum drops NaN, so the maximum of a window also adds its values up: only a sum that is NaN
// (a NaN, or infinities of both signs) takes the exact and slower way.
// Work is cut in output rows, and in channel blocks too when there are few rows (global pooling).
//
// Epilogue as in conv.h: row = flattened output position, col = channel. The caller guarantees that each
// max window touches the image; strides of x are free, its channel stride is 1.
#pragma once
#include "contract.h"

namespace gw GW_HIDDEN {

struct Pooling {
  const float* x = nullptr;
  int64_t n = 1, channels = 0;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t pad[3] = {0, 0, 0}, pad_end[3] = {0, 0, 0};  // pad_end matters to count_include_pad alone
  int64_t xn = 0, xs[3] = {0, 0, 0};                   // strides in floats: image, then depth, height, width
  bool count_include_pad = false;
};

namespace pooling_detail {

constexpr int kVectors = 4;
constexpr int kWidth = kVectors * kLanes;

// (x > a) ? x : a, one instruction
GW_INLINE vf larger(vf a, vf x) { return x > a ? x : a; }
// The same, but NaN wins.
GW_INLINE vf larger_or_nan(vf a, vf x) { return ((x > a) | (x != x)) ? x : a; }

// Kernel positions [first, last) of one axis whose input position lies in [low, high).
struct Range {
  int64_t first, last;
};
inline Range clip_axis(const Pooling& c, int axis, int64_t o, int64_t low, int64_t high) {
  const int64_t start = o * c.stride[axis] - c.pad[axis], d = c.dilation[axis];
  Range r{0, c.kernel[axis]};
  if (start < low) r.first = (low - start + d - 1) / d;
  if (start + (r.last - 1) * d >= high) r.last = high > start ? (high - start + d - 1) / d : 0;
  if (r.first > r.last) r.first = r.last;
  return r;
}

// One tile: output pixels of a line and where their windows are.
struct Pixels {
  int64_t count;
  Range rows[2];      // depth, height: common to the line
  Range columns[8];
  float divisor[8];
};

template <int NV>
GW_INLINE void load_vectors(const float* at, int64_t partial, vf* x) {
  GW_UNROLL
  for (int v = 0; v < NV - 1; ++v) x[v] = load(at + v * kLanes);
  x[NV - 1] = load_partial(at + (NV - 1) * kLanes, partial);
}

// Exact maximum of one window: NaN wins.
template <int NV>
GW_NOINLINE void max_with_nan(const Pooling& c, const float* x, const Pixels& p, int64_t i, int64_t partial,
                              float* to) {
  vf top[NV], value[NV];
  GW_UNROLL
  for (int v = 0; v < NV; ++v) top[v] = splat(-__builtin_inff());
  for (int64_t kd = p.rows[0].first; kd < p.rows[0].last; ++kd) {
    for (int64_t kh = p.rows[1].first; kh < p.rows[1].last; ++kh) {
      for (int64_t kw = p.columns[i].first; kw < p.columns[i].last; ++kw) {
        load_vectors<NV>(x + kd * c.dilation[0] * c.xs[0] + kh * c.dilation[1] * c.xs[1] +
                             kw * c.dilation[2] * c.xs[2], partial, value);
        GW_UNROLL
        for (int v = 0; v < NV; ++v) top[v] = larger_or_nan(top[v], value[v]);
      }
    }
  }
  GW_UNROLL
  for (int v = 0; v < NV; ++v) store(to + v * kLanes, top[v]);
}

// NV vectors of channels of the pixels; x points at kernel position (0, 0, 0) of the first one.
template <bool Mean, int NV>
GW_NOINLINE void windows(const Pooling& c, const float* x, const Pixels& p, int64_t partial, float* to) {
  const int64_t step = c.dilation[2] * c.xs[2], down = c.dilation[1] * c.xs[1];
  const int64_t next = c.stride[2] * c.xs[2];
  vf doubt = splat(0.0f);
  for (int64_t i = 0; i < p.count; ++i, x += next, to += kWidth) {
    vf total[NV], top[NV], value[NV];
    GW_UNROLL
    for (int v = 0; v < NV; ++v) total[v] = splat(0.0f), top[v] = splat(-__builtin_inff());
    const int64_t columns = p.columns[i].last - p.columns[i].first;
    for (int64_t kd = p.rows[0].first; kd < p.rows[0].last; ++kd) {
      const float* plane = x + kd * c.dilation[0] * c.xs[0] + p.columns[i].first * step;
      for (int64_t kh = p.rows[1].first; kh < p.rows[1].last; ++kh) {
        const float* from = plane + kh * down;
        if (Mean) {
          vf line[NV];
          GW_UNROLL
          for (int v = 0; v < NV; ++v) line[v] = splat(0.0f);
          for (int64_t kw = 0; kw < columns; ++kw, from += step) {
            load_vectors<NV>(from, partial, value);
            GW_UNROLL
            for (int v = 0; v < NV; ++v) line[v] += value[v];
          }
          GW_UNROLL
          for (int v = 0; v < NV; ++v) total[v] += line[v];
        } else {
          for (int64_t kw = 0; kw < columns; ++kw, from += step) {
            load_vectors<NV>(from, partial, value);
            GW_UNROLL
            for (int v = 0; v < NV; ++v) {
              total[v] += value[v];
              top[v] = larger(top[v], value[v]);
            }
          }
        }
      }
    }
    if (Mean) {
      const vf divisor = splat(p.divisor[i]);
      GW_UNROLL
      for (int v = 0; v < NV; ++v) store(to + v * kLanes, total[v] / divisor);
    } else {
      GW_UNROLL
      for (int v = 0; v < NV; ++v) {
        doubt += total[v] - total[v];
        store(to + v * kLanes, top[v]);
      }
    }
  }
  if (!Mean && !all_equal_zero(doubt)) {
    for (int64_t i = p.count - 1; i >= 0; --i)
      max_with_nan<NV>(c, x - (p.count - i) * next, p, i, partial, to - (p.count - i) * kWidth);
  }
}

template <bool Mean>
GW_INLINE void block_windows(const Pooling& c, const float* x, const Pixels& p, int64_t channels, float* to) {
  const int64_t partial = channels % kLanes ? channels % kLanes : kLanes;
  switch ((channels + kLanes - 1) / kLanes) {
    case 1: return windows<Mean, 1>(c, x, p, partial, to);
    case 2: return windows<Mean, 2>(c, x, p, partial, to);
    case 3: return windows<Mean, 3>(c, x, p, partial, to);
    default: return windows<Mean, 4>(c, x, p, partial, to);
  }
}

template <bool Mean, class Epi>
inline void pool(const Pooling& c, const Epi& epi, const gw_pool* pool) {
  constexpr int64_t kPixels = 8;
  const int64_t lines = c.n * c.out[0] * c.out[1];
  const int64_t blocks = (c.channels + kWidth - 1) / kWidth;
  const int64_t parts = lines >= 2 * thread_count(pool) ? 1 : blocks;  // channel parts of a line
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const int64_t work = c.out[2] * c.channels / parts * taps;
  const int64_t grain = work > 0 ? 100000 / work + 1 : lines;
  parallel_for(pool, lines * parts, grain, [&](int64_t begin, int64_t end, int) {
    alignas(64) float tile[kPixels * kWidth];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t line = unit / parts, part = unit % parts;
      const int64_t oh = line % c.out[1], od = line / c.out[1] % c.out[0];
      const int64_t image = line / c.out[1] / c.out[0];
      Pixels p;
      p.rows[0] = clip_axis(c, 0, od, 0, c.in[0]);
      p.rows[1] = clip_axis(c, 1, oh, 0, c.in[1]);
      int64_t lines_in = (p.rows[0].last - p.rows[0].first) * (p.rows[1].last - p.rows[1].first);
      if (Mean && c.count_include_pad) {
        const Range d = clip_axis(c, 0, od, -c.pad[0], c.in[0] + c.pad_end[0]);
        const Range h = clip_axis(c, 1, oh, -c.pad[1], c.in[1] + c.pad_end[1]);
        lines_in = (d.last - d.first) * (h.last - h.first);
      }
      const float* x = c.x + image * c.xn + (od * c.stride[0] - c.pad[0]) * c.xs[0] +
                       (oh * c.stride[1] - c.pad[1]) * c.xs[1] - c.pad[2] * c.xs[2];
      const int64_t first = parts == 1 ? 0 : part, last = parts == 1 ? blocks : part + 1;
      for (int64_t ow = 0; ow < c.out[2]; ow += kPixels) {
        p.count = c.out[2] - ow < kPixels ? c.out[2] - ow : kPixels;
        const int64_t px = p.count;
        for (int64_t i = 0; i < px; ++i) {
          p.columns[i] = clip_axis(c, 2, ow + i, 0, c.in[2]);
          Range counted = p.columns[i];
          if (Mean && c.count_include_pad)
            counted = clip_axis(c, 2, ow + i, -c.pad[2], c.in[2] + c.pad_end[2]);
          p.divisor[i] = static_cast<float>(lines_in * (counted.last - counted.first));
        }
        for (int64_t block = first; block < last; ++block) {
          const int64_t c0 = block * kWidth, left = c.channels - c0;
          block_windows<Mean>(c, x + ow * c.stride[2] * c.xs[2] + c0, p, left < kWidth ? left : kWidth, tile);
          const int64_t row0 = line * c.out[2] + ow;
          if (left >= kWidth) {
            epi(static_cast<const float*>(tile), kWidth, 0, row0, px, c0, kWidth);
          } else {
            epi(static_cast<const float*>(tile), kWidth, 0, row0, px, c0, left);
          }
        }
      }
    }
  });
}

}  // namespace pooling_detail

template <class Epi>
inline void max_pool(const Pooling& c, const Epi& epi, const gw_pool* pool) {
  pooling_detail::pool<false>(c, epi, pool);
}

template <class Epi>
inline void average_pool(const Pooling& c, const Epi& epi, const gw_pool* pool) {
  pooling_detail::pool<true>(c, epi, pool);
}

}  // namespace gw
