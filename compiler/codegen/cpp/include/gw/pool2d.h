// Max and average pooling of channels-last tensors, one to three spatial axes, with padding, strides,
// dilation, ceil mode; global pooling is a kernel as large as the image.
//
//   max:      y = max over the window's positions inside the image (NaN wins)
//   average:  y = sum over them / their number, or with count_include_pad / the positions inside the padded
//             image [-pad, in + pad_end), as ONNX (since opset 19) and torch count in ceil mode
//
// Vectorised over channels, 4 vectors at a time; a tile is up to 8 neighbouring output pixels. Sums are
// added up per kernel row, then over rows, so that global means of large images keep float accuracy.
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

struct Max {
  static GW_INLINE vf start() { return splat(-__builtin_inff()); }
  static GW_INLINE vf combine(vf a, vf x) { return ((x > a) | (x != x)) ? x : a; }
  static constexpr bool kMean = false;
};
struct Mean {
  static GW_INLINE vf start() { return splat(0.0f); }
  static GW_INLINE vf combine(vf a, vf x) { return a + x; }
  static constexpr bool kMean = true;
};

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

// NV vectors of one output pixel; x points at kernel position (0, 0, 0).
template <class Op, int NV>
GW_NOINLINE void window(const Pooling& c, const float* x, const Range* r, float scale, int64_t partial,
                        float* to) {
  vf total[NV];
  GW_UNROLL
  for (int v = 0; v < NV; ++v) total[v] = Op::start();
  const int64_t step = c.dilation[2] * c.xs[2];
  for (int64_t kd = r[0].first; kd < r[0].last; ++kd) {
    for (int64_t kh = r[1].first; kh < r[1].last; ++kh) {
      const float* from = x + kd * c.dilation[0] * c.xs[0] + kh * c.dilation[1] * c.xs[1];
      vf line[NV];
      GW_UNROLL
      for (int v = 0; v < NV; ++v) line[v] = Op::start();
      for (int64_t kw = r[2].first; kw < r[2].last; ++kw) {
        GW_UNROLL
        for (int v = 0; v < NV; ++v) {
          const float* at = from + kw * step + v * kLanes;
          line[v] = Op::combine(line[v], v == NV - 1 ? load_partial(at, partial) : load(at));
        }
      }
      GW_UNROLL
      for (int v = 0; v < NV; ++v) total[v] = Op::combine(total[v], line[v]);
    }
  }
  GW_UNROLL
  for (int v = 0; v < NV; ++v) store(to + v * kLanes, Op::kMean ? total[v] / splat(scale) : total[v]);
}

template <class Op>
GW_INLINE void pixel(const Pooling& c, const float* x, const Range* r, float scale, int64_t channels,
                     float* to) {
  const int64_t partial = channels % kLanes ? channels % kLanes : kLanes;
  switch ((channels + kLanes - 1) / kLanes) {
    case 1: return window<Op, 1>(c, x, r, scale, partial, to);
    case 2: return window<Op, 2>(c, x, r, scale, partial, to);
    case 3: return window<Op, 3>(c, x, r, scale, partial, to);
    default: return window<Op, 4>(c, x, r, scale, partial, to);
  }
}

template <class Op, class Epi>
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
      Range r[3] = {clip_axis(c, 0, od, 0, c.in[0]), clip_axis(c, 1, oh, 0, c.in[1]), {0, 0}};
      int64_t padded = 0;
      if (Op::kMean && c.count_include_pad) {
        const Range d = clip_axis(c, 0, od, -c.pad[0], c.in[0] + c.pad_end[0]);
        const Range h = clip_axis(c, 1, oh, -c.pad[1], c.in[1] + c.pad_end[1]);
        padded = (d.last - d.first) * (h.last - h.first);
      }
      const float* x = c.x + image * c.xn + (od * c.stride[0] - c.pad[0]) * c.xs[0] +
                       (oh * c.stride[1] - c.pad[1]) * c.xs[1] - c.pad[2] * c.xs[2];
      const int64_t first = parts == 1 ? 0 : part, last = parts == 1 ? blocks : part + 1;
      for (int64_t ow = 0; ow < c.out[2]; ow += kPixels) {
        const int64_t px = c.out[2] - ow < kPixels ? c.out[2] - ow : kPixels;
        Range columns[kPixels];
        float scale[kPixels];
        for (int64_t p = 0; p < px; ++p) {
          columns[p] = clip_axis(c, 2, ow + p, 0, c.in[2]);
          int64_t count = (r[0].last - r[0].first) * (r[1].last - r[1].first) *
                          (columns[p].last - columns[p].first);
          if (Op::kMean && c.count_include_pad) {
            const Range w = clip_axis(c, 2, ow + p, -c.pad[2], c.in[2] + c.pad_end[2]);
            count = padded * (w.last - w.first);
          }
          scale[p] = static_cast<float>(count);
        }
        for (int64_t block = first; block < last; ++block) {
          const int64_t c0 = block * kWidth, left = c.channels - c0;
          for (int64_t p = 0; p < px; ++p) {
            r[2] = columns[p];
            pixel<Op>(c, x + (ow + p) * c.stride[2] * c.xs[2] + c0, r, scale[p],
                      left < kWidth ? left : kWidth, tile + p * kWidth);
          }
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
  pooling_detail::pool<pooling_detail::Max>(c, epi, pool);
}

template <class Epi>
inline void average_pool(const Pooling& c, const Epi& epi, const gw_pool* pool) {
  pooling_detail::pool<pooling_detail::Mean>(c, epi, pool);
}

}  // namespace gw
