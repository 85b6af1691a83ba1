// 8-bit products as tile kernels, compared with loops: equal integers, with extremes that saturating instructions would
// get wrong, handed on in blocks that cover the result once.
#include "host/integer_tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>

namespace sardonyx::host::test {
namespace {

using Dims = std::vector<std::int64_t>;

template <typename T>
std::vector<T> bytes(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> v(static_cast<std::size_t>(count));
  for (T& x : v) {
    const unsigned r = random();
    x = static_cast<T>(r & 2 ? (r & 1 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min()) : r >> 8);
  }
  return v;
}

/// Stores 3 * sum + 1, and counts how often each element is stored.
struct Collected {
  std::vector<std::int32_t> out;
  std::vector<std::atomic<int>> times;
  std::int64_t columns;

  Collected(std::int64_t rows, std::int64_t n) : out(size(rows, n)), times(size(rows, n)), columns(n) {}
  static std::size_t size(std::int64_t rows, std::int64_t n) { return static_cast<std::size_t>(rows * n); }

  AccumulatorFunction function(std::int64_t block) {
    width = block;
    return {[](void* context, const std::int32_t* sums, std::int64_t begin, std::int64_t end) {
              static_cast<Collected*>(context)->take(sums, begin, end);
            },
            this, block};
  }
  void take(const std::int32_t* sums, std::int64_t begin, std::int64_t end) {
    const std::int64_t blocks = (columns + width - 1) / width;
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t first = item % blocks * width, row = item / blocks;
      for (std::int64_t j = first; j < std::min(columns, first + width); ++j) {
        out[static_cast<std::size_t>(row * columns + j)] = 3 * sums[row * columns + j] + 1;
        ++times[static_cast<std::size_t>(row * columns + j)];
      }
    }
  }

 private:
  std::int64_t width = 0;
};

/// Runs the kernel with weights that are packed, or not; both ways of storing.
void expect_sums(const TileKernel& kernel, bool packed, const void* a, const void* b, std::int64_t rows,
                 std::int64_t columns, const std::vector<std::int32_t>& expected, bool function,
                 const std::string& label) {
  Buffer scratch(kernel.scratch_bytes() + 64);
  TileArgs args;
  args.src = a;
  args.weights = b;
  std::shared_ptr<PackedWeights> weights;
  if (packed) {
    weights = kernel.pack(b);
    args.packed = weights.get();
  }
  args.scratch = scratch.data();
  std::vector<std::int32_t> out(expected.size(), -1);
  args.out = out.data();
  kernel.run(args);
  ASSERT_EQ(out, expected) << label;
  if (!function) return;
  Collected collected(rows, columns);
  args.accumulators = collected.function(64);
  args.out = nullptr;
  kernel.run(args);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(collected.times[i], 1) << label << " element " << i;
    ASSERT_EQ(collected.out[i], 3 * expected[i] + 1) << label << " element " << i;
  }
}

TEST(ByteTiles, GemmsOfAllSizes) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {1, 700, 64},  {13, 31, 5}, {40, 64, 256},
                                   {97, 65, 512}, {200, 65, 16}, {3, 5, 0},   {60, 130, 1024}};
  for (const auto& [m, n, k] : sizes)
    for (const bool trans : {false, true})
      for (const bool constant : {false, true})
        for (const int threads : {1, 3}) {
          if (constant && k == 0) continue;
          ByteGemmDesc d{{}, {}, m, n, k, trans, constant, threads};
          const auto a = bytes<std::uint8_t>(m * k, 1);
          const auto b = bytes<std::int8_t>(k * n, 2);
          std::vector<std::int32_t> expected;
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              std::int32_t sum = 0;
              for (std::int64_t l = 0; l < k; ++l)
                sum +=
                    a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(trans ? j * k + l : l * n + j)];
              expected.push_back(sum);
            }
          expect_sums(*make_byte_gemm(d), constant, a.data(), b.data(), m, n, expected, true,
                      fmt::format("{}x{}x{} trans {} constant {}", m, n, k, trans, constant));
        }
}

TEST(ByteTiles, BatchesAreBroadcast) {
  // a [2, 1, 5, 12] times b [3, 12, 7]
  const ByteGemmDesc d{{2, 1}, {3}, 5, 7, 12, false, false, 2};
  const auto a = bytes<std::uint8_t>(2 * 5 * 12, 1);
  const auto b = bytes<std::int8_t>(3 * 12 * 7, 2);
  std::vector<std::int32_t> expected;
  for (std::size_t x = 0; x < 2; ++x)
    for (std::size_t y = 0; y < 3; ++y)
      for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t j = 0; j < 7; ++j) {
          std::int32_t sum = 0;
          for (std::size_t l = 0; l < 12; ++l) sum += a[(x * 5 + i) * 12 + l] * b[(y * 12 + l) * 7 + j];
          expected.push_back(sum);
        }
  expect_sums(*make_byte_gemm(d), false, a.data(), b.data(), 30, 7, expected, true, "batches");
}

std::vector<std::int32_t> convolve(const ByteConvDesc& d, const std::vector<std::uint8_t>& x,
                                   const std::vector<std::int8_t>& w) {
  std::vector<std::int32_t> sums;
  const auto element = [&](std::int64_t n, std::int64_t y, std::int64_t column, std::int64_t c) -> std::int32_t {
    if (y < 0 || y >= d.in[0] || column < 0 || column >= d.in[1]) return d.padding;
    return x[static_cast<std::size_t>(((n * d.in[0] + y) * d.in[1] + column) * d.channels + c)];
  };
  for (std::int64_t n = 0; n < d.batch; ++n)
    for (std::int64_t i = 0; i < d.out[0]; ++i)
      for (std::int64_t j = 0; j < d.out[1]; ++j)
        for (std::int64_t m = 0; m < d.features; ++m) {
          std::int32_t sum = 0;
          for (std::int64_t c = 0; c < d.channels; ++c)
            for (std::int64_t p = 0; p < d.kernel[0]; ++p)
              for (std::int64_t q = 0; q < d.kernel[1]; ++q)
                sum += element(n, i * d.stride[0] - d.pad_begin[0] + p * d.dilation[0],
                               j * d.stride[1] - d.pad_begin[1] + q * d.dilation[1], c) *
                       w[static_cast<std::size_t>(((m * d.channels + c) * d.kernel[0] + p) * d.kernel[1] + q)];
          sums.push_back(sum);
        }
  return sums;
}

void expect_convolution(ByteConvDesc d, const std::string& label) {
  const auto x = bytes<std::uint8_t>(d.batch * d.in[0] * d.in[1] * d.channels, 5);
  const auto w = bytes<std::int8_t>(d.features * d.channels * d.kernel[0] * d.kernel[1], 6);
  const auto expected = convolve(d, x, w);
  const std::int64_t positions = d.out[0] * d.out[1], rows = d.batch * positions;
  for (const bool constant : {false, true})
    for (const int threads : {1, 2}) {
      d.weights_constant = constant;
      d.threads = threads;
      d.features_first = false;
      expect_sums(*make_byte_convolution(d), constant, x.data(), w.data(), rows, d.features, expected, true, label);
      d.features_first = true;
      std::vector<std::int32_t> turned(expected.size());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t m = 0; m < d.features; ++m)
          turned[static_cast<std::size_t>((r / positions * d.features + m) * positions + r % positions)] =
              expected[static_cast<std::size_t>(r * d.features + m)];
      expect_sums(*make_byte_convolution(d), constant, x.data(), w.data(), rows, d.features, turned, false, label);
    }
}

TEST(ByteTiles, Convolutions) {
  expect_convolution({.batch = 2, .channels = 64, .features = 65, .in = {7, 9}, .out = {7, 9}}, "pointwise");
  expect_convolution({.channels = 6, .features = 300, .in = {5, 5}, .out = {5, 5}}, "six channels");
  expect_convolution({.batch = 3,
                      .channels = 8,
                      .features = 20,
                      .in = {6, 7},
                      .out = {6, 7},
                      .kernel = {3, 3},
                      .pad_begin = {1, 1},
                      .padding = 131},
                     "padded");
  expect_convolution({.channels = 3,
                      .features = 16,
                      .in = {15, 14},
                      .out = {8, 7},
                      .kernel = {7, 7},
                      .stride = {2, 2},
                      .pad_begin = {3, 3},
                      .padding = 255},
                     "a first layer");
  expect_convolution(
      {.channels = 5, .features = 9, .in = {9, 9}, .out = {5, 6}, .kernel = {3, 2}, .dilation = {2, 3}, .padding = 7},
      "dilated");
  expect_convolution({.channels = 5,
                      .features = 9,
                      .in = {6, 6},
                      .out = {4, 9},
                      .kernel = {1, 3},
                      .dilation = {1, 4},
                      .pad_begin = {1, 5},
                      .padding = 9},
                     "beyond both edges");
  expect_convolution({.channels = 4,
                      .features = 8,
                      .in = {6, 6},
                      .out = {3, 2},
                      .kernel = {2, 2},
                      .stride = {1, 2},
                      .pad_begin = {-2, -1}},
                     "cropped");
  expect_convolution({.channels = 12,
                      .features = 8,
                      .in = {1, 30},
                      .out = {1, 30},
                      .kernel = {1, 5},
                      .pad_begin = {0, 2},
                      .padding = 3},
                     "one dim");
}

}  // namespace
}  // namespace sardonyx::host::test
