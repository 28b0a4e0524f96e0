// Instantiations that test_conv.py calls.
#include "gw/conv.h"
#include "gw/conv_transpose.h"
#include "gw/depthwise.h"
#include "gw/pool2d.h"
#include "gw/runtime.h"

namespace {

struct BiasStore {
  const float* GW_RESTRICT bias;
  float* GW_RESTRICT out;
  int64_t channels;
  GW_INLINE void operator()(const float* tile, int64_t ld, int64_t, int64_t row0, int64_t rows,
                            int64_t col0, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      float* GW_RESTRICT o = out + (row0 + r) * channels + col0;
      GW_COLUMNS
      for (int64_t c = 0; c < cols; ++c) o[c] = tile[r * ld + c] + bias[col0 + c];
    }
  }
};

// s: n, groups, ci, co, in[3], out[3], kernel[3], stride[3], dilation[3], pad[3]
gw::Conv describe(void* const* p, const int64_t* s) {
  gw::Conv c;
  c.x = static_cast<const float*>(p[0]);
  c.w = static_cast<const float*>(p[1]);
  c.n = s[0], c.groups = s[1], c.ci = s[2], c.co = s[3];
  for (int i = 0; i < 3; ++i) {
    c.in[i] = s[4 + i], c.out[i] = s[7 + i], c.kernel[i] = s[10 + i];
    c.stride[i] = s[13 + i], c.dilation[i] = s[16 + i], c.pad[i] = s[19 + i];
  }
  c.xs[2] = c.groups * c.ci;
  c.xs[1] = c.xs[2] * c.in[2];
  c.xs[0] = c.xs[1] * c.in[1];
  c.xn = c.xs[0] * c.in[0];
  return c;
}

}  // namespace

// p: x, w, bias, out
extern "C" GW_EXPORT void conv(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::conv(c, BiasStore{static_cast<const float*>(p[2]), static_cast<float*>(p[3]), c.groups * c.co},
           pool);
}

extern "C" GW_EXPORT void depthwise(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::depthwise(c, BiasStore{static_cast<const float*>(p[2]), static_cast<float*>(p[3]), c.groups * c.co},
                pool);
}

extern "C" GW_EXPORT void conv_transpose(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::Conv t = c;
  t.xs[2] = c.groups * c.ci;
  gw::conv_transpose(
      t, BiasStore{static_cast<const float*>(p[2]), static_cast<float*>(p[3]), c.groups * c.co}, pool);
}

// p: x, -, bias, out; s as above (groups channels), then mean?, count_include_pad, pad_end[3]
extern "C" GW_EXPORT void pooling(void* const* p, const int64_t* s, const gw_pool* pool) {
  const gw::Conv c = describe(p, s);
  gw::Pooling q;
  q.x = c.x, q.n = c.n, q.channels = c.groups, q.xn = c.xn;
  for (int i = 0; i < 3; ++i) {
    q.in[i] = c.in[i], q.out[i] = c.out[i], q.kernel[i] = c.kernel[i], q.stride[i] = c.stride[i];
    q.dilation[i] = c.dilation[i], q.pad[i] = c.pad[i], q.xs[i] = c.xs[i], q.pad_end[i] = s[24 + i];
  }
  q.count_include_pad = s[23] != 0;
  const BiasStore epilogue{static_cast<const float*>(p[2]), static_cast<float*>(p[3]), c.groups};
  if (s[22]) {
    gw::average_pool(q, epilogue, pool);
  } else {
    gw::max_pool(q, epilogue, pool);
  }
}
