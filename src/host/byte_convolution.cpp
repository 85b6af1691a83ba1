// Convolutions of integer_tiles.h.
#include <algorithm>

#include "host/byte_gemm.h"
#include "host/integer_tiles.h"
#include "host/parallel.h"
#include "host/transpose_tile.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

/// How a convolution reads its windows.
struct Windows {
  bool plain = true;                ///< a window is a pixel, and windows follow each other
  std::int64_t covered[2] = {};     ///< extents of the image, with padding, that windows cover
  std::int64_t run = 0, depth = 0;  ///< elements of a line of a window, and padded for the kernels
  /// The lines of a window are segments of a row, in place.
  bool in_place = false;
  bool copied = false;  ///< from a copy of the image with its padding, in the kernels' type

  explicit Windows(const ByteConvDesc& d) {
    const IntegerKernels& kernels = integer_kernels();
    bool inside = true;
    for (std::size_t i = 0; i < 2; ++i) {
      plain = plain && d.kernel[i] == 1 && d.stride[i] == 1 && d.pad_begin[i] == 0 && d.in[i] == d.out[i];
      covered[i] = (d.out[i] - 1) * d.stride[i] + (d.kernel[i] - 1) * d.dilation[i] + 1;
      inside = inside && d.pad_begin[i] == 0 && covered[i] <= d.in[i];
    }
    run = depth = d.kernel[1] * d.channels;
    if (plain || d.dilation[1] != 1 || kernels.large_group > kernels.group) return;
    depth = quotient_up(run, kernels.group) * kernels.group;
    copied = !inside || !kernels.bytes || depth != run;
    // With a 1 x 1 filter and a stride, most pixels are never read, so only those that are get copied.
    in_place = !copied || d.kernel[0] * d.kernel[1] > 1;
    if (!in_place) depth = run;
  }
};

class ByteConvolution : public ByteGemmKernel {
 public:
  explicit ByteConvolution(const ByteConvDesc& d) : ByteConvolution(d, Windows(d)) {}

 private:
  ByteConvolution(const ByteConvDesc& d, const Windows& w)
      : ByteGemmKernel({1, d.batch * d.out[0] * d.out[1], d.features, d.kernel[0] * w.depth, 1,
                        d.features * d.kernel[0] * w.run, d.weights_constant, d.threads}),
        d_(d),
        w_(w) {
    if (w.plain) read_in_place(d.channels);
  }

  std::size_t prepared_bytes() const override {
    if (!w_.in_place || !w_.copied) return 0;
    return static_cast<std::size_t>((d_.batch * w_.covered[0] * w_.covered[1] * d_.channels + 64) * kernels_.element());
  }

  /// The image with its padding.
  const void* prepared(const void* x, std::byte* to) const override {
    if (!w_.in_place || !w_.copied) return x;
    const std::int64_t channels = d_.channels, height = w_.covered[0], width = w_.covered[1];
    const std::int64_t line = width * channels, element = kernels_.element();
    const std::int64_t left = std::clamp<std::int64_t>(d_.pad_begin[1], 0, width),
                       skipped = std::clamp<std::int64_t>(-d_.pad_begin[1], 0, d_.in[1]),
                       count = std::min(d_.in[1] - skipped, width - left), right = width - left - count;
    const auto* images = static_cast<const std::uint8_t*>(x);
    parallel_for(d_.batch * height, 1 + 65536 / line, s_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::byte* out = to + i * line * element;
        const std::int64_t y = i % height - d_.pad_begin[0];
        if (y < 0 || y >= d_.in[0]) {
          fill(d_.padding, line, out);
          continue;
        }
        if (left > 0) fill(d_.padding, left * channels, out);
        copy(images + ((i / height * d_.in[0] + y) * d_.in[1] + skipped) * channels, count * channels,
             out + left * channels * element);
        if (right > 0) fill(d_.padding, right * channels, out + (left + count) * channels * element);
      }
    });
    // What a kernel reads beyond the last line is multiplied by 0.
    fill(0, 64, to + d_.batch * height * line * element);
    return to;
  }

  bool pieces(const void* a, std::int64_t first, std::int64_t count, std::vector<Piece>& out) const override {
    if (!w_.in_place) return false;
    const std::int64_t height = w_.copied ? w_.covered[0] : d_.in[0],
                       line = (w_.copied ? w_.covered[1] : d_.in[1]) * d_.channels;
    while (count > 0) {
      const std::int64_t x = first % d_.out[1], y = first / d_.out[1] % d_.out[0], n = first / (d_.out[0] * d_.out[1]);
      const std::int64_t here = std::min(count, d_.out[1] - x);
      const std::int64_t at = (n * height + y * d_.stride[0]) * line + x * d_.stride[1] * d_.channels;
      out.push_back({{static_cast<const std::byte*>(a) + at * kernels_.element(), d_.stride[1] * d_.channels, w_.depth,
                      d_.kernel[0], d_.dilation[0] * line},
                     here});
      first += here;
      count -= here;
    }
    return true;
  }

  const std::byte* row(const void* x, std::int64_t, std::int64_t first) const override {
    return static_cast<const std::byte*>(x) + first * d_.channels;
  }

  void gather(const void* x, std::int64_t, std::int64_t first, std::int64_t count, std::byte* to,
              std::int64_t pitch) const override {
    const auto* images = static_cast<const std::uint8_t*>(x);
    std::int64_t column = first % d_.out[1], line = first / d_.out[1] % d_.out[0], n = first / (d_.out[0] * d_.out[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte* end = window(images + n * d_.in[0] * d_.in[1] * d_.channels, line, column, to);
      to += pitch * kernels_.element();
      if (depth_ > s_.k) fill(0, depth_ - s_.k, end);
      if (++column < d_.out[1]) continue;
      column = 0;
      if (++line < d_.out[0]) continue;
      line = 0;
      ++n;
    }
  }

  /// Copies the window of an output position; returns its end.
  std::byte* window(const std::uint8_t* image, std::int64_t line, std::int64_t column, std::byte* to) const {
    const std::int64_t channels = d_.channels, run = d_.kernel[1] * channels;
    const std::int64_t top = line * d_.stride[0] - d_.pad_begin[0], left = column * d_.stride[1] - d_.pad_begin[1];
    // Taps [begin, end) of a filter's row are inside of the image.
    std::int64_t begin = 0, end = d_.kernel[1];
    if (left < 0) begin = std::min(end, quotient_up(-left, d_.dilation[1]));
    if (left >= d_.in[1])
      end = 0;
    else
      end = std::min(end, (d_.in[1] - 1 - left) / d_.dilation[1] + 1);
    end = std::max(begin, end);
    const std::int64_t element = kernels_.element();
    for (std::int64_t ky = 0; ky < d_.kernel[0]; ++ky, to += run * element) {
      const std::int64_t y = top + ky * d_.dilation[0];
      if (y < 0 || y >= d_.in[0]) {
        fill(d_.padding, run, to);
        continue;
      }
      const std::uint8_t* from = image + y * d_.in[1] * channels;
      if (begin > 0) fill(d_.padding, begin * channels, to);
      if (d_.dilation[1] == 1) {
        copy(from + (left + begin) * channels, (end - begin) * channels, to + begin * channels * element);
      } else {
        for (std::int64_t kx = begin; kx < end; ++kx)
          copy(from + (left + kx * d_.dilation[1]) * channels, channels, to + kx * channels * element);
      }
      if (end < d_.kernel[1]) fill(d_.padding, (d_.kernel[1] - end) * channels, to + end * channels * element);
    }
    return to;
  }

  void pack_panel(const void* w, std::int64_t, std::int64_t first, int count, std::byte* to) const override {
    // A window's elements have their channels last; its lines are padded.
    const std::int64_t lines = d_.kernel[0], taps = lines * d_.kernel[1], channels = d_.channels;
    const auto* from = static_cast<const std::int8_t*>(w) + first * taps * channels;
    std::vector<std::int8_t> turned(static_cast<std::size_t>(count * s_.k));
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t t = 0; t < taps; ++t) {
          const std::int64_t to = t / d_.kernel[1] * w_.depth + t % d_.kernel[1] * channels + c;
          turned[static_cast<std::size_t>(j * s_.k + to)] = from[(j * channels + c) * taps + t];
        }
    const std::vector<int> zeros(static_cast<std::size_t>(kernels_.columns));
    kernels_.pack_columns(turned.data(), true, 1, s_.k, s_.k, depth_, count, zeros.data(), to);
  }
  std::string form() const override { return fmt::format("8-bit windows of {} by {}", d_.kernel[0], d_.channels); }

  void store_sums(std::int64_t first, std::int64_t count, const std::int32_t* sums, std::int32_t* out) const override {
    if (!d_.features_first) return ByteGemmKernel::store_sums(first, count, sums, out);
    const std::int64_t positions = d_.out[0] * d_.out[1];
    while (count > 0) {
      const std::int64_t n = first / positions, at = first % positions, here = std::min(count, positions - at);
      store_transposed(sums, here, s_.n, positions, out + n * s_.n * positions + at);
      sums += here * s_.n;
      first += here;
      count -= here;
    }
  }
  void store_row(std::int64_t row, std::int64_t begin, std::int64_t end, const std::int32_t* sums,
                 std::int32_t* out) const override {
    if (!d_.features_first) return ByteGemmKernel::store_row(row, begin, end, sums, out);
    const std::int64_t positions = d_.out[0] * d_.out[1], n = row / positions;
    for (std::int64_t m = begin; m < end; ++m) out[(n * s_.n + m) * positions + row % positions] = sums[m];
  }

  const ByteConvDesc d_;
  const Windows w_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_byte_convolution(const ByteConvDesc& d) {
  for (std::size_t i = 0; i < 2; ++i)
    check(d.in[i] > 0 && d.kernel[i] > 0 && d.stride[i] > 0 && d.dilation[i] > 0, "convolution of nothing");
  return std::make_shared<ByteConvolution>(d);
}

}  // namespace sardonyx::host
