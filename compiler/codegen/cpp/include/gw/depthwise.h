// Depthwise convolution of channels-last tensors (groups == input channels, one or more outputs each):
//
//   y[n, od, oh, ow, c*m + j] = sum over kd, kh, kw: x[n, id, ih, iw, c] * w[c*m + j, kd, kh, kw]
//
// Described by the same gw::Conv as conv.h, with groups = C, ci = 1, co = multiplier; weights packed by
// packing.pack_depthwise_weight as [kernel positions][round_up(C * co, kPanel)].
//
// Vectorised over channels. The register tile is up to 8 neighbouring output pixels x one or two vectors
// of channels, one accumulator each. The common kernels (3 or 5 columns, stride 1 or 2, no dilation) slide:
// an input vector is loaded once and meets all kernel columns, so loads, which bound this kernel, are about
// half as many as products. A unit of work is a band of output rows x a group of channels, gone through in
// stretches of pixels narrow enough that, going down the band, all but the newest input row are in L1. Rows
// of the window above or below the image are skipped, never read. Along the width a sliding tile reads zeros
// for columns outside the image (a pointer select, no branch); in the general kernel the pixels at the left
// and right edge go one by one over the kernel columns they see.
// Channels that do not fill the last vectors: the last block overlaps the one before it and hands only its
// own channels to the epilogue.
//
// Epilogue as in conv.h. The caller guarantees what conv.h asks for; x may have any strides with channel
// stride 1. Nothing past the last channel is read; the weight's padding is read and discarded.
#pragma once
#include "conv.h"

namespace gw GW_HIDDEN {
namespace depthwise_detail {

constexpr bool kManyRegisters = kLanes == 16 || kNV == 4;  // 32 vector registers, else 16
constexpr int kPixels = kManyRegisters ? 8 : 4;            // of a tile two vectors wide; one vector: 8
constexpr int kVectors = 2;                                // of a channel block
constexpr int kWidth = kVectors * kLanes;
constexpr int64_t kTilePixels = 16;
constexpr int64_t kMaxRows = 64;         // kernel rows (kd, kh)
constexpr int64_t kWindowBytes = 32768;  // input of one output row's stretch

// One line of output: where the window's rows are and which rows of the weights they meet.
struct Window {
  int64_t rows = 0;
  const float* at[kMaxRows];      // input row, at the position of kernel column 0 of output pixel 0
  const float* weight[kMaxRows];  // weights of kernel column 0
};

struct Steps {
  int64_t pixel, column, weight;  // floats between output pixels, kernel columns, weight taps
};

// [first, last): for a plain tile the kernel columns to visit, for a sliding one the input columns that
// exist, counted from the tile's first.
typedef void (*tile_fn)(const Window& line, const Steps& by, int64_t offset, int64_t c0, int64_t first,
                        int64_t last, int64_t partial, float* tile);

// PX pixels starting `offset` floats into the line, NV vectors of channels from c0 of the weights; of the
// last vector `partial` lanes exist when Partial.
template <int PX, int NV, bool Partial>
GW_NOINLINE void tile_sum(const Window& line, const Steps& by, int64_t offset, int64_t c0, int64_t kw0,
                          int64_t kw1, int64_t partial, float* tile) {
  vf acc[PX][NV];
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) acc[p][v] = splat(0.0f);
  }
  // One register a pixel: left to itself GCC forms a second set of addresses for the second vector.
  int64_t pixel[PX];
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    pixel[p] = p * by.pixel * 4;
    GW_OPAQUE(pixel[p]);
  }
  for (int64_t i = 0; i < line.rows; ++i) {
    const float* from = line.at[i] + offset + kw0 * by.column;
    const float* weights = line.weight[i] + c0 + kw0 * by.weight;
    for (int64_t kw = kw0; kw < kw1; ++kw) {
      vf wv[NV];
      GW_UNROLL
      for (int v = 0; v < NV; ++v) wv[v] = load(weights + v * kLanes);
      GW_UNROLL
      for (int p = 0; p < PX; ++p) {
        GW_UNROLL
        for (int v = 0; v < NV; ++v) {
          const float* at =
              reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + pixel[p]) + v * kLanes;
          const vf xv = Partial && v == NV - 1 ? load_partial(at, partial) : load(at);
          acc[p][v] = fma(xv, wv[v], acc[p][v]);
        }
      }
      from += by.column;
      weights += by.weight;
    }
  }
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) store(tile + p * kWidth + v * kLanes, acc[p][v]);
  }
}

// As tile_sum for KW kernel columns at stride SW, dilation 1: each input vector meets all of them.
template <int PX, int NV, int KW, int SW>
GW_NOINLINE void tile_slide(const Window& line, const Steps& by, int64_t offset, int64_t c0, int64_t first,
                            int64_t last, int64_t, float* tile) {
  const uint64_t span = static_cast<uint64_t>(last - first);
  vf acc[PX][NV];
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) acc[p][v] = splat(0.0f);
  }
  for (int64_t i = 0; i < line.rows; ++i) {
    const float* from = line.at[i] + offset;
    const float* weights = line.weight[i] + c0;
    vf w[KW][NV];
    GW_UNROLL
    for (int k = 0; k < KW; ++k) {
      GW_UNROLL
      for (int v = 0; v < NV; ++v) w[k][v] = load(weights + k * by.weight + v * kLanes);
    }
    GW_UNROLL
    for (int q = 0; q < (PX - 1) * SW + KW; ++q) {
      const float* at = static_cast<uint64_t>(q - first) < span ? from : zero_row;
      GW_UNROLL
      for (int v = 0; v < NV; ++v) {
        vf xv = load(at + v * kLanes);
        GW_KEEP(xv);
        GW_UNROLL
        for (int k = 0; k < KW; ++k) {
          const int p = (q - k) / SW;
          if (q >= k && (q - k) % SW == 0 && p < PX) acc[p][v] = fma(xv, w[k][v], acc[p][v]);
        }
      }
      from += by.column;
      GW_OPAQUE(from);
    }
  }
  GW_UNROLL
  for (int p = 0; p < PX; ++p) {
    GW_UNROLL
    for (int v = 0; v < NV; ++v) store(tile + p * kWidth + v * kLanes, acc[p][v]);
  }
}

// fn[i] handles 1 << i pixels, up to `most`.
struct TileTable {
  int most;
  tile_fn fn[4];
};
template <int NV, bool Partial>
constexpr TileTable plain() {
  constexpr int PX = NV == 1 ? 8 : kPixels;
  TileTable t{PX, {tile_sum<1, NV, Partial>, tile_sum<2, NV, Partial>, tile_sum<4, NV, Partial>, nullptr}};
  if (PX == 8) t.fn[3] = tile_sum<PX, NV, Partial>;
  return t;
}
inline constexpr TileTable plain_tables[2][2] = {{plain<1, false>(), plain<1, true>()},
                                                 {plain<2, false>(), plain<2, true>()}};

// For 4 pixels and for as many as the registers hold with KW * NV weights.
struct SlideTable {
  int most;
  tile_fn few, many;
};
template <int NV, int KW, int SW>
constexpr SlideTable slide() {
  constexpr int PX = NV == 1 ? 8 : kPixels;
  return {PX, tile_slide<4, NV, KW, SW>, tile_slide<PX, NV, KW, SW>};
}
// Vectors taken together: five columns of two vectors leave 16 registers no room for sums.
template <int KW>
constexpr int together() {
  return kManyRegisters || KW <= 3 ? 2 : 1;
}
// [vectors - 1][columns == 5][stride - 1]
inline constexpr SlideTable slide_tables[2][2][2] = {
    {{slide<1, 3, 1>(), slide<1, 3, 2>()}, {slide<1, 5, 1>(), slide<1, 5, 2>()}},
    {{slide<together<3>(), 3, 1>(), slide<together<3>(), 3, 2>()},
     {slide<together<5>(), 5, 1>(), slide<together<5>(), 5, 2>()}}};

// Several outputs a channel: the input value of an output channel is x[channel / multiplier].
inline void multiplied(const Window& line, const Steps& by, int64_t offset, int64_t kw0, int64_t kw1,
                       int64_t multiplier, int64_t c0, int64_t channels, float* tile) {
  for (int64_t j = 0; j < kWidth; ++j) tile[j] = 0.0f;
  for (int64_t i = 0; i < line.rows; ++i) {
    for (int64_t kw = kw0; kw < kw1; ++kw) {
      const float* from = line.at[i] + offset + kw * by.column;
      const float* weights = line.weight[i] + c0 + kw * by.weight;
      for (int64_t j = 0; j < channels; ++j)
        tile[j] = __builtin_fmaf(from[(c0 + j) / multiplier], weights[j], tile[j]);
    }
  }
}

struct Unit {
  int64_t image, od, oh0, oh1, block0, block1;
};

// Channels [c0, c0 + width) are computed, the first `known` of them belong to the block before.
struct Block {
  int64_t c0, width, known;
};

// The geometry shared by all units of a call.
struct Plan {
  const Conv* c;
  int64_t channels, weight_stride, kernel_rows, blocks, bands, band_rows;
  int64_t group, groups;  // channel blocks of a unit
  int64_t stretch;      // pixels, a multiple of kTilePixels
  int64_t first, last;  // pixels [first, last) of a line see all kernel columns
  bool slides;

  Plan(const Conv& conv, int threads) : c(&conv) {
    channels = conv.groups * conv.co;
    weight_stride = (channels + kPanel - 1) / kPanel * kPanel;
    kernel_rows = conv.kernel[0] * conv.kernel[1];
    blocks = (channels + kWidth - 1) / kWidth;
    const int64_t reach = (conv.kernel[2] - 1) * conv.dilation[2];
    first = (conv.pad[2] + conv.stride[2] - 1) / conv.stride[2];
    const int64_t end = conv.in[2] + conv.pad[2] - reach;
    last = end > 0 ? (end - 1) / conv.stride[2] + 1 : 0;
    if (last > conv.out[2]) last = conv.out[2];
    if (first > last) first = last;
    // All channels of a stretch of at least kTilePixels pixels if the window then fits in L1.
    const int64_t pixel_bytes = kernel_rows * conv.stride[2] * kWidth * 4;
    group = kWindowBytes / (pixel_bytes * kTilePixels);
    if (group > blocks) group = blocks;
    if (group < 1) group = 1;
    stretch = kWindowBytes / (pixel_bytes * group) / kTilePixels * kTilePixels;
    if (stretch < kTilePixels) stretch = kTilePixels;
    slides = conv.co == 1 && conv.dilation[2] == 1 && conv.stride[2] <= 2 &&
             (conv.kernel[2] == 3 || conv.kernel[2] == 5);
    groups = (blocks + group - 1) / group;
    // Bands of rows: enough for the threads, and at least 4 rows so that the halo is not read too often.
    bands = threads < 2 ? 1 : (4 * threads + groups - 1) / groups;
    const int64_t most = (conv.out[1] + 3) / 4;
    if (bands > most) bands = most;
    band_rows = (conv.out[1] + bands - 1) / bands;
    bands = (conv.out[1] + band_rows - 1) / band_rows;
  }

  // Channel block number i.
  Block block(int64_t i) const {
    const int64_t left = channels - i * kWidth;
    if (left >= kWidth || c->co > 1) return {i * kWidth, left < kWidth ? left : kWidth, 0};
    // The last block: moved back to full vectors where there are enough channels before it.
    const int64_t full = left <= kLanes ? kLanes : kWidth;
    if (channels < full) return {0, left, 0};
    return {channels - full, full, full - left};
  }

  int64_t units() const { return c->n * c->out[0] * bands * groups; }
  Unit unit(int64_t index) const {
    const int64_t part = index % groups, band = index / groups % bands, plane = index / groups / bands;
    const int64_t oh1 = (band + 1) * band_rows, block1 = (part + 1) * group;
    return {plane / c->out[0], plane % c->out[0],
            band * band_rows,  oh1 < c->out[1] ? oh1 : c->out[1],
            part * group,      block1 < blocks ? block1 : blocks};
  }
};

// Output pixels [ow0, ow1) of a line, `width` channels from c0 on: one or two vectors.
inline void vectors(const Plan& plan, const Window& line, const Steps& by, int64_t ow0, int64_t ow1,
                    int64_t c0, int64_t width, float* tile) {
  const Conv& c = *plan.c;
  const bool both = width > kLanes, partial = width % kLanes != 0;
  if (plan.slides && !partial) {
    const SlideTable& table = slide_tables[both][c.kernel[2] == 5][c.stride[2] == 2];
    for (int64_t ow = ow0; ow < ow1;) {
      // Pixels past the end of the line are computed and dropped; their input columns count as outside.
      const int64_t iw = ow * c.stride[2] - c.pad[2];
      const bool many = ow1 - ow > 4 && table.most > 4;
      const tile_fn fn = many ? table.many : table.few;
      fn(line, by, ow * by.pixel + c0, c0, iw < 0 ? -iw : 0, c.in[2] - iw > 0 ? c.in[2] - iw : 0, 0,
         tile + (ow - ow0) * kWidth);
      ow += many ? 8 : 4;
    }
    return;
  }
  const TileTable& table = plain_tables[both][partial];
  for (int64_t ow = ow0; ow < ow1;) {
    int64_t px = 1, kw0 = 0, kw1 = c.kernel[2];
    if (ow >= plan.first && ow < plan.last) {
      px = (plan.last < ow1 ? plan.last : ow1) - ow;
    } else {
      const int64_t iw = ow * c.stride[2] - c.pad[2];
      while (kw0 < kw1 && iw + kw0 * c.dilation[2] < 0) ++kw0;
      while (kw1 > kw0 && iw + (kw1 - 1) * c.dilation[2] >= c.in[2]) --kw1;
    }
    float* to = tile + (ow - ow0) * kWidth;
    if (c.co > 1) {
      multiplied(line, by, ow * by.pixel, kw0, kw1, c.co, c0, width, to);
      ++ow;
      continue;
    }
    const int size = px >= table.most ? (table.most == 8 ? 3 : 2) : (px >= 4 ? 2 : (px >= 2 ? 1 : 0));
    table.fn[size](line, by, ow * by.pixel + c0, c0, kw0, kw1, width - (both ? kLanes : 0), to);
    ow += int64_t{1} << size;
  }
}

// The same for all channels of a block.
inline void pixels(const Plan& plan, const Window& line, const Steps& by, int64_t ow0, int64_t ow1,
                   const Block& b, float* tile) {
  const int64_t step = plan.slides && plan.c->kernel[2] == 5 ? together<5>() * kLanes : kWidth;
  for (int64_t at = 0; at < b.width; at += step) {
    const int64_t left = b.width - at;
    vectors(plan, line, by, ow0, ow1, b.c0 + at, left < step ? left : step, tile + at);
  }
}

}  // namespace depthwise_detail

template <class Epi>
inline void depthwise(const Conv& c, const Epi& epi, const gw_pool* pool) {
  using namespace depthwise_detail;
  if (c.kernel[0] * c.kernel[1] > kMaxRows) __builtin_trap();
  const Plan plan(c, thread_count(pool));
  const double flops = 2.0 * static_cast<double>(c.n * c.out[0] * c.out[1]) *
                       static_cast<double>(c.out[2] * plan.channels) *
                       static_cast<double>(plan.kernel_rows * c.kernel[2]);
  const double each = flops / static_cast<double>(plan.units() > 0 ? plan.units() : 1);
  const int64_t grain = each > 0 ? static_cast<int64_t>(50000 / each) + 1 : plan.units();

  parallel_for(pool, plan.units(), grain, [&](int64_t begin, int64_t end, int) {
    alignas(64) float tile[kTilePixels * kWidth];
    Window line;
    for (int64_t index = begin; index < end; ++index) {
      const Unit u = plan.unit(index);
      const Steps by{c.stride[2] * c.xs[2], c.dilation[2] * c.xs[2], plan.weight_stride};
      for (int64_t from = 0; from < c.out[2]; from += plan.stretch) {
        const int64_t to = from + plan.stretch < c.out[2] ? from + plan.stretch : c.out[2];
        for (int64_t oh = u.oh0; oh < u.oh1; ++oh) {
          line.rows = 0;
          for (int64_t k = 0; k < plan.kernel_rows; ++k) {
            const int64_t d = u.od * c.stride[0] - c.pad[0] + k / c.kernel[1] * c.dilation[0];
            const int64_t h = oh * c.stride[1] - c.pad[1] + k % c.kernel[1] * c.dilation[1];
            if (d < 0 || d >= c.in[0] || h < 0 || h >= c.in[1]) continue;
            line.weight[line.rows] = c.w + k * c.kernel[2] * plan.weight_stride;
            line.at[line.rows++] =
                c.x + u.image * c.xn + d * c.xs[0] + h * c.xs[1] - c.pad[2] * c.xs[2];
          }
          for (int64_t ow0 = from; ow0 < to; ow0 += kTilePixels) {
            const int64_t ow1 = ow0 + kTilePixels < to ? ow0 + kTilePixels : to;
            const int64_t row0 = ((u.image * c.out[0] + u.od) * c.out[1] + oh) * c.out[2] + ow0;
            for (int64_t i = u.block0; i < u.block1; ++i) {
              const Block b = plan.block(i);
              pixels(plan, line, by, ow0, ow1, b, tile);
              const float* own = tile + b.known;
              if (b.width - b.known == kWidth) {
                epi(own, kWidth, 0, row0, ow1 - ow0, b.c0, kWidth);
              } else {
                epi(own, kWidth, 0, row0, ow1 - ow0, b.c0 + b.known, b.width - b.known);
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace gw
