// LSTM layers whose weights are 8-bit integers: x as a whole and the hidden state of each sequence at each step
// become u8 (the range of their numbers and 0 in 255 steps), products are integers with 32-bit sums. Equations and gate order are those
// of recurrent.h; compiler/ir/ops/recurrent_integer.py is the definition.
//
// Weights, for each direction one after the other: pack_integer_b(w[d], zeros[d]) for a left operand of u8.
// Numbers that are not finite make what depends on their scale NaN.
#pragma once
#include <string.h>

#include "integer_gemm.h"
#include "loops.h"
#include "math.h"
#include "scalar.h"

namespace gw GW_HIDDEN {

struct IntegerLstm {
  const float* x = nullptr;  // rows of `input` floats, row (t, b) at x + t * x_step + b * x_batch
  const void *w = nullptr, *r = nullptr;  // packed
  const float *w_scale = nullptr, *r_scale = nullptr;  // [directions][4H], or [directions] when even
  const float* bias = nullptr;                         // [directions][4H], both biases added
  const float* peephole = nullptr;                     // [directions][3H] in order i, o, f; may be null
  const float *h0 = nullptr, *c0 = nullptr;            // [directions][batch][H]
  const int32_t* lengths = nullptr;                    // [batch]; null: all `steps`
  float *y = nullptr, *h_last = nullptr, *c_last = nullptr;
  float* workspace = nullptr;  // directions * batch * (hidden * (4 * (steps + 1) + 2) + 2) floats
  uint8_t* bytes = nullptr;    // batch * (steps * input + directions * hidden)
  int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 1;
  int64_t x_step = 0, x_batch = 0, y_step = 0, y_direction = 0, y_batch = 0;
  bool reverse = false;  // of a single direction
  bool input_forget = false;
  bool w_even = false, r_even = false;    // one scale serves all gates of a direction
  bool w_zeros = false, r_zeros = false;  // some zero point, as packed, is not 0
};

// The activations of one direction: of the gates, of the new values, of the cell's state.
template <class Gate, class Inner, class Outer>
struct LstmCell {
  Gate gate;
  Inner inner;
  Outer outer;
};
template <class Gate, class Inner, class Outer>
LstmCell(Gate, Inner, Outer) -> LstmCell<Gate, Inner, Outer>;

namespace lstm_integer_detail {

struct Range {
  float low[16] = {}, high[16] = {}, odd[16] = {};  // odd: NaN when something is not finite
  void add(const float* p, int64_t n) {
    lanes<16>(n, [&](int64_t i, int64_t l) GW_INLINE_LAMBDA {
      low[l] = p[i] < low[l] ? p[i] : low[l];
      high[l] = p[i] > high[l] ? p[i] : high[l];
      odd[l] += p[i] - p[i];
    });
  }
};

struct Quantization {
  float scale;  // NaN when something is not finite
  int32_t zero;  // of u8
};

inline Quantization quantization_of(Range& r) {
  const float low = combine_lanes<16>(r.low, [](float a, float b) { return a < b ? a : b; });
  const float high = combine_lanes<16>(r.high, [](float a, float b) { return a > b ? a : b; });
  const float odd = combine_lanes<16>(r.odd, [](float a, float b) { return a + b; });
  const float scale = low == high ? 1.0f : (high - low) / 255.0f;
  return {scale + odd, cast<uint8_t>(round_even(-low / scale), true)};
}

inline void to_bytes(const float* GW_RESTRICT x, int64_t n, Quantization q, uint8_t* GW_RESTRICT out) {
  const float zero = static_cast<float>(q.zero);
  for (int64_t i = 0; i < n; ++i) {
    const float v = round_even(x[i] / q.scale) + zero;
    const float low = v > 0.0f ? v : 0.0f;  // NaN becomes 0; its scale is NaN as well
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(low < 255.0f ? low : 255.0f));
  }
}

// The rows of a product: they share one quantization, or each has its own.
struct Rows {
  const uint8_t* bytes;
  const Quantization* q;
  bool own;
};

struct StoreScaled {
  float* out;
  const float* scales;  // of b: one a column, or one
  bool even;
  const float* bias;    // null: none
  const int32_t* sums;  // of b's columns, for zero points that differ from row to row; null: they are subtracted
  const Quantization* q;
  int64_t row_stride;
  GW_INLINE void operator()(const int32_t* tile, int64_t ld, int64_t, int64_t row0, int64_t rows, int64_t col0,
                            int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      const Quantization own = q[sums ? row0 + r : 0];
      float* GW_RESTRICT o = out + (row0 + r) * row_stride + col0;
      const int32_t* GW_RESTRICT t = tile + r * ld;
      if (even && !(sums && bias)) {  // the usual cases, in one loop each
        const float s = own.scale * *scales;
        if (sums) {
          const int32_t* GW_RESTRICT of = sums + col0;
          const int32_t zero = own.zero;
          GW_COLUMNS
          for (int64_t c = 0; c < cols; ++c) o[c] = static_cast<float>(t[c] - zero * of[c]) * s;
        } else if (bias) {
          const float* GW_RESTRICT b = bias + col0;
          GW_COLUMNS
          for (int64_t c = 0; c < cols; ++c) o[c] = static_cast<float>(t[c]) * s + b[c];
        } else {
          GW_COLUMNS
          for (int64_t c = 0; c < cols; ++c) o[c] = static_cast<float>(t[c]) * s;
        }
        continue;
      }
      if (sums) {
        const int32_t* GW_RESTRICT of = sums + col0;
        const int32_t zero = own.zero;
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] = static_cast<float>(t[c] - zero * of[c]);
      } else {
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] = static_cast<float>(t[c]);
      }
      if (even) {
        const float s = own.scale * *scales;
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] *= s;
      } else {
        const float* GW_RESTRICT s = scales + col0;
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] *= own.scale * s[c];
      }
      if (bias) {
        const float* GW_RESTRICT b = bias + col0;
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] += b[c];
      }
    }
  }
};

inline void product(const Rows& a, const void* b, bool zeros, int64_t m, int64_t n, int64_t k, const float* scales,
                    bool even, const float* bias, float* out, const gw_pool* pool) {
  IntegerGemm g;
  g.a = a.bytes, g.b = b, g.a_row_stride = k, g.a_zero = a.own ? 0 : a.q->zero, g.zeros = zeros;
  g.m = m, g.n = n, g.k = k;
  const int32_t* sums = a.own ? static_cast<const int32_t*>(b) : nullptr;
  integer_gemm<Left::U8>(g, StoreScaled{out, scales, even, bias, sums, a.q, n}, pool);
}

template <bool Peephole, bool Coupled, class Cell>
inline void units(const float* GW_RESTRICT x, const float* GW_RESTRICT g, const float* GW_RESTRICT p,
                  float* GW_RESTRICT h, float* GW_RESTRICT c, int64_t H, const Cell& cell) {
  for (int64_t j = 0; j < H; ++j) {
    float in = x[j] + g[j], out = x[H + j] + g[H + j], forget = x[2 * H + j] + g[2 * H + j];
    if constexpr (Peephole) in += p[j] * c[j], forget += p[2 * H + j] * c[j];
    in = cell.gate(in);
    forget = Coupled ? 1.0f - in : cell.gate(forget);
    const float next = forget * c[j] + in * cell.inner(x[3 * H + j] + g[3 * H + j]);
    if constexpr (Peephole) out += p[H + j] * next;
    c[j] = next;
    h[j] = cell.gate(out) * cell.outer(next);
  }
}

template <class Cell>
inline void direction(const IntegerLstm& l, int64_t d, const float* projected, float* scratch, uint8_t* bytes,
                      const Cell& cell, const gw_pool* pool) {
  const int64_t H = l.hidden, B = l.batch, width = 4 * H;
  const bool reverse = l.directions == 2 ? d == 1 : l.reverse;
  float *gates = scratch, *h = gates + B * width, *c = h + B * H;
  const size_t state_bytes = static_cast<size_t>(B * H) * 4;
  auto* const q = reinterpret_cast<Quantization*>(c + B * H);
  memcpy(h, l.h0 + d * B * H, state_bytes);
  memcpy(c, l.c0 + d * B * H, state_bytes);
  const void* r = static_cast<const uint8_t*>(l.r) + d * IntegerPanels::size(H, width);
  const float* p = l.peephole ? l.peephole + d * 3 * H : nullptr;
  for (int64_t s = 0; s < l.steps; ++s) {
    for (int64_t b = 0; b < B; ++b) {
      Range range;
      range.add(h + b * H, H);
      q[b] = quantization_of(range);
      to_bytes(h + b * H, H, q[b], bytes + b * H);
    }
    product({bytes, q, B > 1}, r, l.r_zeros, B, width, H, l.r_scale + d * (l.r_even ? 1 : width), l.r_even,
            nullptr, gates, pool);
    for (int64_t b = 0; b < B; ++b) {
      const int64_t length = l.lengths ? l.lengths[b] : l.steps;
      const int64_t t = s < length && reverse ? length - 1 - s : s;
      float* y = l.y + t * l.y_step + d * l.y_direction + b * l.y_batch;
      if (s >= length) {
        memset(y, 0, static_cast<size_t>(H) * 4);
        continue;
      }
      const float *x = projected + (t * B + b) * width, *g = gates + b * width;
      float *hb = h + b * H, *cb = c + b * H;
      if (p && l.input_forget) {
        units<true, true>(x, g, p, hb, cb, H, cell);
      } else if (p) {
        units<true, false>(x, g, p, hb, cb, H, cell);
      } else if (l.input_forget) {
        units<false, true>(x, g, p, hb, cb, H, cell);
      } else {
        units<false, false>(x, g, p, hb, cb, H, cell);
      }
      memcpy(y, hb, static_cast<size_t>(H) * 4);
    }
  }
  memcpy(l.h_last + d * B * H, h, state_bytes);
  memcpy(l.c_last + d * B * H, c, state_bytes);
}

}  // namespace lstm_integer_detail

// `first` and `second` are the cells of the two directions; of one direction the second is not used.
template <class First, class Second>
inline void lstm_integer(const IntegerLstm& l, const First& first, const Second& second, const gw_pool* pool) {
  using namespace lstm_integer_detail;
  const int64_t B = l.batch, width = 4 * l.hidden, rows = l.steps * B;
  const int64_t each = B * (l.hidden * (4 * (l.steps + 1) + 2) + 2);
  Range range;
  for (int64_t t = 0; t < l.steps; ++t)
    for (int64_t b = 0; b < B; ++b) range.add(l.x + t * l.x_step + b * l.x_batch, l.input);
  const Quantization q = quantization_of(range);
  for (int64_t t = 0; t < l.steps; ++t)
    for (int64_t b = 0; b < B; ++b)
      to_bytes(l.x + t * l.x_step + b * l.x_batch, l.input, q, l.bytes + (t * B + b) * l.input);
  for (int64_t d = 0; d < l.directions; ++d) {
    const void* w = static_cast<const uint8_t*>(l.w) + d * IntegerPanels::size(l.input, width);
    product({l.bytes, &q, false}, w, l.w_zeros, rows, width, l.input, l.w_scale + d * (l.w_even ? 1 : width),
            l.w_even, l.bias + d * width, l.workspace + d * each, pool);
  }
  uint8_t* const bytes = l.bytes + rows * l.input;
  const auto run = [&](int64_t d, const gw_pool* within) {
    float* const projected = l.workspace + d * each;
    float* const scratch = projected + rows * width;
    if (d == 0) {
      direction(l, d, projected, scratch, bytes, first, within);
    } else {
      direction(l, d, projected, scratch, bytes + B * l.hidden, second, within);
    }
  };
  if (l.directions == 1) return run(0, pool);
  parallel_for(pool, l.directions, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t d = begin; d < end; ++d) run(d, nullptr);
  });
}

}  // namespace gw
