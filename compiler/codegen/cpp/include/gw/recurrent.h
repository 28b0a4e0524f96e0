// LSTM and GRU layers with ONNX semantics (default activations sigmoid, tanh, tanh), one or two directions.
//
//   lstm, gate order i o f c:   i, o, f = sigmoid(x W^T + h R^T + b [+ peephole * c]),  g = tanh(...)
//                               c' = f * c + i * g,  h' = o * tanh(c')   (o's peephole sees c')
//   gru, gate order z r h:      z, r = sigmoid(x W^T + h R^T + b)
//                               n = tanh(x W^T + b + r * (h R^T + bh))   when linear_before_reset
//                               n = tanh(x W^T + (r * h) R^T + b)        otherwise
//                               h' = z * h + (1 - z) * n
//
// The input projection of all steps is one GEMM; each step is then a GEMM with as many rows as the batch
// (a matrix-vector product over packed R when that is 1) and a vectorised pass over the hidden units. Two
// directions run on two threads, one direction splits its products over the pool when they are large.
//
// Packed weights, for each direction d one after the other: w = pack_gemm_b(W[d].T), r = pack_gemm_b(R[d].T);
// for a gru without linear_before_reset r = pack_gemm_b(R[d][:2H].T) then pack_gemm_b(R[d][2H:].T).
// Bias: for an lstm [directions][4H] = Wb + Rb. For a gru [directions][4H]: Wb + Rb of z and r, Wb of n,
// Rb of n (with linear_before_reset; else n's entry is Wb + Rb and the last H are not read).
//
// Sequences shorter than `steps` (sequence_lens): outputs after the end are zero, the state stops, and the
// reverse direction starts at the sequence's last step.
#pragma once
#include <string.h>

#include "gemm.h"
#include "math.h"

namespace gw GW_HIDDEN {

struct Recurrent {
  const float* x = nullptr;     // rows of `input` floats, row (t, b) at x + t * x_step + b * x_batch
  const float* w = nullptr;     // packed input weights
  const float* r = nullptr;     // packed recurrent weights
  const float* bias = nullptr;  // may be null
  const float* peephole = nullptr;       // lstm: [directions][3H] in order i, o, f; may be null
  const float* h0 = nullptr;             // [directions][batch][H]; null: zeros
  const float* c0 = nullptr;             // lstm
  const int32_t* lengths = nullptr;      // [batch]; null: all `steps`
  float* y = nullptr;                    // may be null; see the strides
  float* h_last = nullptr;               // [directions][batch][H]; may be null
  float* c_last = nullptr;               // lstm
  float* workspace = nullptr;            // recurrent_workspace(...) floats
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int64_t directions = 1;
  bool reverse = false;                  // of a single direction
  bool linear_before_reset = false;      // gru
  int64_t x_step = 0, x_batch = 0;       // one of them a multiple of the other: the rows form a regular grid
  int64_t y_step = 0, y_direction = 0, y_batch = 0;
};

// Floats of workspace; gates is 4 for an lstm, 3 for a gru.
inline int64_t recurrent_workspace(int64_t gates, int64_t steps, int64_t batch, int64_t hidden,
                                   int64_t directions) {
  return directions * batch * hidden * ((steps + 1) * gates + 3);
}

namespace recurrent_detail {

struct StoreRows {
  float* out;
  const float* bias;  // null: none
  int64_t row_stride;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (row0 + r) * row_stride + col0;
      const float* GW_RESTRICT t = tile + r * ld;
      if (bias) {
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] = t[c] + bias[col0 + c];
      } else {
        GW_COLUMNS
        for (int64_t c = 0; c < cols; ++c) o[c] = t[c];
      }
    }
  }
};

inline void product(const float* a, int64_t a_stride, const float* b, int64_t m, int64_t n, int64_t k,
                    float* out, int64_t out_stride, const float* bias, const gw_pool* pool,
                    bool backwards = false) {
  Gemm g;
  g.a = a, g.b = b, g.a_row_stride = a_stride;
  g.m = m, g.n = n, g.k = k, g.backwards = backwards;
  gemm(g, StoreRows{out, bias, out_stride}, pool);
}

// projected[(t * batch + b)] = x[t][b] W^T + bias
inline void project(const Recurrent& c, int64_t gates, int64_t d, float* projected, const gw_pool* pool) {
  const int64_t width = gates * c.hidden;
  const float* w = c.w + d * packed_floats(c.input, width);
  const float* bias = c.bias ? c.bias + d * 4 * c.hidden : nullptr;
  if (c.batch == 1 || c.x_step == c.batch * c.x_batch) {
    const int64_t stride = c.batch == 1 ? c.x_step : c.x_batch;
    product(c.x, stride, w, c.steps * c.batch, width, c.input, projected, width, bias, pool);
  } else {
    for (int64_t b = 0; b < c.batch; ++b)
      product(c.x + b * c.x_batch, c.x_step, w, c.steps, width, c.input, projected + b * width,
              c.batch * width, bias, pool);
  }
}

struct Step {
  int64_t t;
  bool active;
};
inline Step step_of(const Recurrent& c, int64_t s, int64_t b, bool reverse) {
  const int64_t length = c.lengths ? c.lengths[b] : c.steps;
  if (s >= length) return {s, false};
  return {reverse ? length - 1 - s : s, true};
}

inline void lstm_direction(const Recurrent& c, int64_t d, const float* projected, float* scratch,
                           const gw_pool* pool) {
  const int64_t H = c.hidden, B = c.batch, width = 4 * H;
  const bool reverse = c.directions == 2 ? d == 1 : c.reverse;
  float *gates = scratch, *h = gates + B * width, *cell = h + B * H;
  const size_t state_bytes = static_cast<size_t>(B * H) * 4;
  if (c.h0) memcpy(h, c.h0 + d * B * H, state_bytes); else memset(h, 0, state_bytes);
  if (c.c0) memcpy(cell, c.c0 + d * B * H, state_bytes); else memset(cell, 0, state_bytes);
  const float* r = c.r + d * packed_floats(H, width);
  for (int64_t s = 0; s < c.steps; ++s) {
    // To and fro: weights larger than the cache are found there in part.
    product(h, H, r, B, width, H, gates, width, nullptr, pool, s % 2 != 0);
    for (int64_t b = 0; b < B; ++b) {
      const Step step = step_of(c, s, b, reverse);
      float* GW_RESTRICT y = c.y ? c.y + step.t * c.y_step + d * c.y_direction + b * c.y_batch : nullptr;
      if (!step.active) {
        if (y) memset(y, 0, static_cast<size_t>(H) * 4);
        continue;
      }
      const float* GW_RESTRICT x = projected + (step.t * B + b) * width;
      const float* GW_RESTRICT g = gates + b * width;
      float* GW_RESTRICT hb = h + b * H;
      float* GW_RESTRICT cb = cell + b * H;
      if (c.peephole) {
        const float* GW_RESTRICT p = c.peephole + d * 3 * H;
        for (int64_t j = 0; j < H; ++j) {
          const float in = sigmoid(x[j] + g[j] + p[j] * cb[j]);
          const float forget = sigmoid(x[2 * H + j] + g[2 * H + j] + p[2 * H + j] * cb[j]);
          const float next = forget * cb[j] + in * tanh(x[3 * H + j] + g[3 * H + j]);
          const float out = sigmoid(x[H + j] + g[H + j] + p[H + j] * next);
          cb[j] = next;
          hb[j] = out * tanh(next);
        }
      } else {
        for (int64_t j = 0; j < H; ++j) {
          const float in = sigmoid(x[j] + g[j]), out = sigmoid(x[H + j] + g[H + j]);
          const float forget = sigmoid(x[2 * H + j] + g[2 * H + j]);
          const float next = forget * cb[j] + in * tanh(x[3 * H + j] + g[3 * H + j]);
          cb[j] = next;
          hb[j] = out * tanh(next);
        }
      }
      if (y) memcpy(y, hb, static_cast<size_t>(H) * 4);
    }
  }
  if (c.h_last) memcpy(c.h_last + d * B * H, h, state_bytes);
  if (c.c_last) memcpy(c.c_last + d * B * H, cell, state_bytes);
}

inline void gru_direction(const Recurrent& c, int64_t d, const float* projected, float* scratch,
                          const gw_pool* pool) {
  const int64_t H = c.hidden, B = c.batch, width = 3 * H;
  const bool reverse = c.directions == 2 ? d == 1 : c.reverse;
  float *gates = scratch, *h = gates + B * width, *reset = h + B * H;
  const size_t state_bytes = static_cast<size_t>(B * H) * 4;
  if (c.h0) memcpy(h, c.h0 + d * B * H, state_bytes); else memset(h, 0, state_bytes);
  const bool linear = c.linear_before_reset;
  const int64_t two = packed_floats(H, 2 * H);
  const float* r = c.r + d * (linear ? packed_floats(H, width) : two + packed_floats(H, H));
  const float* bias = c.bias && linear ? c.bias + d * 4 * H + 3 * H : nullptr;
  for (int64_t s = 0; s < c.steps; ++s) {
    if (linear) {
      product(h, H, r, B, width, H, gates, width, nullptr, pool, s % 2 != 0);
    } else {
      product(h, H, r, B, 2 * H, H, gates, width, nullptr, pool, s % 2 != 0);
      for (int64_t b = 0; b < B; ++b) {
        const float* GW_RESTRICT x = projected + (step_of(c, s, b, reverse).t * B + b) * width + H;
        const float* GW_RESTRICT g = gates + b * width + H;
        float* GW_RESTRICT to = reset + b * H;
        const float* GW_RESTRICT hb = h + b * H;
        for (int64_t j = 0; j < H; ++j) to[j] = sigmoid(x[j] + g[j]) * hb[j];
      }
      product(reset, H, r + two, B, H, H, gates + 2 * H, width, nullptr, pool, s % 2 != 0);
    }
    for (int64_t b = 0; b < B; ++b) {
      const Step step = step_of(c, s, b, reverse);
      float* GW_RESTRICT y = c.y ? c.y + step.t * c.y_step + d * c.y_direction + b * c.y_batch : nullptr;
      if (!step.active) {
        if (y) memset(y, 0, static_cast<size_t>(H) * 4);
        continue;
      }
      const float* GW_RESTRICT x = projected + (step.t * B + b) * width;
      const float* GW_RESTRICT g = gates + b * width;
      float* GW_RESTRICT hb = h + b * H;
      if (linear) {
        for (int64_t j = 0; j < H; ++j) {
          const float z = sigmoid(x[j] + g[j]), q = sigmoid(x[H + j] + g[H + j]);
          const float rec = bias ? g[2 * H + j] + bias[j] : g[2 * H + j];
          const float n = tanh(x[2 * H + j] + q * rec);
          hb[j] = z * hb[j] + (1.0f - z) * n;
        }
      } else {
        for (int64_t j = 0; j < H; ++j) {
          const float z = sigmoid(x[j] + g[j]);
          const float n = tanh(x[2 * H + j] + g[2 * H + j]);
          hb[j] = z * hb[j] + (1.0f - z) * n;
        }
      }
      if (y) memcpy(y, hb, static_cast<size_t>(H) * 4);
    }
  }
  if (c.h_last) memcpy(c.h_last + d * B * H, h, state_bytes);
}

template <class Direction>
inline void run(const Recurrent& c, int64_t gates, const Direction& direction, const gw_pool* pool) {
  const int64_t rows = c.steps * c.batch * gates * c.hidden;
  const int64_t each = recurrent_workspace(gates, c.steps, c.batch, c.hidden, 1);
  for (int64_t d = 0; d < c.directions; ++d) project(c, gates, d, c.workspace + d * each, pool);
  if (c.directions == 1) {
    direction(c, 0, c.workspace, c.workspace + rows, pool);
    return;
  }
  parallel_for(pool, c.directions, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t d = begin; d < end; ++d)
      direction(c, d, c.workspace + d * each, c.workspace + d * each + rows, nullptr);
  });
}

}  // namespace recurrent_detail

inline void lstm(const Recurrent& c, const gw_pool* pool) {
  recurrent_detail::run(c, 4, recurrent_detail::lstm_direction, pool);
}

inline void gru(const Recurrent& c, const gw_pool* pool) {
  recurrent_detail::run(c, 3, recurrent_detail::gru_direction, pool);
}

}  // namespace gw
