// Recurrent layers with any activations, clipping, coupled gates: what gw/recurrent.h does not cover (rnn among
// it). Plain loops over weights as they are, rows [gate][unit]; the usual layers belong to recurrent.h.
//
//   Gates per unit j, batch row b:  a[g] = x W[g]^T + h R[g]^T + bias;  see the IR's op docstrings
//   (compiler/ir/ops/recurrent.py) for the equations.
//
// The functors F, G, H are the activations in the op's order; `clip` limits what enters F and G.
#pragma once
#include <stdint.h>
#include <string.h>

#include "loops.h"
#include "scalar.h"

namespace gw GW_HIDDEN {

struct AnyRecurrent {
  const float* x = nullptr;  // [steps][batch][input]
  const float* w = nullptr;  // of one direction: [gates * hidden][input]
  const float* r = nullptr;  // [gates * hidden][hidden]
  const float* bias = nullptr;      // [2 * gates * hidden]
  const float* peephole = nullptr;  // lstm: [3 * hidden] of i, o, f; may be null
  const float* h0 = nullptr;        // [batch][hidden]
  const float* c0 = nullptr;
  const int64_t* lengths = nullptr;  // may be null
  float* y = nullptr;
  float* h = nullptr;  // [batch][hidden]: the last state, and the running one
  float* c = nullptr;
  float* workspace = nullptr;  // any_recurrent_workspace floats
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int64_t y_step = 0, y_batch = 0;
  bool backwards = false, input_forget = false, linear_before_reset = false;
  float clip = __builtin_inff();
};

inline int64_t any_recurrent_workspace(int64_t gates, int64_t hidden) { return (2 * gates + 1) * hidden; }

namespace recurrent_any_detail {

inline float dot(const float* a, const float* b, int64_t n) {
  float acc[16] = {};
  lanes<16>(n, [&](int64_t i, int64_t l) GW_INLINE_LAMBDA { acc[l] += a[i] * b[i]; });
  return combine_lanes<16>(acc, [](float p, float q) { return p + q; });
}

// from_x[i] = x W^T + bias of w, from_h[i] = h R^T + bias of r, for rows [first, last).
inline void products(const AnyRecurrent& l, int64_t gates, const float* x, const float* h, int64_t first,
                     int64_t last, float* from_x, float* from_h) {
  for (int64_t i = first; i < last; ++i) {
    if (from_x) from_x[i] = dot(x, l.w + i * l.input, l.input) + l.bias[i];
    from_h[i] = dot(h, l.r + i * l.hidden, l.hidden) + l.bias[gates * l.hidden + i];
  }
}

// Calls step(x, h, c, from_x, from_h, fresh h) for each element of each sequence, in order.
template <class Step>
inline void run(const AnyRecurrent& l, int64_t gates, const Step& step) {
  float* const from_x = l.workspace;
  float* const from_h = from_x + gates * l.hidden;
  float* const fresh = from_h + gates * l.hidden;
  const auto bytes = static_cast<size_t>(l.hidden) * 4;
  for (int64_t b = 0; b < l.batch; ++b) {
    float* const h = l.h + b * l.hidden;
    float* const c = l.c ? l.c + b * l.hidden : nullptr;
    memcpy(h, l.h0 + b * l.hidden, bytes);
    if (c) memcpy(c, l.c0 + b * l.hidden, bytes);
    const int64_t length = l.lengths ? smaller(larger(l.lengths[b], 0), l.steps) : l.steps;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = l.backwards ? length - 1 - i : i;
      step(l.x + (t * l.batch + b) * l.input, h, c, from_x, from_h, fresh);
      memcpy(h, fresh, bytes);
      memcpy(l.y + t * l.y_step + b * l.y_batch, h, bytes);
    }
    for (int64_t t = length; t < l.steps; ++t) memset(l.y + t * l.y_step + b * l.y_batch, 0, bytes);
  }
}

}  // namespace recurrent_any_detail

template <class F>
inline void rnn_any(const AnyRecurrent& l, const F& f) {
  using namespace recurrent_any_detail;
  run(l, 1, [&](const float* x, const float* h, float*, float* from_x, float* from_h, float* fresh) {
    products(l, 1, x, h, 0, l.hidden, from_x, from_h);
    for (int64_t j = 0; j < l.hidden; ++j) fresh[j] = f(clip(from_x[j] + from_h[j], -l.clip, l.clip));
  });
}

template <class F, class G>
inline void gru_any(const AnyRecurrent& l, const F& f, const G& g) {
  using namespace recurrent_any_detail;
  const int64_t n = l.hidden;
  run(l, 3, [&](const float* x, const float* h, float*, float* from_x, float* from_h, float* fresh) {
    products(l, 3, x, h, 0, (l.linear_before_reset ? 3 : 2) * n, from_x, from_h);
    for (int64_t j = 0; j < 2 * n; ++j) from_h[j] = f(clip(from_x[j] + from_h[j], -l.clip, l.clip));
    const float* const z = from_h;
    const float* const reset = from_h + n;
    float* const inner = from_h + 2 * n;
    if (l.linear_before_reset) {
      for (int64_t j = 0; j < n; ++j) inner[j] *= reset[j];
    } else {
      for (int64_t j = 0; j < n; ++j) fresh[j] = reset[j] * h[j];
      for (int64_t i = 2 * n; i < 3 * n; ++i) from_x[i] = dot(x, l.w + i * l.input, l.input) + l.bias[i];
      products(l, 3, x, fresh, 2 * n, 3 * n, nullptr, from_h);
    }
    for (int64_t j = 0; j < n; ++j) {
      const float next = g(clip(from_x[2 * n + j] + inner[j], -l.clip, l.clip));
      fresh[j] = (1.0f - z[j]) * next + z[j] * h[j];
    }
  });
}

template <class F, class G, class H>
inline void lstm_any(const AnyRecurrent& l, const F& f, const G& g, const H& last) {
  using namespace recurrent_any_detail;
  const int64_t n = l.hidden;
  const float* const p = l.peephole;
  run(l, 4, [&](const float* x, const float* h, float* c, float* from_x, float* from_h, float* fresh) {
    products(l, 4, x, h, 0, 4 * n, from_x, from_h);
    for (int64_t j = 0; j < n; ++j) {
      const float old = c[j];
      const auto sum = [&](int64_t gate) { return from_x[gate * n + j] + from_h[gate * n + j]; };
      const auto limit = [&](float v) { return clip(v, -l.clip, l.clip); };
      const float i = f(limit(sum(0) + (p ? p[j] * old : 0.0f)));
      const float forget = l.input_forget ? 1.0f - i : f(limit(sum(2) + (p ? p[2 * n + j] * old : 0.0f)));
      c[j] = forget * old + i * g(limit(sum(3)));
      fresh[j] = f(limit(sum(1) + (p ? p[n + j] * c[j] : 0.0f))) * last(c[j]);
    }
  });
}

}  // namespace gw
