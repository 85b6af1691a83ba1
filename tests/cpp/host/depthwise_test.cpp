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

// Rows of every length that is computed in its own way, with columns outside of the image on both sides, and channels
// that are not whole vectors.
TEST(Convolution, DepthwiseRows) {
  if (!simd().depthwise_row) GTEST_SKIP() << "a kernel of AVX2";
  for (const std::int64_t channels : {8, 20, 40})
    for (const std::int64_t taps : {3, 5, 7})
      for (const std::int64_t stride : {1, 2})
        for (const std::int64_t size : {1, 4, 7, 10, 15, 23})
          for (int epilogue = 0; epilogue < 4; ++epilogue) {
            ConvDesc d = plain(2, channels, channels, size, 3);
            d.batch = 2;
            d.groups = channels;
            d.threads = epilogue == 0 ? 2 : 1;
            d.kernel = {3, taps, 1};
            d.stride = {stride, stride, 1};
            d.pad_begin = {1, epilogue == 1 ? taps - 1 : taps / 2, 0};
            d.pad_end = {1, epilogue == 2 ? taps - 1 : taps / 2, 0};
            d.bias = epilogue > 0;
            set_out(d);
            PostOp add{Kind::kAddTensor};
            add.dims = {d.batch, d.out[0], d.out[1], channels};
            if (epilogue == 1) d.post = {{Kind::kRelu}};
            if (epilogue == 2) d.post = {{Kind::kLeakyRelu, 0.25f}};
            if (epilogue == 3 && channels % 8 == 0) d.post = {add, {Kind::kClip, -16, 32}};
            const std::string label = fmt::format("{} channels, {} taps, stride {}, size {}, epilogue {}", channels,
                                                  taps, stride, size, epilogue);
            std::string why;
            const auto kernel = find_convolution(d, why);
            ASSERT_TRUE(kernel) << why;
            EXPECT_THAT(kernel->name(), testing::StartsWith("depthwise convolution:")) << label;
            expect_equal(d, label);
          }
}

}  // namespace
}  // namespace sardonyx::host::test
