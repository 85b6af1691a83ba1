// The pass subpixel_convolution.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions subpixel() {
  FuseOptions o = any_device();
  o.subpixel_convolution = true;
  return o;
}

TEST(SubpixelConvolution, AWindowOfTheStridesSizeIsAGemm) {
  const std::string out = after_pass("subpixel_convolution", R"(%0 = input float16[n, 64, h, 20]
%1 = constant float16[64, 32, 2, 2] {...}
%2 = constant float16[32] {...}
%3 = conv float16[n, 32, h * 2, 40]: %0, %1, %2 {strides = [2, 2], transposed} @"up"
return %3)",
                                     subpixel());
  EXPECT_THAT(out, testing::HasSubstr("loop float16[i0 < 128, i1 < 64, i2 < 1, i3 < 1]"));
  EXPECT_THAT(out, testing::HasSubstr("conv float16[n, 128, h, 20]: %0,"));
  EXPECT_THAT(out, testing::Not(testing::HasSubstr("transposed")));
}

TEST(SubpixelConvolution, LargerWindowsReadNeighbours) {
  const std::string out = after_pass("subpixel_convolution", R"(%0 = input float32[2, 8, 10, 12]
%1 = constant float32[8, 4, 4, 4] {...}
%2 = conv float32[2, 4, 20, 24]: %0, %1 {strides = [2, 2], pads = [1, 1, 1, 1], transposed}
return %2)",
                                     subpixel());
  EXPECT_THAT(out, testing::HasSubstr("conv float32[2, 16, 10, 12]"));
  EXPECT_THAT(out, testing::HasSubstr("pads = [1, 1, 1, 1]"));
  EXPECT_THAT(out, testing::Not(testing::HasSubstr("transposed")));
}

// Its windows do not overlap, so that no result has more than one term for each channel; the image's stride is of no
// importance.
TEST(SubpixelConvolution, AnImageOfOnePixelIsAGemm) {
  const auto graph = [](std::string_view size, std::string_view attributes) {
    return after_pass("subpixel_convolution",
                      fmt::format(R"(%0 = input float16[n, 100, 1, 1]
%1 = constant float16[100, 64, 4, 4] {{...}}
%2 = conv float16[n, 64, {}]: %0, %1 {{{}}}
return %2)",
                                  size, attributes),
                      subpixel());
  };
  for (const std::string& out : {graph("4, 4", "transposed"), graph("4, 4", "strides = [3, 1], transposed")}) {
    EXPECT_THAT(out, testing::HasSubstr("loop float16[i0 < 1024, i1 < 100, i2 < 1, i3 < 1]"));
    EXPECT_THAT(out, testing::HasSubstr("conv float16[n, 1024, 1, 1]: %0,"));
    EXPECT_THAT(out, testing::Not(testing::HasSubstr("transposed")));
  }
  // Padding cuts off rows of the result.
  EXPECT_THAT(graph("2, 3", "pads = [1, 1, 1, 0], transposed"), testing::HasSubstr("conv float16[n, 384, 1, 1]: %0,"));
}

TEST(SubpixelConvolution, OnlyFewChannels) {
  FuseOptions o = any_device();
  o.subpixel_outputs = 4;
  const auto stays = [&](int outputs, int kernel) {
    const std::string out = after_pass("subpixel_convolution",
                                       fmt::format(R"(%0 = input float32[2, 8, 10, 12]
%1 = constant float32[8, {0}, {1}, {1}] {{...}}
%2 = conv float32[2, {0}, 20, 24]: %0, %1 {{strides = [2, 2], pads = [{2}, {2}, {2}, {2}], transposed}}
return %2)",
                                                   outputs, kernel, kernel / 2 - 1),
                                       o);
    return out.find("transposed") != out.npos;
  };
  EXPECT_FALSE(stays(4, 4));
  EXPECT_TRUE(stays(5, 4));
  // Phases of 3 x 3 taps, of which each has 2 x 2.
  o.subpixel_outputs = 16;
  EXPECT_TRUE(stays(3, 4));
  EXPECT_FALSE(stays(16, 4));
  EXPECT_FALSE(stays(1, 2));
}

TEST(SubpixelConvolution, OthersStay) {
  const auto stays = [](std::string_view weights, std::string_view out, std::string_view attributes) {
    expect_unchanged("subpixel_convolution",
                     fmt::format(R"(%0 = input float32[2, 8, 10, 12]
%1 = constant float32[{}] {{...}}
%2 = conv float32[{}]: %0, %1 {{{}}}
return %2)",
                                 weights, out, attributes),
                     subpixel());
  };
  stays("8, 4, 3, 3", "2, 4, 12, 14", "transposed");                                         // no strides
  stays("8, 4, 2, 2", "2, 8, 20, 24", "strides = [2, 2], groups = 2, transposed");           // groups
  stays("4, 8, 2, 2", "2, 4, 5, 6", "strides = [2, 2]");                                     // an ordinary convolution
  stays("8, 4, 2, 2", "2, 4, 16, 20", "strides = [2, 2], pads = [2, 2, 2, 2], transposed");  // cuts off pixels
}

}  // namespace
}  // namespace sardonyx
