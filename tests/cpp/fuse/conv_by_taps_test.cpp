// The pass conv_by_taps.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions by_taps() {
  FuseOptions o = any_device();
  o.conv_by_taps = true;
  return o;
}

TEST(ConvByTaps, AConvolutionToOneChannel) {
  expect_pass("conv_by_taps", R"(%0 = input float16[n, 64, 100, 90]
%1 = constant float16[1, 64, 3, 3] {...}
%2 = constant float16[1] {...}
%3 = conv float16[n, 1, 100, 90]: %0, %1, %2 {pads = [1, 1, 1, 1]} @"last"
return %3)",
              R"(%0 = input float16[n, 64, 100, 90]
%1 = constant float16[1, 64, 3, 3] {...}
%2 = constant float16[1] {...}
%3 = constant float16[9, 64] {...} @"last"
%4 = matmul float32[n < n, t < 9, p < 9000; k < 64]: %3[t, k], %0[n, k, floordiv(p, 90), mod(p, 90)] @"last"
%5 = loop float16[n < n, o < 1, y < 100, x < 90]: float16(sum{r < 3, s < 3}(select(y + r - 1 >= 0 && y + r - 1 < 100 && (x + s - 1 >= 0 && x + s - 1 < 90), %4[n, r * 3 + s, (y + r - 1) * 90 + x + s - 1], 0.0)) + float32(%2[o])) @"last"
return %5)",
              by_taps());
}

// 7 x 7 taps of three outputs would be 147 results for each pixel: those of a column are added by the convolution.
TEST(ConvByTaps, ALargeWindowIsDividedByColumns) {
  expect_pass("conv_by_taps", R"(%0 = input float16[n, 64, 106, 96]
%1 = constant float16[3, 64, 7, 7] {...}
%2 = constant float16[3] {...}
%3 = conv float16[n, 3, 102, 90]: %0, %1, %2 {pads = [1, 0, 1, 0]} @"last"
return %3)",
              R"(%0 = input float16[n, 64, 106, 96]
%1 = constant float16[3, 64, 7, 7] {...}
%2 = constant float16[3] {...}
%3 = loop float16[k < 24, c < 64, r < 7, o < 1]: select(k < 21, %1[floordiv(k, 7), c, r, mod(k, 7)], 0.0:float16) @"last"
%4 = conv float32[n, 24, 102, 96]: %0, %3 {pads = [1, 0, 1, 0]} @"last"
%5 = loop float16[n < n, o < 3, y < 102, x < 90]: float16(sum{k < 7}(%4[n, o * 7 + k, y, x + k]) + float32(%2[o])) @"last"
return %5)",
              by_taps());
}

// 27 taps of three outputs would be too many columns: those of the first dim stay in K.
TEST(ConvByTaps, VolumesAreDividedByTheirLastDims) {
  expect_pass("conv_by_taps", R"(%0 = input float16[n, 24, 20, 40, 50]
%1 = constant float16[3, 24, 3, 3, 3] {...}
%2 = conv float16[n, 3, 20, 40, 48]: %0, %1 {pads = [1, 1, 0, 1, 1, 0]} @"flow"
return %2)",
              R"(%0 = input float16[n, 24, 20, 40, 50]
%1 = constant float16[3, 24, 3, 3, 3] {...}
%2 = loop float16[k < 32, c < 24, r < 3, o < 1, p < 1]: select(k < 27, %1[floordiv(k, 9), c, r, mod(floordiv(k, 3), 3), mod(k, 3)], 0.0:float16) @"flow"
%3 = conv float32[n, 32, 20, 40, 50]: %0, %2 {pads = [1, 0, 0, 1, 0, 0]} @"flow"
%4 = loop float16[n < n, o < 3, z < 20, y < 40, x < 48]: float16(sum{s < 3, t < 3}(select(y + s - 1 >= 0 && y + s - 1 < 40, %3[n, o * 9 + s * 3 + t, z, y + s - 1, x + t], 0.0))) @"flow"
return %4)",
              by_taps());
}

// Without strides and with whole vectors of enough channels; {0}: input, {1}: weights, {2}: output, {3}: attributes.
TEST(ConvByTaps, OtherConvolutionsStay) {
  const auto graph = [](const char* in, const char* weights, const char* out,
                        const char* rest = "pads = [1, 1, 1, 1]") {
    return fmt::format(R"(%0 = input {0}
%1 = constant {1} {{...}}
%2 = conv {2}: %0, %1 {{{3}}} @"last"
return %2)",
                       in, weights, out, rest);
  };
  const auto remarks = [&](const std::string& text) {
    expect_unchanged("conv_by_taps", text, by_taps());
    return remarks_of("conv_by_taps", text, by_taps());
  };
  EXPECT_THAT(remarks(graph("float16[n, 64, 20, 20]", "float16[1, 64, 3, 3]", "float16[n, 1, 20, 20]")),
              ElementsAre("last: its images are small, or their size is not known"));
  EXPECT_THAT(remarks(graph("float16[n, 64, h, 90]", "float16[1, 64, 3, 3]", "float16[n, 1, h, 90]")),
              ElementsAre("last: its images are small, or their size is not known"));
  EXPECT_THAT(remarks(graph("float16[n, 8, 100, 90]", "float16[1, 8, 3, 3]", "float16[n, 1, 100, 90]")),
              ElementsAre("last: it has few channels, or no whole vectors of them"));
  EXPECT_THAT(remarks(graph("float16[n, 16, 100, 90]", "float16[1, 16, 3, 3]", "float16[n, 1, 100, 90]")),
              ElementsAre("last: it has few channels and its images are small"));
  EXPECT_THAT(remarks(graph("float16[n, 64, 200, 180]", "float16[1, 64, 3, 3]", "float16[n, 1, 100, 90]",
                            "pads = [1, 1, 1, 1], strides = [2, 2]")),
              ElementsAre("last: it has strides"));
  EXPECT_THAT(remarks(graph("float16[n, 64, 100, 90]", "float16[16, 64, 3, 3]", "float16[n, 16, 100, 90]")),
              ElementsAre())
      << "many channels";
  EXPECT_THAT(remarks(graph("float32[n, 64, 100, 90]", "float32[1, 64, 3, 3]", "float32[n, 1, 100, 90]")),
              ElementsAre())
      << "float32";
}

}  // namespace
}  // namespace sardonyx
