// Depthwise convolution of channels-last tensors (groups == input channels, one or more outputs each):
//
//   y[n, od, oh, ow, c*m + j] = sum over kd, kh, kw: x[n, id, ih, iw, c] * w[c*m + j, kd, kh, kw]
//
// Described by the same gw::Conv as conv.h, with groups = C, ci = 1, co = multiplier; weights packed by
// packing.pack_depthwise_weight as [kernel positions][round_up(C * co, kLanes)].
//
// Vectorised over channels. A tile is kPixels neighbouring output pixels x kNV vectors of channels, one
// accumulator each, so a weight vector is loaded once for kPixels products. Work is cut in output rows.
// Kernel positions above, below, left or right of the image are skipped, never read: pixels of a row whose
// window leaves the image go one by one over their own range of kernel columns.
//
// Epilogue as in conv.h. The caller guarantees what conv.h asks for; x may have any strides with channel
// stride 1. Reads past the last channel do not happen; the weight's padding is read and discarded.
#pragma once
#include "conv.h"

namespace gw GW_HIDDEN {
namespace depthwise_detail {

constexpr int kPixels = kLanes == 16 || kNV == 4 ? 8 : 4;
constexpr int kVectors = 2;
constexpr int kWidth = kVectors * kLanes;

// Channels [c0, c0 + NV * kLanes) of PX pixels `step` floats apart; kernel rows and columns given as ranges.
// `partial` is the number of valid channels in the last vector (kLanes when it is full).
template <int PX, int NV, bool Partial>
GW_NOINLINE void tile_sum(const float* x, int64_t step, const float* w, int64_t wstride,
                          const int64_t* rows, const int64_t* row_taps, int64_t row_count, int64_t kw0,
                          int64_t kw1, int64_t kstep, int64_t partial, float* tile) {
  vf acc[PX][NV];
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) acc[p][v] = splat(0.0f);
  }
  for (int64_t i = 0; i < row_count; ++i) {
    const float* row = x + rows[i];
    const float* weights = w + row_taps[i] * wstride;
    for (int64_t kw = kw0; kw < kw1; ++kw) {
      vf wv[NV];
      GW_UNROLL
      for (int v = 0; v < NV; ++v) wv[v] = load(weights + kw * wstride + v * kLanes);
      const float* from = row + kw * kstep;
      GW_UNROLL
      for (int p = 0; p < PX; ++p) {
        GW_UNROLL
        for (int v = 0; v < NV; ++v) {
          const float* at = from + p * step + v * kLanes;
          const vf xv = Partial && v == NV - 1 ? load_partial(at, partial) : load(at);
          acc[p][v] = fma(xv, wv[v], acc[p][v]);
        }
      }
    }
  }
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) store(tile + p * kWidth + v * kLanes, acc[p][v]);
  }
}

template <int NV, bool Partial>
GW_INLINE void pixels_sum(int64_t px, const float* x, int64_t step, const float* w, int64_t wstride,
                          const int64_t* rows, const int64_t* row_taps, int64_t row_count, int64_t kw0,
                          int64_t kw1, int64_t kstep, int64_t partial, float* tile) {
  int64_t p = 0;
  for (; p + kPixels <= px; p += kPixels)
    tile_sum<kPixels, NV, Partial>(x + p * step, step, w, wstride, rows, row_taps, row_count, kw0, kw1,
                                   kstep, partial, tile + p * kWidth);
  for (; p + 2 <= px; p += 2)
    tile_sum<2, NV, Partial>(x + p * step, step, w, wstride, rows, row_taps, row_count, kw0, kw1, kstep,
                             partial, tile + p * kWidth);
  for (; p < px; ++p)
    tile_sum<1, NV, Partial>(x + p * step, step, w, wstride, rows, row_taps, row_count, kw0, kw1, kstep,
                             partial, tile + p * kWidth);
}

// Several outputs a channel: the input value of an output channel is x[channel / multiplier].
inline void multiplied(const Conv& c, const float* x, const float* w, int64_t wstride, const int64_t* rows,
                       const int64_t* row_taps, int64_t row_count, int64_t kw0, int64_t kw1, int64_t c0,
                       int64_t channels, float* tile) {
  for (int64_t j = 0; j < kWidth; ++j) tile[j] = 0.0f;
  for (int64_t i = 0; i < row_count; ++i) {
    for (int64_t kw = kw0; kw < kw1; ++kw) {
      const float* from = x + rows[i] + kw * c.dilation[2] * c.xs[2];
      const float* weights = w + (row_taps[i] + kw) * wstride + c0;
      for (int64_t j = 0; j < channels; ++j)
        tile[j] = __builtin_fmaf(from[(c0 + j) / c.co], weights[j], tile[j]);
    }
  }
}

}  // namespace depthwise_detail

template <class Epi>
inline void depthwise(const Conv& c, const Epi& epi, const gw_pool* pool) {
  using namespace depthwise_detail;
  constexpr int64_t kTilePixels = 2 * kPixels;
  constexpr int64_t kMaxRows = 128;  // kernel rows kept on the stack; more are added up in passes
  const int64_t channels = c.groups * c.co;
  const int64_t wstride = (channels + kLanes - 1) / kLanes * kLanes;
  const int64_t lines = c.n * c.out[0] * c.out[1];
  const int64_t kernel_rows = c.kernel[0] * c.kernel[1];
  if (kernel_rows > kMaxRows) __builtin_trap();
  // Pixels [first, last) of a line see all kernel columns.
  const int64_t reach = (c.kernel[2] - 1) * c.dilation[2];
  int64_t first = (c.pad[2] + c.stride[2] - 1) / c.stride[2];
  int64_t last = c.in[2] + c.pad[2] - reach > 0 ? (c.in[2] + c.pad[2] - reach - 1) / c.stride[2] + 1 : 0;
  if (last > c.out[2]) last = c.out[2];
  if (first > last) first = last;
  const int64_t line_flops = 2 * c.out[2] * channels * kernel_rows * c.kernel[2];
  const int64_t grain = line_flops > 0 ? 100000 / line_flops + 1 : lines;

  parallel_for(pool, lines, grain, [&](int64_t begin, int64_t end, int) {
    alignas(64) float tile[kTilePixels * kWidth];
    int64_t rows[kMaxRows], row_taps[kMaxRows];
    for (int64_t line = begin; line < end; ++line) {
      const int64_t oh = line % c.out[1], od = line / c.out[1] % c.out[0];
      const int64_t image = line / c.out[1] / c.out[0];
      int64_t row_count = 0;
      for (int64_t k = 0; k < kernel_rows; ++k) {
        const int64_t d = od * c.stride[0] - c.pad[0] + k / c.kernel[1] * c.dilation[0];
        const int64_t h = oh * c.stride[1] - c.pad[1] + k % c.kernel[1] * c.dilation[1];
        if (d < 0 || d >= c.in[0] || h < 0 || h >= c.in[1]) continue;
        rows[row_count] = d * c.xs[0] + h * c.xs[1];
        row_taps[row_count++] = k * c.kernel[2];
      }
      const float* x = c.x + image * c.xn - c.pad[2] * c.xs[2];
      const int64_t step = c.stride[2] * c.xs[2], kstep = c.dilation[2] * c.xs[2];
      for (int64_t ow = 0; ow < c.out[2];) {
        int64_t px = 1, kw0 = 0, kw1 = c.kernel[2];
        if (ow >= first && ow < last) {
          px = last - ow < kTilePixels ? last - ow : kTilePixels;
        } else {
          const int64_t iw = ow * c.stride[2] - c.pad[2];
          while (kw0 < kw1 && iw + kw0 * c.dilation[2] < 0) ++kw0;
          while (kw1 > kw0 && iw + (kw1 - 1) * c.dilation[2] >= c.in[2]) --kw1;
        }
        const int64_t row0 = line * c.out[2] + ow;
        for (int64_t c0 = 0; c0 < channels; c0 += kWidth) {
          const int64_t left = channels - c0;
          const int64_t cols = left < kWidth ? left : kWidth;
          const float* from = x + ow * step + c0;
          if (c.co > 1) {
            for (int64_t p = 0; p < px; ++p)
              multiplied(c, x + (ow + p) * step, c.w, wstride, rows, row_taps, row_count, kw0, kw1, c0,
                         cols, tile + p * kWidth);
          } else if (left >= kWidth) {
            pixels_sum<2, false>(px, from, step, c.w + c0, wstride, rows, row_taps, row_count, kw0, kw1,
                                 kstep, 0, tile);
          } else if (left > kLanes) {
            pixels_sum<2, true>(px, from, step, c.w + c0, wstride, rows, row_taps, row_count, kw0, kw1,
                                kstep, left - kLanes, tile);
          } else if (left == kLanes) {
            pixels_sum<1, false>(px, from, step, c.w + c0, wstride, rows, row_taps, row_count, kw0, kw1,
                                 kstep, 0, tile);
          } else {
            pixels_sum<1, true>(px, from, step, c.w + c0, wstride, rows, row_taps, row_count, kw0, kw1,
                                kstep, left, tile);
          }
          if (cols == kWidth) {
            epi(static_cast<const float*>(tile), kWidth, 0, row0, px, c0, kWidth);
          } else {
            epi(static_cast<const float*>(tile), kWidth, 0, row0, px, c0, cols);
          }
        }
        ow += px;
      }
    }
  });
}

}  // namespace gw
