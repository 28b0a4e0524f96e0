// Convolution of channels-last tensors of bytes by implicit GEMM; see conv.h for what is computed and
// integer_gemm.h for zero points. Weights packed by integer_packing.pack_integer_conv.
//
// Padding adds nothing: outside the image a row of x_zero is read, which the correction by column sums makes 0.
// Pixels whose window lies inside along the width merge the kw and channel loops into one contiguous piece.
// Where the pieces are no whole words (channels not a multiple of 4) the rows of a tile are copied first.
//
// The caller guarantees what conv.h asks for; at most kPieces kernel positions. Depthwise convolutions belong to
// integer_depthwise.h.
#pragma once
#include "integer_contract.h"

namespace gw GW_HIDDEN {

struct IntegerConv {
  const void* x = nullptr;
  const void* w = nullptr;       // packed
  int64_t n = 1;
  int64_t ci = 0, co = 0;        // channels of one group
  int64_t groups = 1;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t pad[3] = {0, 0, 0};    // before
  int64_t xn = 0, xs[3] = {0, 0, 0};  // strides of x in bytes: image, then depth, height, width
  int32_t x_zero = 0;
  bool zeros = true;             // some zero point of w, as packed, is not 0
};

struct WindowSource {
  const IntegerConv* c;
  const uint8_t* x;        // of the group
  const uint8_t* outside;  // ci bytes of x_zero
  bool flat;               // 1x1, stride 1, no padding, evenly spaced pixels: rows follow each other
  bool mergeable;          // kw and channels form one piece where the window is inside

  WindowSource(const IntegerConv& conv, int64_t group, const uint8_t* padding)
      : c(&conv), x(static_cast<const uint8_t*>(conv.x) + group * conv.ci), outside(padding) {
    flat = taps() == 1 && (c->in[2] == 1 || c->xs[1] == c->in[2] * c->xs[2]);
    for (int i = 0; i < 3; ++i) flat &= c->stride[i] == 1 && c->pad[i] == 0 && c->in[i] == c->out[i];
    flat &= (c->in[0] == 1 || c->xs[0] == c->in[1] * c->in[2] * c->xs[2]) &&
            (c->n == 1 || c->xn == c->in[0] * c->in[1] * c->in[2] * c->xs[2]);
    mergeable = c->dilation[2] == 1 && c->xs[2] == c->ci && c->kernel[2] > 1;
  }

  int64_t taps() const { return c->kernel[0] * c->kernel[1] * c->kernel[2]; }
  int64_t bytes() const { return taps() * c->ci; }
  bool copies() const { return c->ci % 4 != 0 && taps() > 1; }
  const uint8_t* even(int64_t row0, int64_t* apart) const {
    *apart = c->xs[2];
    return flat ? x + row0 * c->xs[2] : nullptr;
  }

  Pieces fill(int64_t row0, int64_t rows, const uint8_t** at) {
    if (flat) {
      for (int64_t r = 0; r < rows; ++r) at[r] = x + (row0 + r) * c->xs[2];
      return {1, c->ci};
    }
    const IntegerConv& v = *c;
    if (row0 != next_row) seek(row0);
    int64_t d0[32], h0[32], w0[32];
    bool inside = true;
    for (int64_t r = 0; r < rows; ++r) {
      d0[r] = od * v.stride[0] - v.pad[0];
      h0[r] = oh * v.stride[1] - v.pad[1];
      w0[r] = ow * v.stride[2] - v.pad[2];
      image[r] = x + at_image * v.xn;
      inside &= w0[r] >= 0 && w0[r] + (v.kernel[2] - 1) * v.dilation[2] < v.in[2];
      advance();
    }
    next_row = row0 + rows;
    const bool merged = inside && mergeable;
    const int64_t columns = merged ? 1 : v.kernel[2];
    int64_t count = 0;
    for (int64_t kd = 0; kd < v.kernel[0]; ++kd) {
      for (int64_t kh = 0; kh < v.kernel[1]; ++kh) {
        for (int64_t kw = 0; kw < columns; ++kw, ++count) {
          const uint8_t** to = at + count * rows;
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t d = d0[r] + kd * v.dilation[0], h = h0[r] + kh * v.dilation[1];
            const int64_t w = w0[r] + kw * v.dilation[2];
            const bool known = within(d, v.in[0]) && within(h, v.in[1]) && (inside || within(w, v.in[2]));
            to[r] = known ? image[r] + d * v.xs[0] + h * v.xs[1] + w * v.xs[2] : outside;
          }
        }
      }
    }
    return {count, merged ? v.kernel[2] * v.ci : v.ci};
  }

 private:
  // Where fill() left off: tiles mostly follow each other, and divisions cost as much as a small tile.
  int64_t next_row = -1, at_image = 0, od = 0, oh = 0, ow = 0;
  const uint8_t* image[32];

  static bool within(int64_t i, int64_t size) { return static_cast<uint64_t>(i) < static_cast<uint64_t>(size); }

  void seek(int64_t row) {
    ow = row % c->out[2];
    row /= c->out[2];
    oh = row % c->out[1];
    row /= c->out[1];
    od = row % c->out[0];
    at_image = row / c->out[0];
  }
  void advance() {
    if (++ow < c->out[2]) return;
    ow = 0;
    if (++oh < c->out[1]) return;
    oh = 0;
    if (++od < c->out[0]) return;
    od = 0, ++at_image;
  }
};

template <Left L, class Epi>
inline void integer_conv(const IntegerConv& c, const Epi& epi, const gw_pool* pool) {
  const int64_t rows = c.n * c.out[0] * c.out[1] * c.out[2];
  const int64_t k = c.kernel[0] * c.kernel[1] * c.kernel[2] * c.ci;
  const int64_t group_bytes = IntegerPanels::size(k, c.co);
  const int64_t padding_bytes = c.ci * (c.kernel[2] > 0 ? c.kernel[2] : 1);  // merged pieces too
  uint8_t few[1024];
  uint8_t* padding = padding_bytes <= 1024 ? few : static_cast<uint8_t*>(malloc(static_cast<size_t>(padding_bytes)));
  if (!padding) __builtin_trap();
  memset(padding, c.x_zero, static_cast<size_t>(padding_bytes));
  const auto job = [&](int64_t g) {
    return IntegerJob<WindowSource>{
        WindowSource(c, g, padding),
        IntegerPanels::at(static_cast<const uint8_t*>(c.w) + g * group_bytes, k, c.co, c.zeros),
        g * c.co};
  };
  multiply_integers_parallel<L>(c.groups, rows, c.co, k, c.x_zero, job, epi, pool);
  if (padding != few) free(padding);
}

}  // namespace gw
