// Transposed convolution of channels-last tensors in gather form (no scatter, no col2im buffer): 1, 2 or 3
// spatial axes, stride, padding, dilation, groups. Weights packed by packing.pack_conv_transpose_weight.
//
//   y[n, o, g*co + j] = sum over k with (o + pad - k*dilation) divisible by stride, quotient i in the image:
//       x[n, i, g*ci + c] * w[g*ci + c, j, k]          (o, i, k: positions along all three axes)
//
// Described by gw::Conv: ci, co are the channels of one group on the input and output side, `in` and `out`
// the sizes of x and y, `pad` the padding before as ONNX states it. output_padding only enlarges `out`.
//
// Output pixels of a row fall in stride classes (o + pad) mod stride; pixels of one class share their kernel
// positions and step through the input by one pixel. A tile is a stretch of a row: the microkernel computes
// its classes one after the other, interleaved in the tile, and the epilogue sees consecutive pixels.
//
// Epilogue as in conv.h. The caller guarantees what conv.h asks for, and KD * KH * KW <= kTable.
#pragma once
#include "conv.h"

namespace gw GW_HIDDEN {

namespace transpose_detail {
constexpr int64_t kTileRows = 64;
struct StrideClass {
  int64_t rows, taps, first_pointer, first_tap;
};
}  // namespace transpose_detail

template <class Epi>
inline void conv_transpose(const Conv& c, const Epi& epi, const gw_pool* pool) {
  using namespace transpose_detail;
  const int64_t kernel = c.kernel[0] * c.kernel[1] * c.kernel[2], k = kernel * c.ci;
  const int64_t sw = c.stride[2];
  int64_t class_rows = kTable / kernel < kMR ? kTable / kernel : kMR;
  if (class_rows < 1) __builtin_trap();
  if (class_rows * sw > kTileRows) class_rows = kTileRows / sw > 0 ? kTileRows / sw : 1;
  const int64_t stretch = class_rows * sw < kTileRows ? class_rows * sw : kTileRows;
  const int64_t lines = c.n * c.out[0] * c.out[1];
  const int64_t stretches = (c.out[2] + stretch - 1) / stretch;
  const int64_t panels = (c.co + kNR - 1) / kNR;
  const int64_t group_floats = packed_floats(k, c.co);
  const int64_t units = lines * stretches * c.groups;
  const int64_t parts = units >= 2 * thread_count(pool) ? 1 : panels;
  const int64_t each = 2 * stretch * c.co * k / (c.stride[0] * c.stride[1] * sw) / parts + 1;
  const float* zeros = c.zeros ? c.zeros : zero_row;

  parallel_for(pool, units * parts, kUnitFlops / each + 1, [&](int64_t begin, int64_t end, int) {
    const float* at[kTable];
    int64_t koff[kTable];
    alignas(64) float tile[kTileRows * kNR];
    StrideClass classes[kTileRows];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % parts, group = unit / parts % c.groups;
      const int64_t piece = unit / parts / c.groups;
      const int64_t line = piece / stretches, ow0 = piece % stretches * stretch;
      const int64_t rows = c.out[2] - ow0 < stretch ? c.out[2] - ow0 : stretch;
      const int64_t oh = line % c.out[1] + c.pad[1], od = line / c.out[1] % c.out[0] + c.pad[0];
      const float* x = c.x + line / c.out[1] / c.out[0] * c.xn + group * c.ci;

      const int64_t count = rows < sw ? rows : sw;
      int64_t pointers = 0, taps = 0;
      for (int64_t q = 0; q < count; ++q) {
        StrideClass& cl = classes[q];
        cl = {(rows - q + sw - 1) / sw, 0, pointers, taps};
        for (int64_t tap = 0; tap < kernel; ++tap) {
          const int64_t kw = tap % c.kernel[2], kh = tap / c.kernel[2] % c.kernel[1];
          const int64_t d = od - tap / c.kernel[2] / c.kernel[1] * c.dilation[0];
          const int64_t h = oh - kh * c.dilation[1];
          const int64_t w = ow0 + q + c.pad[2] - kw * c.dilation[2];
          if (d % c.stride[0] || h % c.stride[1] || w % sw) continue;
          const int64_t id = d / c.stride[0], ih = h / c.stride[1], iw = w / sw;
          if (d < 0 || id >= c.in[0] || h < 0 || ih >= c.in[1]) continue;
          if (iw + cl.rows <= 0 || iw >= c.in[2]) continue;
          const float* from = x + id * c.xs[0] + ih * c.xs[1];
          for (int64_t r = 0; r < cl.rows; ++r) {
            const bool ok = iw + r >= 0 && iw + r < c.in[2];
            at[pointers++] = ok ? from + (iw + r) * c.xs[2] : zeros;
          }
          koff[taps++] = tap * c.ci;
          ++cl.taps;
        }
      }
      const float* weights = c.w + group * group_floats;
      const int64_t first = parts == 1 ? 0 : part, last = parts == 1 ? panels : part + 1;
      for (int64_t panel = first; panel < last; ++panel) {
        const int nv = panel_vectors(c.co, panel);
        const float* data = weights + panel * k * kNR;
        for (int64_t q = 0; q < count; ++q) {
          const StrideClass& cl = classes[q];
          micro_table.fn[cl.rows - 1][nv - 1](cl.taps, c.ci, at + cl.first_pointer, koff + cl.first_tap,
                                              data, k * kPanel, tile + q * kNR, sw * kNR, false, nullptr);
        }
        const int64_t col0 = panel * kNR, row0 = line * c.out[2] + ow0;
        if (c.co - col0 >= kNR) {
          epi(static_cast<const float*>(tile), kNR, 0, row0, rows, group * c.co + col0, kNR);
        } else {
          epi(static_cast<const float*>(tile), kNR, 0, row0, rows, group * c.co + col0, c.co - col0);
        }
      }
    }
  });
}

}  // namespace gw
