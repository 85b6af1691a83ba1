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

}  // namespace
}  // namespace sardonyx::host::test
