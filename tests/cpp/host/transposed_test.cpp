// Transposed convolutions, compared with the reference on small integers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conv_cases.h"
#include "host/simd.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

TEST(Convolution, Transposed) {
  for (int spatial : {1, 2, 3}) {
    for (const auto& [in, out, groups] :
         {std::array<std::int64_t, 3>{3, 5, 1}, {16, 24, 1}, {32, 32, 1}, {8, 12, 4}, {16, 16, 16}}) {
      for (int bits = 0; bits < 8; ++bits) {
        ConvDesc d = plain(spatial, in, out, 5, 3);
        d.transposed = true;
        d.groups = groups;
        d.bias = bits & 1;
        if (bits & 2) d.stride = {2, 2, 2}, d.pad_begin = {1, 0, 1}, d.pad_end = {0, 1, 1};
        if (bits & 4) d.dilation = {2, 1, 2};
        set_out(d, bits & 2 ? 1 : 0);
        expect_equal(
            d, fmt::format("{} axes, {} to {} channels in {} groups, variant {}", spatial, in, out, groups, bits));
      }
    }
  }
}

// Strides of which some phases have no taps, more channels than a panel or than one multiplication takes, and operands
// of the results' size. oneDNN's own kernel is wrong for 512 channels.
TEST(Convolution, TransposedInPhases) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (const auto& [in, out, kernel, stride] :
       {std::array<std::int64_t, 4>{16, 20, 1, 2}, {24, 70, 2, 3}, {32, 64, 4, 2}, {1300, 40, 4, 2}, {512, 64, 4, 2}}) {
    for (const int spatial : {1, 2, 3})
      for (const bool operand : {false, true}) {
        ConvDesc d = plain(spatial, in, out, spatial == 3 ? 3 : 6, kernel);
        d.transposed = true;
        d.batch = 2;
        d.groups = in == 32 && operand ? 4 : 1;
        d.bias = operand;
        d.threads = operand ? 2 : 1;
        d.stride = {stride, stride, 2};
        d.pad_begin = {kernel / 2, kernel / 2, 0};
        d.pad_end = {kernel / 3, 0, 0};
        set_out(d);
        if (operand) d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}, {.kind = Kind::kRelu}};
        const std::string label =
            fmt::format("{} axes, {} to {} channels, kernel {}, stride {}", spatial, in, out, kernel, stride);
        std::string why;
        const auto found = find_convolution(d, why);
        ASSERT_TRUE(found) << why;
        EXPECT_THAT(found->name(), testing::StartsWith("phases of a transposed convolution:")) << label;
        expect_equal(d, label);
      }
  }
}

// Segments that overlap or leave gaps, rows of the image that are multiplied together, tasks that multiply rows again,
// and epilogues of each kind of operand.
TEST(Convolution, TransposedToFewChannels) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (const auto& [out, kernel, stride, size] : {std::array<std::int64_t, 4>{1, 16, 8, 60},
                                                  {3, 4, 2, 5},
                                                  {3, 4, 2, 23},
                                                  {4, 2, 3, 23},
                                                  {16, 5, 2, 50},
                                                  {16, 3, 1, 7}})
    for (const int spatial : {1, 2})
      for (int epilogue = 0; epilogue < 4; ++epilogue) {
        ConvDesc d = plain(spatial, epilogue == 0 ? 1 : 20, out, size, kernel);
        d.transposed = true;
        d.batch = 2;
        d.bias = epilogue > 0;
        d.threads = 1 + epilogue % 2;
        d.stride = {stride, epilogue == 1 ? 1 : stride, 1};
        if (spatial == 2) d.dilation = {1 + epilogue % 2, 1, 1};
        d.pad_begin = {kernel / 2, kernel / 3, 0};
        d.pad_end = {kernel / 3, 0, 0};
        set_out(d, epilogue == 2 ? stride - 1 : 0);
        Dims channels(static_cast<std::size_t>(spatial) + 2, 1);
        channels.back() = out;
        if (epilogue == 1) d.post = {{.kind = Kind::kRelu}};
        if (epilogue == 2) d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}, {.kind = Kind::kRelu}};
        if (epilogue == 3) d.post = {{.kind = Kind::kMulTensor, .dims = channels}};
        const std::string label = fmt::format("{} axes of {}, to {} channels, kernel {}, stride {}, epilogue {}",
                                              spatial, size, out, kernel, stride, epilogue);
        std::string why;
        const auto found = find_convolution(d, why);
        ASSERT_TRUE(found) << why;
        EXPECT_THAT(found->name(), testing::StartsWith("columns of a transposed convolution:")) << label;
        expect_equal(d, label);
      }
}

TEST(Convolution, TransposedWithEpilogue) {
  ConvDesc d = plain(2, 16, 24, 7, 2);
  d.transposed = true;
  d.stride = {2, 2, 1};
  d.bias = true;
  set_out(d);
  d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, 24}},
            {.kind = Kind::kAddTensor, .dims = {1, 1, 1, 24}},
            {.kind = Kind::kRelu}};
  expect_equal(d, "transposed");
}

// oneDNN 3.2's kernel multiplies these channels in several blocks, and would add the bias for each.
TEST(Convolution, TransposedOfManyChannels) {
  for (int spatial : {1, 2}) {
    for (bool bias : {false, true}) {
      ConvDesc d = plain(spatial, 512, 32, 6, spatial == 1 ? 16 : 4);
      d.transposed = true;
      d.stride = {spatial == 1 ? 8 : 2, 2, 1};
      d.pad_begin = d.pad_end = {1, 1, 0};
      d.bias = bias;
      set_out(d);
      expect_equal(d, fmt::format("{} axes, bias {}", spatial, bias));
      Dims row(static_cast<std::size_t>(spatial) + 2, 1);
      row.back() = 32;
      d.post = {{.kind = Kind::kRelu}, {.kind = Kind::kAddTensor, .dims = row}};
      expect_equal(d, fmt::format("{} axes, bias {}, epilogue", spatial, bias));
    }
  }
}

}  // namespace
}  // namespace sardonyx::host::test
