// Depthwise convolution of channels-last tensors of bytes; see depthwise.h for what is computed. Described by the
// same IntegerConv as integer_conv.h with groups = C, ci = 1, co = multiplier; weights packed by
// integer_packing.pack_integer_depthwise as 16-bit [kernel positions][round_to(C * co, kLanes)], their zero point
// already subtracted. Positions outside the image add nothing.
#pragma once
#include "integer_conv.h"

namespace gw GW_HIDDEN {

namespace integer_detail {

constexpr int64_t kChannels = 2 * kLanes;  // of one block

// sums[0 .. channels) += (x - zero) * w
template <class T>
GW_INLINE void add_position(const T* GW_RESTRICT x, const int16_t* GW_RESTRICT w, int32_t zero, int64_t channels,
                            int32_t* GW_RESTRICT sums) {
  for (int64_t c = 0; c < channels; ++c) sums[c] += (static_cast<int32_t>(x[c]) - zero) * w[c];
}

}  // namespace integer_detail

template <class T, class Epi>
inline void integer_depthwise(const IntegerConv& c, const Epi& epi, const gw_pool* pool) {
  using namespace integer_detail;
  const int64_t channels = c.groups * c.co, blocks = (channels + kChannels - 1) / kChannels;
  const int64_t weight_stride = round_to(channels, kLanes);
  const int64_t lines = c.n * c.out[0] * c.out[1];
  const int64_t positions = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const double each = static_cast<double>(c.out[2] * channels) * static_cast<double>(positions);
  const int64_t grain = each > 0 ? static_cast<int64_t>(100000 / each) + 1 : lines;
  const int16_t* weights = static_cast<const int16_t*>(c.w);

  parallel_for(pool, lines, grain, [&](int64_t begin, int64_t end, int) {
    alignas(64) int32_t sums[kChannels];
    for (int64_t line = begin; line < end; ++line) {
      const int64_t oh = line % c.out[1], od = line / c.out[1] % c.out[0], image = line / c.out[1] / c.out[0];
      const T* x = static_cast<const T*>(c.x) + image * c.xn;
      for (int64_t ow = 0; ow < c.out[2]; ++ow) {
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t c0 = b * kChannels, width = channels - c0 < kChannels ? channels - c0 : kChannels;
          for (int64_t i = 0; i < kChannels; ++i) sums[i] = 0;
          for (int64_t kd = 0; kd < c.kernel[0]; ++kd) {
            const int64_t d = od * c.stride[0] - c.pad[0] + kd * c.dilation[0];
            if (d < 0 || d >= c.in[0]) continue;
            for (int64_t kh = 0; kh < c.kernel[1]; ++kh) {
              const int64_t h = oh * c.stride[1] - c.pad[1] + kh * c.dilation[1];
              if (h < 0 || h >= c.in[1]) continue;
              for (int64_t kw = 0; kw < c.kernel[2]; ++kw) {
                const int64_t w = ow * c.stride[2] - c.pad[2] + kw * c.dilation[2];
                if (w < 0 || w >= c.in[2]) continue;
                const T* from = x + d * c.xs[0] + h * c.xs[1] + w * c.xs[2];
                const int16_t* by = weights + ((kd * c.kernel[1] + kh) * c.kernel[2] + kw) * weight_stride + c0;
                if (c.co > 1) {
                  for (int64_t i = 0; i < width; ++i)
                    sums[i] += (static_cast<int32_t>(from[(c0 + i) / c.co]) - c.x_zero) * by[i];
                } else if (width == kChannels) {
                  add_position(from + c0, by, c.x_zero, kChannels, sums);
                } else {
                  add_position(from + c0, by, c.x_zero, width, sums);
                }
              }
            }
          }
          const int32_t* done = sums;
          const int64_t row = line * c.out[2] + ow;
          if (width == kChannels) {
            epi(done, kChannels, 0, row, 1, c0, kChannels);
          } else {
            epi(done, kChannels, 0, row, 1, c0, width);
          }
        }
      }
    }
  });
}

}  // namespace gw
