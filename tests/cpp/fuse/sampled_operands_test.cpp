// The pass sampled_operands.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions sampling() {
  FuseOptions o = any_device();
  o.sampled_operands = true;
  return o;
}

// Nine taps of 16 channels in two groups, each at a place of its own: K of the operand is channel and tap.
constexpr const char* kImage = R"(%0 = input float16[n, 4, 32, 32]
%1 = input int64[n, 2, 9, 32, 32]
%2 = constant float16[16, 4, 3, 3] {...}
%3 = conv float16[n, 16, 32, 32]: %0, %2 {pads = [1, 1, 1, 1]}
%4 = constant float16[8, 144] {...}
)";

TEST(SampledOperands, ChannelsBecomeInnermost) {
  expect_pass(
      "sampled_operands",
      std::string(kImage) +
          R"(%5 = loop float16[c < 16, t < 9, b < n, y < 32, x < 32]: %3[b, c, %1[b, floordiv(c, 8), t, y, x], x]
%6 = view float16[144, n * 1024]: %5
%7 = matmul float16[o < 8, p < n * 1024; k < 144]: %4[o, k], %6[k, p]
%8 = loop float16[b < n, o < 8, y < 32, x < 32]: %7[o, b * 1024 + y * 32 + x]
return %8)",
      std::string(kImage) +
          R"(%5 = loop float16[o < 8, k < 144]: %4[o, floordiv(k, 72) * 72 + mod(k, 8) * 9 + mod(floordiv(k, 8), 9)]
%6 = loop float16[b < n, y < 32, x < 32, g < 2, t < 9, c < 8]: %3[b, c + g * 8, %1[b, g, t, y, x], x]
%7 = view float16[n * 1024, 144]: %6
%8 = matmul float16[p < n * 1024, o < 8; k < 144]: %7[p, k], %5[o, k]
%9 = loop float16[b < n, o < 8, y < 32, x < 32]: %8[b * 1024 + y * 32 + x, o]
return %9)",
      sampling());
}

// One matrix for each image.
TEST(SampledOperands, BatchesStay) {
  expect_pass("sampled_operands",
              std::string(kImage) +
                  R"(%5 = loop float16[b < n, c < 16, t < 9, y < 32, x < 32]: %3[b, c, %1[b, 0, t, y, x], x]
%6 = view float16[n, 144, 1024]: %5
%7 = matmul float16[b < n, o < 8, p < 1024; k < 144]: %4[o, k], %6[b, k, p]
%8 = loop float16[b < n, o < 8, y < 32, x < 32]: %7[b, o, y * 32 + x]
return %8)",
              std::string(kImage) +
                  R"(%5 = loop float16[o < 8, k < 144]: %4[o, mod(k, 16) * 9 + floordiv(k, 16)]
%6 = loop float16[b < n, y < 32, x < 32, t < 9, c < 16]: %3[b, c, %1[b, 0, t, y, x], x]
%7 = view float16[n, 1024, 144]: %6
%8 = matmul float16[b < n, p < 1024, o < 8; k < 144]: %7[b, p, k], %5[o, k]
%9 = loop float16[b < n, o < 8, y < 32, x < 32]: %8[b, y * 32 + x, o]
return %9)",
              sampling());
}

// An input has its channels apart in memory.
TEST(SampledOperands, OtherImagesStay) {
  expect_unchanged("sampled_operands", R"(%0 = input float16[n, 16, 32, 32]
%1 = input int64[n, 9, 32, 32]
%2 = constant float16[8, 144] {...}
%3 = loop float16[c < 16, t < 9, b < n, y < 32, x < 32]: %0[b, c, %1[b, t, y, x], x]
%4 = view float16[144, n * 1024]: %3
%5 = matmul float16[o < 8, p < n * 1024; k < 144]: %2[o, k], %4[k, p]
%6 = loop float16[b < n, o < 8, y < 32, x < 32]: %5[o, b * 1024 + y * 32 + x]
return %6)",
                   sampling());
}

// Windows at fixed places are a convolution's, and an output of the model keeps its dims.
TEST(SampledOperands, OtherLoopsAndOutputsStay) {
  expect_unchanged(
      "sampled_operands",
      std::string(kImage) +
          R"(%5 = loop float16[c < 16, t < 9, b < n, y < 32, x < 32]: select(x < t, %3[b, c, y, x], 0.0:float16)
%6 = view float16[144, n * 1024]: %5
%7 = matmul float16[o < 8, p < n * 1024; k < 144]: %4[o, k], %6[k, p]
%8 = loop float16[b < n, o < 8, y < 32, x < 32]: %7[o, b * 1024 + y * 32 + x]
return %8)",
      sampling());
  expect_unchanged("sampled_operands",
                   std::string(kImage) +
                       R"(%5 = loop float16[c < 16, t < 9, b < n, y < 32, x < 32]: %3[b, c, %1[b, 0, t, y, x], x]
%6 = view float16[144, n * 1024]: %5
%7 = matmul float16[o < 8, p < n * 1024; k < 144]: %4[o, k], %6[k, p]
return %7)",
                   sampling());
}

}  // namespace
}  // namespace sardonyx
