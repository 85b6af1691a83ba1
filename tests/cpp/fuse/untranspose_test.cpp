// The pass untranspose, and loads of views that only a condition keeps within their shape.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions untransposing() {
  FuseOptions o = any_device();
  o.untranspose = true;
  return o;
}

TEST(Untranspose, ATransposedBiasBecomesTheEpilogue) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = constant float32[32] {...}
%3 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%4 = loop float32[n < n, c < 32, t < 64]: tanh(%3[n, t, c] + %2[c]) @"transpose"
%5 = loop float32[n < n, c < 32, t < 62]: sum{r < 3}(%4[n, c, t + r]) @"window"
return %5)";
  expect_pass("untranspose", kGraph, R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = constant float32[32] {...}
%3 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%4 = loop float32[n < n, t < 64, c < 32]: tanh(%3[n, t, c] + %2[c]) @"transpose"
%5 = loop float32[n < n, c < 32, t < 62]: sum{r < 3}(%4[n, t + r, c]) @"window"
return %5)",
              untransposing());
  EXPECT_THAT(kernels_of(kGraph, untransposing()), ElementsAre("tile fc + transpose", "loop window"));
  EXPECT_THAT(kernels_of(kGraph), ElementsAre("tile fc", "loop transpose", "loop window"));
}

TEST(Untranspose, BatchesOfOneAreNoException) {
  constexpr const char* kGraph = R"(%0 = input float32[1, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = matmul float32[n < 1, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%3 = loop float32[n < 1, c < 32, t < 64]: tanh(%2[n, t, c]) @"transpose"
%4 = loop float32[n < 1, c < 32, t < 62]: sum{r < 3}(%3[n, c, t + r]) @"window"
return %4)";
  EXPECT_THAT(kernels_of(kGraph, untransposing()), ElementsAre("tile fc + transpose", "loop window"));
}

TEST(Untranspose, ReadersThatNeedTheOrderAreAReason) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%3 = loop float32[n < n, c < 32, t < 64]: tanh(%2[n, t, c]) @"transpose"
return %3)";
  expect_unchanged("untranspose", kGraph, untransposing());
  EXPECT_THAT(remarks_of("untranspose", kGraph, untransposing()),
              ElementsAre("transpose: it transposes a GEMM's result, and is an output or has a reader that needs its "
                          "order"));
}

// Tokens as an image: the view follows, and the convolution reads it as it is in memory, channels last.
TEST(Untranspose, ViewsThatSplitDimsFollow) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = constant float32[8, 32, 3, 3] {...}
%3 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%4 = loop float32[n < n, c < 32, t < 64]: tanh(%3[n, t, c]) @"transpose"
%5 = view float32[n, 32, 8, 8]: %4
%6 = conv float32[n, 8, 8, 8]: %5, %2 {pads = [1, 1, 1, 1]} @"conv"
%7 = loop float32[n < n, c < 32, y < 8]: sum{x < 8}(%5[n, c, y, x]) @"mean"
return %6, %7)";
  expect_pass("untranspose", kGraph, R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {...}
%2 = constant float32[8, 32, 3, 3] {...}
%3 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%4 = loop float32[n < n, t < 64, c < 32]: tanh(%3[n, t, c]) @"transpose"
%5 = view float32[n, 8, 8, 32]: %4
%6 = loop float32[n < n, c < 32, y < 8, x < 8]: %5[n, y, x, c]
%7 = conv float32[n, 8, 8, 8]: %6, %2 {pads = [1, 1, 1, 1]} @"conv"
%8 = loop float32[n < n, c < 32, y < 8]: sum{x < 8}(%5[n, y, x, c]) @"mean"
return %7, %8)",
              untransposing());
  EXPECT_THAT(kernels_of(kGraph, untransposing()),
              ElementsAre("tile fc + transpose", "tile conv", "loop mean", "loop conv"));
}

TEST(Untranspose, WhatOthersReadKeepsItsOrder) {
  const auto text = [](std::string_view rest) {
    return fmt::format(R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 32] {{...}}
%2 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %1[k, c]
%3 = loop float32[n < n, c < 32, t < 64]: tanh(%2[n, t, c])
{})",
                       rest);
  };
  // an output of the graph
  expect_unchanged("untranspose", text("return %3"), untransposing());
  // what a routine reads
  expect_unchanged("untranspose", text(R"(%4 = routine "sort" float32[n, 32, 64]: %3
return %4)"),
                   untransposing());
  // what a view is of
  expect_unchanged("untranspose", text(R"(%4 = view float32[n, 2048]: %3
%5 = loop float32[n < n, i < 2048]: exp(%4[n, i])
return %5)"),
                   untransposing());
  // rows of a product, which would run across memory
  expect_unchanged("untranspose", text(R"(%4 = constant float32[64, 8] {...}
%5 = matmul float32[n < n, c < 32, j < 8; t < 64]: %3[n, c, t], %4[t, j]
return %5)"),
                   untransposing());
}

// Queries, keys and values of attention between channels: sums over tokens read the GEMM's result along its channels,
// and the second GEMM reads it along K.
TEST(Untranspose, HeadsOfAGemmKeepItsOrder) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 96] {...}
%2 = matmul float32[n < n, t < 64, c < 96; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%3 = loop float32[p < 2, n < n, h < 3, d < 16, t < 64]: tanh(%2[n, t, p * 48 + h * 16 + d]) @"heads"
%4 = loop float32[n < n, h < 3, d < 16]: sum{r < 64}(%3[0, n, h, d, r]) @"sum"
%5 = constant float32[16, 16] {...}
%6 = matmul float32[n < n, h < 3, d < 16, t < 64; e < 16]: %5[d, e], %3[1, n, h, e, t] @"product"
return %4, %6)";
  expect_pass("untranspose", kGraph, R"(%0 = input float32[n, 64, 16]
%1 = constant float32[16, 96] {...}
%2 = matmul float32[n < n, t < 64, c < 96; k < 16]: %0[n, t, k], %1[k, c] @"fc"
%3 = loop float32[n < n, t < 64, p < 2, h < 3, d < 16]: tanh(%2[n, t, p * 48 + h * 16 + d]) @"heads"
%4 = loop float32[n < n, h < 3, d < 16]: sum{r < 64}(%3[n, r, 0, h, d]) @"sum"
%5 = constant float32[16, 16] {...}
%6 = matmul float32[n < n, h < 3, d < 16, t < 64; e < 16]: %5[d, e], %3[n, t, 1, h, e] @"product"
return %4, %6)",
              untransposing());
  EXPECT_THAT(kernels_of(kGraph, untransposing()), ElementsAre("tile fc + heads", "loop sum", "tile product"));
}

TEST(Untranspose, ResultsInOrderOrWithSeveralReadersStay) {
  expect_unchanged("untranspose", R"(%0 = input float32[n, 16]
%1 = constant float32[16, 32] {...}
%2 = matmul float32[n < n, c < 32; k < 16]: %0[n, k], %1[k, c]
%3 = loop float32[n < n, c < 32]: tanh(%2[n, c])
%4 = loop float32[n < n, c < 30]: %3[n, c] + %3[n, c + 2]
return %4)",
                   untransposing());
  expect_unchanged("untranspose", R"(%0 = input float32[n, 16]
%1 = constant float32[16, 32] {...}
%2 = matmul float32[n < n, c < 32; k < 16]: %0[n, k], %1[k, c]
%3 = loop float32[c < 32, n < n]: tanh(%2[n, c])
%4 = loop float32[n < n, c < 30]: %3[c, n] + %3[c + 2, n] + %2[n, c]
return %4)",
                   untransposing());
}

// The window is within the image where it is read: rows and columns of the image are one dim of what it is a view of.
TEST(InlineLoops, ViewsOfWindowsNeedNoQuotients) {
  expect_pass("inline_loops", R"(%0 = input float32[n, 4, 64]
%1 = view float32[n, 4, 8, 8]: %0
%2 = loop float32[n < n, c < 4, y < 8, x < 8]: sum{r < 3}(select(0 <= x + r - 1 && x + r - 1 < 8, %1[n, c, y, x + r - 1], 0.0))
return %2)",
              R"(%0 = input float32[n, 4, 64]
%1 = loop float32[n < n, c < 4, y < 8, x < 8]: sum{r < 3}(select(0 <= x + r - 1 && x + r - 1 < 8, %0[n, c, 8 * y + x + r - 1], 0.0))
return %1)");
}

// The result of a GEMM of pixels, with channels second for a convolution.
TEST(Untranspose, ConvolutionsReadTheLoopAsAnImage) {
  expect_pass("untranspose", R"(%0 = input float16[n * 1024, 144]
%1 = constant float16[64, 144] {...}
%2 = constant float16[64, 64, 3, 3] {...}
%3 = matmul float16[p < n * 1024, o < 64; k < 144]: %0[p, k], %1[o, k]
%4 = loop float16[b < n, o < 64, y < 32, x < 32]: max(%3[b * 1024 + y * 32 + x, o], 0.0:float16)
%5 = conv float16[n, 64, 32, 32]: %4, %2 {pads = [1, 1, 1, 1]}
return %5)",
              R"(%0 = input float16[n * 1024, 144]
%1 = constant float16[64, 144] {...}
%2 = constant float16[64, 64, 3, 3] {...}
%3 = matmul float16[p < n * 1024, o < 64; k < 144]: %0[p, k], %1[o, k]
%4 = loop float16[b < n, y < 32, x < 32, o < 64]: max(%3[b * 1024 + y * 32 + x, o], 0.0:float16)
%5 = loop float16[b < n, o < 64, y < 32, x < 32]: %4[b, y, x, o]
%6 = conv float16[n, 64, 32, 32]: %5, %2 {pads = [1, 1, 1, 1]}
return %6)",
              untransposing());
}

// Queries, and transposed keys, of heads: attention reads rows at any distance. Scores of all queries are no such rows.
TEST(Untranspose, AttentionReadsHeadsInTheOrderOfTheProduct) {
  const std::string products = R"(%0 = input float32[n, 64, 16]
%1 = input float32[n, 24, 16]
%2 = constant float32[16, 32] {...}
%3 = constant float32[32] {...}
%4 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %2[k, c] @"q"
%5 = loop float32[n < n, h < 2, t < 64, d < 16]: (%4[n, t, h * 16 + d] + %3[h * 16 + d]) * 0.5 @"queries"
%6 = matmul float32[n < n, t < 24, c < 32; k < 16]: %1[n, t, k], %2[k, c] @"k"
%7 = loop float32[n < n, h < 2, d < 16, t < 24]: %6[n, t, h * 16 + d] + %3[h * 16 + d] @"keys"
%8 = attention float32[n, 2, 64, 16] over [b < n, h < 2, i < 64, j < 24, d < 16, e < 16] {scale = 0.25, )";
  const std::string heads = products + R"(q = %5[b, h, i, d], k = %7[b, h, d, j], v = %7[b, h, e, j]} @"heads"
return %8)";
  const std::string bias =
      products + R"(q = %5[b, h, i, d], k = %7[b, h, d, j], v = %7[b, h, e, j], bias = %5[b, h, i, j]} @"heads"
return %8)";
  expect_pass("untranspose", heads, R"(%0 = input float32[n, 64, 16]
%1 = input float32[n, 24, 16]
%2 = constant float32[16, 32] {...}
%3 = constant float32[32] {...}
%4 = matmul float32[n < n, t < 64, c < 32; k < 16]: %0[n, t, k], %2[k, c] @"q"
%5 = loop float32[n < n, t < 64, h < 2, d < 16]: (%4[n, t, h * 16 + d] + %3[h * 16 + d]) * 0.5 @"queries"
%6 = matmul float32[n < n, t < 24, c < 32; k < 16]: %1[n, t, k], %2[k, c] @"k"
%7 = loop float32[n < n, t < 24, h < 2, d < 16]: %6[n, t, h * 16 + d] + %3[h * 16 + d] @"keys"
%8 = attention float32[n, 2, 64, 16] over [b < n, h < 2, i < 64, j < 24, d < 16, e < 16] {scale = 0.25, q = %5[b, i, h, d], k = %7[b, j, h, d], v = %7[b, j, h, e]} @"heads"
return %8)",
              untransposing());
  EXPECT_THAT(kernels_of(heads, untransposing()), ElementsAre("tile q + queries", "tile k + keys", "tile heads"));
  EXPECT_THAT(remarks_of("untranspose", bias, untransposing()), ElementsAre(testing::StartsWith("queries: ")));
}

}  // namespace
}  // namespace sardonyx
