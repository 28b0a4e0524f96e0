// Convolution of channels-last tensors by implicit GEMM: 1, 2 or 3 spatial axes, stride, padding, dilation,
// groups. Weights packed at compile time by packing.pack_conv_weight.
//
//   y[n, od, oh, ow, g*co + o] = sum over kd, kh, kw, i:
//       x[n, od*sd - pd + kd*dd, oh*sh - ph + kh*dh, ow*sw - pw + kw*dw, g*ci + i] * w[g*co + o, i, kd, kh, kw]
//
// Fill a gw::Conv (axes are depth, height, width; a 2-D convolution leaves the depth entries at their
// defaults, a 1-D one depth and height) and call gw::conv(c, epilogue, pool). In the epilogue row is
// ((n*OD + od)*OH + oh)*OW + ow and col the output channel over all groups; batch is 0.
//
// No im2col: the microkernel gets one pointer per output pixel and kernel position.
//  * A tile whose windows lie inside the image along the width merges the kw and channel loops into one
//    contiguous run (dilation 1, one group or ci the pixel stride).
//  * At a border, kernel positions outside the image for the whole tile are dropped; pixels outside for a
//    part of it read a row of zeros. With few channels (a stem) the runs would be too short for that: the
//    tile's patch of the input is copied to the stack with its zeros instead, and the runs stay merged.
//  * Tiles cross output rows (49 pixels of a 7x7 map are 5 tiles) unless rows are long or channels few.
//    For a 1x1 stride-1 convolution of contiguous pixels the rows are those of a matrix.
//
// The caller guarantees: x strides as given with channel stride 1; ci <= kZeros where padding is used, or
// `zeros` pointing at ci zeros; output sizes that match the other fields (any consistent set works; the
// kernel never reads outside the image whatever they are). Depthwise convolutions belong to depthwise.h;
// a 1x1 stride-1 convolution over contiguous pixels can be called as gemm() with a little less overhead.
#pragma once
#include <string.h>

#include "contract.h"

namespace gw GW_HIDDEN {

constexpr int64_t kZeros = 16384;
alignas(64) inline float zero_row[kZeros];

struct Conv {
  const float* x = nullptr;
  const float* w = nullptr;      // packed
  const float* zeros = nullptr;  // needed only when ci > kZeros
  int64_t n = 1;
  int64_t ci = 0, co = 0;  // channels of one group
  int64_t groups = 1;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t pad[3] = {0, 0, 0};                 // before; what follows the image is implied by `out`
  int64_t xn = 0, xs[3] = {0, 0, 0};          // strides of x in floats: image, then depth, height, width
};

struct WindowRows {
  static constexpr int64_t kScratch = 8192;
  static constexpr int64_t kPatchChannels = 16;

  const Conv* c;
  const float* x;  // of the group
  const float* zeros;
  bool mergeable;  // kw and channels form one run
  bool patch;      // border tiles are copied
  bool flat;       // 1x1, stride 1, no padding, contiguous pixels: rows follow each other
  int64_t row_segment;

  WindowRows(const Conv& conv, int64_t group) : c(&conv), x(conv.x + group * conv.ci) {
    zeros = c->zeros ? c->zeros : zero_row;
    const int64_t span = (kMR - 1) * c->stride[2] + c->kernel[2];
    flat = taps() == 1 && (c->in[2] == 1 || c->xs[1] == c->in[2] * c->xs[2]);
    for (int i = 0; i < 3; ++i) flat &= c->stride[i] == 1 && c->pad[i] == 0 && c->in[i] == c->out[i];
    flat &= (c->in[0] == 1 || c->xs[0] == c->in[1] * c->in[2] * c->xs[2]) &&
            (c->n == 1 || c->xn == c->in[0] * c->in[1] * c->in[2] * c->xs[2]);
    mergeable = c->dilation[2] == 1 && c->xs[2] == c->ci && c->kernel[2] > 1 &&
                c->kernel[2] * c->ci <= kZeros;
    patch = mergeable && c->ci <= kPatchChannels &&
            c->kernel[0] * c->kernel[1] * span * c->ci <= kScratch;
    const bool long_rows = c->out[2] >= 2 * kMR && c->kernel[2] > 1;
    row_segment = patch || long_rows ? c->out[2] : INT64_MAX / 2;
  }

  int64_t taps() const { return c->kernel[0] * c->kernel[1] * c->kernel[2]; }
  bool shareable() const { return !patch; }
  int64_t segment() const { return row_segment; }

  GW_NOINLINE Taps fill(int64_t row0, int64_t rows, int64_t tap0, int64_t tap1, const float** at,
                        int64_t* koff, float* scratch) {
    const Conv& v = *c;
    if (flat) {
      for (int64_t r = 0; r < rows; ++r) at[r] = x + (row0 + r) * v.xs[2];
      koff[0] = 0;
      return {1, v.ci};
    }
    if (row0 != next_row) seek(row0);
    const bool whole = tap0 == 0 && tap1 == taps();
    const Taps made = at_ow + rows <= v.out[2] && whole ? in_line(rows, at, koff, scratch)
                                                        : across(rows, tap0, tap1, at, koff);
    if (tap1 == taps()) {
      next_row = row0 + rows;
      for (at_ow += rows; at_ow >= v.out[2]; at_ow -= v.out[2]) next_line(at_oh, at_od, at_image);
    }
    return made;
  }

 private:
  static bool within(int64_t i, int64_t size) {
    return static_cast<uint64_t>(i) < static_cast<uint64_t>(size);
  }

  // Where fill() left off: tiles mostly follow each other, and divisions would cost as much as a small tile.
  int64_t next_row = -1, at_image = 0, at_od = 0, at_oh = 0, at_ow = 0;

  void seek(int64_t row) {
    at_ow = row % c->out[2];
    row /= c->out[2];
    at_oh = row % c->out[1];
    row /= c->out[1];
    at_od = row % c->out[0];
    at_image = row / c->out[0];
  }

  void next_line(int64_t& oh, int64_t& od, int64_t& image) const {
    if (++oh < c->out[1]) return;
    oh = 0;
    if (++od < c->out[0]) return;
    od = 0, ++image;
  }

  // All pixels of the tile lie in one output row (at_ow on): windows differ along the width alone.
  Taps in_line(int64_t rows, const float** at, int64_t* koff, float* scratch) const {
    const Conv& v = *c;
    const int64_t d0 = at_od * v.stride[0] - v.pad[0], h0 = at_oh * v.stride[1] - v.pad[1];
    const int64_t w0 = at_ow * v.stride[2] - v.pad[2], reach = (v.kernel[2] - 1) * v.dilation[2];
    const bool inside = w0 >= 0 && w0 + (rows - 1) * v.stride[2] + reach < v.in[2];
    if (!inside && patch) return patched(rows, d0, h0, w0, at, koff, scratch);
    const float* base = x + at_image * v.xn + d0 * v.xs[0] + h0 * v.xs[1] + w0 * v.xs[2];
    const int64_t step = v.stride[2] * v.xs[2];
    const bool merged = inside && mergeable;
    const int64_t columns = merged ? 1 : v.kernel[2];
    int64_t count = 0, line = 0;
    for (int64_t kd = 0; kd < v.kernel[0]; ++kd) {
      for (int64_t kh = 0; kh < v.kernel[1]; ++kh, ++line) {
        const int64_t d = kd * v.dilation[0], h = kh * v.dilation[1];
        if (!within(d0 + d, v.in[0]) || !within(h0 + h, v.in[1])) continue;
        const float* from = base + d * v.xs[0] + h * v.xs[1];
        for (int64_t kw = 0; kw < columns; ++kw) {
          const float** to = at + count * rows;
          const float* first = from + kw * v.dilation[2] * v.xs[2];
          if (inside) {
            for (int64_t r = 0; r < rows; ++r) to[r] = first + r * step;
          } else {
            const int64_t w = w0 + kw * v.dilation[2];
            for (int64_t r = 0; r < rows; ++r)
              to[r] = within(w + r * v.stride[2], v.in[2]) ? first + r * step : zeros;
          }
          koff[count++] = (line * v.kernel[2] + kw) * v.ci;
        }
      }
    }
    return {count, merged ? v.kernel[2] * v.ci : v.ci};
  }

  // The tile crosses output rows (or takes part of the taps): each pixel has its own window.
  Taps across(int64_t rows, int64_t tap0, int64_t tap1, const float** at, int64_t* koff) const {
    const Conv& v = *c;
    int64_t d0[kMR], h0[kMR], w0[kMR];  // first input position of each window, may be negative
    const float* base[kMR];
    int64_t image = at_image, od = at_od, oh = at_oh, ow = at_ow;
    bool inside = true;
    for (int64_t r = 0; r < rows; ++r) {
      d0[r] = od * v.stride[0] - v.pad[0];
      h0[r] = oh * v.stride[1] - v.pad[1];
      w0[r] = ow * v.stride[2] - v.pad[2];
      base[r] = x + image * v.xn + d0[r] * v.xs[0] + h0[r] * v.xs[1] + w0[r] * v.xs[2];
      inside &= d0[r] >= 0 && d0[r] + (v.kernel[0] - 1) * v.dilation[0] < v.in[0] && h0[r] >= 0 &&
                h0[r] + (v.kernel[1] - 1) * v.dilation[1] < v.in[1] && w0[r] >= 0 &&
                w0[r] + (v.kernel[2] - 1) * v.dilation[2] < v.in[2];
      if (++ow == v.out[2]) ow = 0, next_line(oh, od, image);
    }
    int64_t count = 0, kw = tap0 % v.kernel[2], kh = tap0 / v.kernel[2] % v.kernel[1];
    int64_t kd = tap0 / v.kernel[2] / v.kernel[1];
    for (int64_t tap = tap0; tap < tap1; ++tap) {
      const int64_t d = kd * v.dilation[0], h = kh * v.dilation[1], w = kw * v.dilation[2];
      const int64_t offset = d * v.xs[0] + h * v.xs[1] + w * v.xs[2];
      const float** to = at + count * rows;
      bool any = inside;
      if (inside) {
        for (int64_t r = 0; r < rows; ++r) to[r] = base[r] + offset;
      } else {
        for (int64_t r = 0; r < rows; ++r) {
          const bool ok = within(d0[r] + d, v.in[0]) && within(h0[r] + h, v.in[1]) &&
                          within(w0[r] + w, v.in[2]);
          to[r] = ok ? base[r] + offset : zeros;
          any |= ok;
        }
      }
      koff[count] = tap * v.ci;
      count += any;
      if (++kw == v.kernel[2]) {
        kw = 0;
        if (++kh == v.kernel[1]) kh = 0, ++kd;
      }
    }
    return {count, v.ci};
  }

  // The tile lies in one output row: copy its input rows, zeros included, and run over the copy.
  Taps patched(int64_t rows, int64_t d0, int64_t h0, int64_t w0, const float** at, int64_t* koff,
               float* scratch) const {
    const Conv& v = *c;
    const int64_t span = (rows - 1) * v.stride[2] + v.kernel[2], run = v.kernel[2] * v.ci;
    const int64_t before = w0 < 0 ? (-w0 < span ? -w0 : span) : 0;
    int64_t stop = v.in[2] - w0 < span ? v.in[2] - w0 : span;
    if (stop < before) stop = before;
    int64_t count = 0, tap = 0;
    for (int64_t kd = 0; kd < v.kernel[0]; ++kd) {
      for (int64_t kh = 0; kh < v.kernel[1]; ++kh, ++tap) {
        const int64_t d = d0 + kd * v.dilation[0], h = h0 + kh * v.dilation[1];
        if (!within(d, v.in[0]) || !within(h, v.in[1])) continue;
        const float* from = x + at_image * v.xn + d * v.xs[0] + h * v.xs[1] + (w0 + before) * v.ci;
        float* to = scratch + count * span * v.ci;
        memset(to, 0, static_cast<size_t>(before * v.ci) * 4);
        memcpy(to + before * v.ci, from, static_cast<size_t>((stop - before) * v.ci) * 4);
        memset(to + stop * v.ci, 0, static_cast<size_t>((span - stop) * v.ci) * 4);
        for (int64_t r = 0; r < rows; ++r) at[count * rows + r] = to + r * v.stride[2] * v.ci;
        koff[count] = tap * run;
        ++count;
      }
    }
    return {count, run};
  }
};

template <class Epi>
inline void conv(const Conv& c, const Epi& epi, const gw_pool* pool) {
  const int64_t rows = c.n * c.out[0] * c.out[1] * c.out[2];
  const int64_t k = c.kernel[0] * c.kernel[1] * c.kernel[2] * c.ci;
  const int64_t group_floats = packed_floats(k, c.co);
  const auto job = [&](int64_t g) {
    return Job<WindowRows>{WindowRows(c, g), {c.w + g * group_floats, k, c.co}, 0, g * c.co};
  };
  const int64_t a_bytes = c.n * c.in[0] * c.in[1] * c.in[2] * c.ci * 4;
  multiply_parallel(c.groups, rows, c.co, k, a_bytes, job, epi, pool);
}

}  // namespace gw
