// Depthwise convolutions of our own, compared with the reference on small integers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conv_cases.h"
#include "host/simd.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

// oneDNN's depthwise kernels refuse padding of more pixels than they compute at a time.
TEST(Convolution, DepthwiseWithMuchPadding) {
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "a kernel for AVX2 and AVX-512";
  for (const std::int64_t channels : {3, 40, 144})
    for (const std::int64_t dilation : {7, 12})
      for (const std::int64_t stride : {1, 2})
        for (const bool line : {false, true}) {
          ConvDesc d = plain(line ? 1 : 2, channels, channels, 19, 3);
          d.batch = 2;
          d.groups = channels;
          d.dilation = {dilation, dilation, 1};
          d.stride = {stride, stride, 1};
          d.pad_begin = {dilation, dilation, 0};
          d.pad_end = {dilation, dilation + 3, 0};
          d.bias = stride == 1;
          set_out(d);
          if (stride == 2) {
            d.post.push_back({Kind::kLeakyRelu, 0.25f});
            PostOp add{Kind::kAddTensor};
            add.dims = {d.batch, d.out[0], channels};
            if (!line) add.dims.insert(add.dims.begin() + 2, d.out[1]);
            d.post.push_back(add);
          }
          const std::string label = fmt::format("{} channels, dilation {}, stride {}", channels, dilation, stride);
          std::string why;
          const auto kernel = find_convolution(d, why);
          ASSERT_TRUE(kernel) << why;
          EXPECT_THAT(kernel->name(), testing::StartsWith("depthwise convolution:")) << label;
          expect_equal(d, label);
        }
}

/// A convolution of rows with `epilogue` of a few forms.
ConvDesc rows(std::int64_t channels, std::int64_t rows, std::int64_t taps, std::int64_t stride, std::int64_t size,
              int epilogue) {
  ConvDesc d = plain(2, channels, channels, size, 3);
  d.batch = 2;
  d.groups = channels;
  d.threads = epilogue == 0 ? 2 : 1;
  d.kernel = {rows, taps, 1};
  d.stride = {stride, stride, 1};
  d.pad_begin = {rows / 2, epilogue == 1 ? taps - 1 : taps / 2, 0};
  d.pad_end = {rows / 2, epilogue == 2 ? taps - 1 : taps / 2, 0};
  d.bias = epilogue > 0;
  set_out(d);
  PostOp add{Kind::kAddTensor};
  add.dims = {d.batch, d.out[0], d.out[1], channels};
  if (epilogue == 1) d.post = {{Kind::kRelu}};
  if (epilogue == 2) d.post = {{Kind::kLeakyRelu, 0.25f}};
  if (epilogue == 3) d.post = {add, {Kind::kClip, -16, 32}};
  return d;
}

void expect_own_kernel(const ConvDesc& d, const std::string& label) {
  std::string why;
  const auto kernel = find_convolution(d, why);
  ASSERT_TRUE(kernel) << why;
  EXPECT_THAT(kernel->name(), testing::StartsWith("depthwise convolution:")) << label;
  expect_equal(d, label);
}

// Rows of every length that is computed in its own way, with columns outside of the image on both sides, and channels
// that are not whole vectors or more than a chunk.
TEST(Convolution, DepthwiseRows) {
  if (!simd().depthwise_row) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  const std::int64_t least = vector_level() == VectorLevel::kAvx512 ? 16 : 8;
  for (const std::int64_t channels : {least, std::int64_t{20}, std::int64_t{72}})
    for (std::int64_t taps = 3; taps <= simd().depthwise_row_taps; taps += 2)
      for (const std::int64_t stride : {1, 2})
        for (const std::int64_t size : {1, 4, 10, 15, 35})
          for (int epilogue = 0; epilogue < 4; ++epilogue)
            expect_own_kernel(rows(channels, 3, taps, stride, size, epilogue),
                              fmt::format("{} channels, {} taps, stride {}, size {}, epilogue {}", channels, taps,
                                          stride, size, epilogue));
}

// Phases of several pixels side by side, ones without taps, and results beside the image.
TEST(Convolution, DepthwiseTransposed) {
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "a kernel for AVX2 and AVX-512";
  for (const std::int64_t channels : {3, 40})
    for (const std::int64_t taps : {1, 2, 5, 16})
      for (const std::int64_t stride : {1, 2, 3, 8})
        for (const int axes : {1, 2, 3})
          for (const bool operand : {false, true}) {
            if (taps == 16 && (stride != 8 || axes == 3)) continue;  // more taps than of a result
            ConvDesc d = plain(axes, channels, channels, axes == 3 ? 4 : 17, taps);
            d.transposed = true;
            d.batch = 2;
            d.groups = channels;
            d.threads = operand ? 2 : 1;
            d.stride = {axes == 3 ? 2 : stride, stride, stride};
            d.dilation = {1, 2, axes == 3 ? 2 : 1};
            d.pad_begin = {taps / 2, 0, taps / 2};
            d.bias = operand;
            set_out(d);
            if (operand) d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}, {.kind = Kind::kRelu}};
            expect_own_kernel(d, fmt::format("{} channels, {} taps, stride {}, {} axes", channels, taps, stride, axes));
          }
}

// Pixels 4096 bytes apart: rows of large filters are copied.
TEST(Convolution, DepthwiseRowsThatCompeteForTheCache) {
  if (!simd().depthwise_row) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (const std::int64_t taps : {5, 7})
    for (const std::int64_t stride : {1, 2})
      for (const std::int64_t size : {3, 17})
        for (int epilogue = 0; epilogue < 4; ++epilogue)
          expect_own_kernel(rows(1024, taps, taps, stride, size, epilogue),
                            fmt::format("{} taps, stride {}, size {}, epilogue {}", taps, stride, size, epilogue));
}

}  // namespace
}  // namespace sardonyx::host::test
