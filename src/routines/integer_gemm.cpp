// integer_pack, integer_matmul, integer_conv: GEMM and convolution of 8-bit tensors minus their zero points, in int32.
// Right operands are packed once (constants when the program is loaded), left operands at each call.
#include "host/integer_gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "host/integer_kernels.h"
#include "host/parallel.h"
#include "host/transpose_tile.h"
#include "routines/families.h"
#include "support/error.h"

namespace sardonyx::routines {
namespace {

// Output positions of a convolution per task: a multiple of every tile's height.
constexpr std::int64_t kPositions = 96;

host::ZeroPoints zero_kind(const Tensor& zero) {
  if (zero.elements() == 0) return host::ZeroPoints::kNone;
  return zero.dims.empty() || zero.elements() == 1 ? host::ZeroPoints::kOne : host::ZeroPoints::kEach;
}

// The first address aligned to 64 bytes, in a tensor that is allocated 64 bytes larger.
void* aligned(const Tensor& t, std::size_t bytes) {
  void* p = t.data;
  std::size_t space = static_cast<std::size_t>(t.elements());
  check(std::align(64, bytes, p, space) != nullptr, "{} bytes of working memory for {}", t.elements(), bytes);
  return p;
}

std::vector<std::int64_t> leading(const std::vector<std::int64_t>& dims) { return {dims.begin(), dims.end() - 2}; }

// integer_pack
//   inputs:  b [batch..., K, N], or [batch..., N, K] if transposed; its zero points: none [0], one, or [N]
//   outputs: what integer_matmul and integer_conv read; uint8 [128 + batch * (2 * roundup(K, 2) + 8) * roundup(N, 32)]
//   params:  transposed
void integer_pack(Call& c) {
  const Tensor &b = c.inputs[0], &zero = c.inputs[1];
  host::IntegerGemmDesc d;
  d.trans_b = c.params[0] != 0;
  d.batch_b = leading(b.dims);
  const std::int64_t row = b.dims[b.dims.size() - 2], column = b.dims.back();
  d.n = d.trans_b ? row : column;
  d.k = d.trans_b ? column : row;
  d.b = b.dtype;
  d.zero_b = zero_kind(zero);
  d.threads = c.threads;
  host::pack_integers(d, b.data, zero.data, aligned(c.outputs[0], host::packed_integer_bytes(d)));
}

// integer_matmul
//   inputs:  a [batch..., M, K]; its zero points: none [0], one, or [M]; b packed by integer_pack
//   outputs: y [batch..., M, N] int32; workspace, uint8 [256 + batch of a * M * (2 * roundup(K, 2) + 8)]
//   params:  the batch dims of b
void integer_matmul(Call& c) {
  const Tensor &a = c.inputs[0], &zero = c.inputs[1], &y = c.outputs[0];
  if (y.elements() == 0) return;
  host::IntegerGemmDesc d;
  d.batch_a = leading(a.dims);
  d.batch_b = c.params;
  d.m = a.dims[a.dims.size() - 2];
  d.k = a.dims.back();
  d.n = y.dims.back();
  d.a = a.dtype;
  d.zero_a = zero_kind(zero);
  d.threads = c.threads;
  host::IntegerGemmArgs args;
  args.a = a.data;
  args.zero_a = zero.data;
  args.panels = aligned(c.inputs[2], host::packed_integer_bytes(d));
  args.out = y.as<std::int32_t>();
  args.scratch = aligned(c.outputs[1], host::integer_gemm_scratch(d, true));
  host::integer_gemm(d, args);
}

// Sizes of a 2-D convolution.
struct Conv {
  std::int64_t batch, channels, in[2], features, out[2], stride[2], dilation[2], pad[2], kernel[2];
  std::int64_t padded[2];      // extents of the padded image
  std::int64_t window, depth;  // K: elements of a window; as the kernels pad it
};

Conv conv_of(const Call& c) {
  const auto &x = c.inputs[0].dims, &y = c.outputs[0].dims;
  const std::size_t axes = x.size() - 2;
  Conv v{.batch = x[0],
         .channels = x[1],
         .in = {1, 1},
         .features = y[1],
         .out = {1, 1},
         .stride = {1, 1},
         .dilation = {1, 1},
         .pad = {0, 0},
         .kernel = {1, 1},
         .padded = {1, 1},
         .window = 0,
         .depth = 0};
  for (std::size_t k = 0; k < axes; ++k) {
    const std::size_t to = k + 2 - axes;
    v.in[to] = x[k + 2];
    v.out[to] = y[k + 2];
    v.stride[to] = c.params[k];
    v.dilation[to] = c.params[axes + k];
    v.pad[to] = c.params[2 * axes + k];
    v.kernel[to] = c.params[3 * axes + k];
    v.padded[to] = (v.out[to] - 1) * v.stride[to] + (v.kernel[to] - 1) * v.dilation[to] + 1;
  }
  // Without windows and padding an image is one row.
  if (v.kernel[0] * v.kernel[1] == 1 && v.stride[0] == 1 && v.stride[1] == 1 && v.padded[0] == v.in[0] &&
      v.padded[1] == v.in[1] && v.pad[0] == 0 && v.pad[1] == 0) {
    v.in[1] *= std::exchange(v.in[0], 1);
    v.out[1] *= std::exchange(v.out[0], 1);
    v.padded[1] *= std::exchange(v.padded[0], 1);
  }
  v.window = v.kernel[0] * v.kernel[1] * v.channels;
  v.depth = host::integer_kernels().depth(v.window);
  return v;
}

constexpr std::int64_t kTile = 16;  // bytes of a row of a tile

// Pixels from `first` on, kTile at a time, of all whole groups of kTile channels: from[channel][pixel] to
// to[pixel][channel], plus `shift`. Returns the first pixel that is left over.
template <typename T>
std::int64_t spread_tiles(std::int64_t channels, std::int64_t plane, std::int64_t first, std::int64_t last,
                          const T* from, int shift, std::uint8_t* to) {
  const auto add = static_cast<std::uint8_t>(shift);
  std::int64_t w = first;
  for (; w + kTile <= last; w += kTile)
    for (std::int64_t ch = 0; ch + kTile <= channels; ch += kTile) {
      host::ByteTileRow rows[kTile];
      for (int k = 0; k < kTile; ++k) std::memcpy(&rows[k], from + (ch + k) * plane + w, kTile);
      host::transpose_tile(rows);
      for (int k = 0; k < kTile; ++k) {
        rows[k] += add;  // modulo 256
        std::memcpy(to + (w + k) * channels + ch, &rows[k], kTile);
      }
    }
  return w;
}

// Whether a column of packed weights has a zero point: only then do sums of the windows matter.
bool has_zero_points(const host::IntegerKernels& kernels, const std::byte* panels, std::int64_t window,
                     std::int64_t features) {
  if (!kernels.bytes) return false;
  const std::int64_t depth = kernels.depth(window), columns = kernels.columns;
  for (std::int64_t m = 0; m < features; m += columns) {
    const std::byte* zeros = panels + m / columns * kernels.panel_bytes(window) + depth * columns + columns * 4;
    for (std::int64_t j = 0; j < columns; ++j) {
      std::int32_t zero;
      std::memcpy(&zero, zeros + j * 4, sizeof(zero));
      if (zero != 0) return true;
    }
  }
  return false;
}

// The padded image with channels last, as elements E of the kernels' packed rows: x + shift, and `outside` around it.
template <typename E, typename T>
void spread(const Conv& v, const T* x, int shift, int outside, E* image, int threads) {
  constexpr std::int64_t kBlock = 32;  // pixels whose channels are written together, while they are in the L1 cache
  const std::int64_t row = v.padded[1] * v.channels;
  host::parallel_for(v.batch * v.padded[0], 1 + 16384 / row, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = std::max<std::int64_t>(0, -v.pad[1]), left = v.pad[1];
    const std::int64_t last = std::min(v.in[1], v.padded[1] - left);
    for (std::int64_t r = begin; r < end; ++r) {
      E* out = image + r * row;
      const std::int64_t n = r / v.padded[0], h = r % v.padded[0] - v.pad[0];
      if (h < 0 || h >= v.in[0] || left > 0 || last + left < v.padded[1])
        std::fill_n(out, row, static_cast<E>(outside));
      if (h < 0 || h >= v.in[0]) continue;
      const std::int64_t plane = v.in[0] * v.in[1];
      const T* from = x + n * v.channels * plane + h * v.in[1];
      E* to = out + left * v.channels;
      std::int64_t begin_w = first;
      if constexpr (sizeof(E) == 1) begin_w = spread_tiles(v.channels, plane, first, last, from, shift, to);
      for (std::int64_t block = first; block < last; block += kBlock) {
        const std::int64_t stop = std::min(last, block + kBlock);
        for (std::int64_t ch = 0; ch < v.channels; ++ch) {
          const T* in = from + ch * plane;
          // The tiles have the pixels before begin_w of the first channels.
          const std::int64_t start = ch < v.channels / kTile * kTile ? std::max(block, begin_w) : block;
          for (std::int64_t w = start; w < stop; ++w) to[w * v.channels + ch] = static_cast<E>(in[w] + shift);
        }
      }
    }
  });
}

// The windows of `count` output positions from `first` on, as rows of v.depth elements. What follows a window's
// elements is multiplied by zeros.
template <typename E>
void gather_windows(const Conv& v, const E* image, std::int64_t first, std::int64_t count, E* windows) {
  // Contiguous elements of a window.
  const std::int64_t run = v.dilation[1] == 1 ? v.kernel[1] * v.channels : v.channels;
  for (std::int64_t p = 0; p < count; ++p) {
    const std::int64_t top = (first + p) / v.out[1] * v.stride[0], left = (first + p) % v.out[1] * v.stride[1];
    E* to = windows + p * v.depth;
    for (std::int64_t i = 0; i < v.kernel[0]; ++i) {
      const E* line = image + ((top + i * v.dilation[0]) * v.padded[1] + left) * v.channels;
      for (std::int64_t j = 0; j < v.kernel[1]; j += run / v.channels) {
        std::memcpy(to, line + j * v.dilation[1] * v.channels, static_cast<std::size_t>(run) * sizeof(E));
        to += run;
      }
    }
    std::fill(to, windows + (p + 1) * v.depth, E{0});
  }
}

template <typename E>
void convolve(Call& c, const Conv& v) {
  const Tensor &x = c.inputs[0], &zero = c.inputs[1], &y = c.outputs[0];
  const host::IntegerKernels& kernels = host::integer_kernels();
  const bool is_signed = x.dtype == DType::kInt8;
  const int z = zero.elements() == 0 ? 0 : is_signed ? int{*zero.as<std::int8_t>()} : int{*zero.as<std::uint8_t>()};
  const int packed_zero = kernels.packed_zero(z, is_signed), shift = packed_zero - z;
  auto* image = static_cast<E*>(
      aligned(c.outputs[1], static_cast<std::size_t>(v.batch * v.padded[0] * v.padded[1] * v.channels) * sizeof(E)));
  if (is_signed)
    spread(v, x.as<std::int8_t>(), shift, packed_zero, image, c.threads);
  else
    spread(v, x.as<std::uint8_t>(), shift, packed_zero, image, c.threads);

  host::IntegerGemmDesc d;
  d.k = v.window;
  d.n = v.features;
  const auto* panels = static_cast<const std::byte*>(aligned(c.inputs[2], host::packed_integer_bytes(d)));
  const std::int64_t positions = v.out[0] * v.out[1], blocks = (positions + kPositions - 1) / kPositions,
                     columns = kernels.columns;
  const bool zeros = has_zero_points(kernels, panels, v.window, v.features);
  // Pixels are the windows. The last ones would be read beyond the image, if channels were padded.
  const bool direct =
      v.kernel[0] == 1 && v.kernel[1] == 1 && v.stride[0] == 1 && v.stride[1] == 1 && v.channels == v.depth;
  host::parallel_for(v.batch * blocks, 1, c.threads, [&](std::int64_t begin, std::int64_t end) {
    thread_local std::vector<E> windows;
    thread_local std::vector<std::int32_t> sums;
    host::IntegerRow corrections[kPositions];
    windows.resize(static_cast<std::size_t>(direct ? 0 : kPositions * v.depth));
    sums.resize(static_cast<std::size_t>(kPositions * v.features));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t n = task / blocks, first = task % blocks * kPositions,
                         count = std::min(kPositions, positions - first);
      const E* from = image + n * v.padded[0] * v.padded[1] * v.channels;
      const E* rows = from + first * v.channels;
      if (!direct) {
        gather_windows(v, from, first, count, windows.data());
        rows = windows.data();
      }
      for (std::int64_t p = 0; p < count; ++p)
        corrections[p] = {packed_zero, zeros ? kernels.row_sum(rows + p * v.depth, v.window) : 0};
      for (std::int64_t m = 0; m < v.features; m += columns)
        kernels.product(count, {rows, v.depth, v.depth}, corrections,
                        panels + m / columns * kernels.panel_bytes(v.window), sums.data() + m, v.features,
                        static_cast<int>(std::min(columns, v.features - m)));
      host::store_transposed(sums.data(), count, v.features, positions,
                             y.as<std::int32_t>() + n * v.features * positions + first);
    }
  });
}

// integer_conv
//   inputs:  x [N, C, 1 or 2 spatial dims]; its zero point: none [0] or one;
//            weights [kernel... * C, M] packed by integer_pack
//   outputs: y [N, M, output...] int32;
//            workspace, uint8 [128 + 2 * N * C * extents that the windows cover]
//   params:  strides, dilations, begin paddings, kernel; one of each per spatial dim
void integer_conv(Call& c) {
  if (c.outputs[0].elements() == 0) return;
  if (host::integer_kernels().bytes)
    convolve<std::uint8_t>(c, conv_of(c));
  else
    convolve<std::int16_t>(c, conv_of(c));
}

}  // namespace

void register_integer_gemm(Table& t) {
  t["integer_pack"] = integer_pack;
  t["integer_matmul"] = integer_matmul;
  t["integer_conv"] = integer_conv;
}

}  // namespace sardonyx::routines
