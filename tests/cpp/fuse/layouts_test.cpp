// The pass layouts where operands of GEMMs and attention may have any storage order.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;
using testing::Not;

FuseOptions any_order() {
  FuseOptions o = any_device();
  o.operands_in_any_order = true;
  return o;
}

constexpr const char* kWindowAndProduct = R"(%0 = input float16[n, 8, 8, 32]
%1 = constant float16[32, 16] {...}
%2 = loop float16[n < n, c < 32, y < 6, x < 6]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c])))
%3 = matmul float16[n < n, y < 6, x < 6, j < 16; k < 32]: %2[n, k, y, x], %1[k, j]
return %3)";

TEST(LayoutsInAnyOrder, AWindowWhoseChannelsAGemmSumsUpIsChannelsLast) {
  EXPECT_THAT(after_pass("layouts", kWindowAndProduct, any_order()), HasSubstr("order(0, 2, 3, 1): float16(sum"));
  expect_unchanged("layouts", kWindowAndProduct);
}

TEST(LayoutsInAnyOrder, AWindowWhoseRowsAGemmSumsUpStaysRowMajor) {
  expect_unchanged("layouts", R"(%0 = input float16[n, 8, 8, 32]
%1 = constant float16[6, 16] {...}
%2 = loop float16[n < n, c < 32, y < 6, x < 6]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c])))
%3 = matmul float16[n < n, y < 32, x < 6, j < 16; k < 6]: %2[n, y, x, k], %1[k, j]
return %3)",
                   any_order());
}

// Two convolutions, whose results are channels last, and their stack.
std::string stack(const std::string& rest) {
  return R"(%0 = input float16[n, 8, 8, 8]
%1 = constant float16[32, 8, 3, 3] {...}
%2 = conv float16[n, 32, 6, 6]: %0, %1 @"conv"
%3 = conv float16[n, 32, 6, 6]: %0, %1 {pads = [1, 1, 1, 1], dilations = [2, 2]} @"conv"
%4 = loop float16[n < n, p < 2, c < 32, y < 6, x < 6]: select(p < 1, %2[n, c, y, x], tanh(%3[n, c, y, x]))
)" + rest;
}

TEST(LayoutsInAnyOrder, StacksOfImagesKeepTheOrderOfTheirParts) {
  const std::string sum = "%5 = loop float16[n < n, c < 32]: sum{p < 2, y < 6, x < 6}(%4[n, p, c, y, x])\n";
  EXPECT_THAT(after_pass("layouts", stack(sum + "return %5"), any_order()), HasSubstr("order(0, 1, 3, 4, 2): select("));
  // a reader that needs the elements in order
  EXPECT_THAT(after_pass("layouts", stack("%5 = view float16[n, 64, 36]: %4\nreturn %5"), any_order()),
              Not(HasSubstr("order(0, 1, 3, 4, 2)")));
}

// A convolution's result is channels last; so is what a reduction over some of its dims leaves.
TEST(LayoutsInAnyOrder, WhatAReductionLeavesKeepsItsOrder) {
  const auto reduced = [](const std::string& loop) {
    return after_pass("layouts", R"(%0 = input float16[n, 8, 8, 8]
%1 = constant float16[32, 8, 3, 3] {...}
%2 = conv float16[n, 32, 6, 6]: %0, %1 @"conv"
%3 = loop )" + loop + "\n%4 = loop float16[n < n]: sum{x < 6}(tanh(%3[n, x, x]))\nreturn %4",
                      any_order());
  };
  EXPECT_THAT(reduced("float16[n < n, c < 32, y < 6]: max{x < 6}(%2[n, c, y, x])"), HasSubstr("order(0, 2, 1): max{"));
  EXPECT_THAT(reduced("float16[n < n, y < 6, c < 32]: max{x < 6}(%2[n, c, y, x])"), Not(HasSubstr("order(0, 2, 1)")));
  EXPECT_THAT(reduced("float16[n < n, y < 6, x < 6]: max{c < 32}(%2[n, c, y, x])"), Not(HasSubstr("order(0, 2, 1)")));
  EXPECT_THAT(reduced("float16[n < n, c < 32, y < 6]: max{x < 6}(%2[n, c, y, x] + %2[n, y, c, x])"),
              Not(HasSubstr("order(0, 2, 1)")));
}

// Scores with the heads last, of which a product reads the softmax by heads: rows become contiguous.
TEST(LayoutsInAnyOrder, ScoresThatAreTransposedAfterSoftmaxAreStoredInRows) {
  const auto scores = [](const std::string& mask, const std::string& sum) {
    return after_pass("layouts",
                      R"(%0 = input float16[b, 256, 256]
%1 = input float16[b, 256, 8]
%2 = input float16[b, 256, 256, 8]
%3 = loop float16[b < b, i < 256, j < 256, h < 8]: tanh()" +
                          mask + R"( + %1[b, i, h])
%4 = loop float16[b < b, i < 256, h < 8]: )" +
                          sum + R"(
%5 = loop float16[b < b, h < 8, i < 256, j < 256]: %3[b, i, j, h] / %4[b, i, h]
return %5)",
                      any_order());
  };
  const std::string mask = "%0[b, i, j]", sum = "sum{j < 256}(%3[b, i, j, h])", rows = "order(0, 3, 1, 2): tanh";
  EXPECT_THAT(scores(mask, sum), HasSubstr(rows));
  EXPECT_THAT(scores(mask, "sum{j < 256}(%3[b, j, i, h])"), Not(HasSubstr(rows)));  // a sum along another dim
  EXPECT_THAT(scores("%2[b, i, j, h]", sum), Not(HasSubstr(rows)));                 // what it reads has heads last
}

std::string attention(const std::string& rest) {
  return R"(%0 = input float16[n, t, 64]
%1 = input float16[n, 2, t, 32]
%2 = loop float16[b < n, h < 2, d < 32, t < t]: tanh(%0[b, t, h * 32 + d])
%3 = attention float16[n, 2, t, 32] over [b < n, h < 2, i < t, j < t, d < 32, e < 32] {scale = 0.25, q = %1[b, h, i, d], k = %2[b, h, d, j], v = %1[b, h, j, e]}
)" + rest;
}

TEST(LayoutsInAnyOrder, TransposedKeysAreStoredByHead) {
  EXPECT_THAT(after_pass("layouts", attention("return %3"), any_order()), HasSubstr("order(0, 1, 3, 2): tanh"));
  expect_unchanged("layouts", attention("return %3"));
}

TEST(LayoutsInAnyOrder, KeysThatOthersReadStayRowMajor) {
  expect_unchanged("layouts", attention("return %3, %2"), any_order());
  EXPECT_THAT(after_pass("layouts", attention(R"(%4 = routine "sort" float16[n, 2, 32, t]: %2
return %3, %4)"),
                         any_order()),
              Not(HasSubstr("order(")));
}

// Queries, keys and values that a convolution of an image computes: in bands of rows of it (area attention).
TEST(LayoutsInAnyOrder, AttentionReadsImagesInPlace) {
  EXPECT_THAT(after_pass("layouts", R"(%0 = input float16[n, 64, 8, 8]
%1 = constant float16[96, 64, 1, 1] {...}
%2 = conv float16[n, 96, 8, 8]: %0, %1
%3 = loop float16[b < n * 2, h < 2, d < 16, t < 32]: %2[floordiv(b, 2), h * 48 + d, floordiv(t, 8) + mod(b, 2) * 4, mod(t, 8)]
%4 = loop float16[b < n * 2, h < 2, t < 32, d < 16]: %2[floordiv(b, 2), h * 48 + d + 16, floordiv(t, 8) + mod(b, 2) * 4, mod(t, 8)]
%5 = loop float16[b < n * 2, h < 2, d < 16, t < 32]: %2[floordiv(b, 2), h * 48 + d + 32, mod(t, 8), floordiv(t, 8) + mod(b, 2) * 4]
%6 = attention float16[n * 2, 2, 32, 16] over [b < n * 2, h < 2, i < 32, j < 32, d < 16, e < 16] {scale = 0.25, q = %3[b, h, d, i], k = %4[b, h, j, d], v = %5[b, h, e, j]}
return %6)",
                         any_order()),
              HasSubstr("q = %3[floordiv(i0, 2), i1 * 48 + i4, floordiv(i2, 8) + mod(i0, 2) * 4, mod(i2, 8)], "
                        "k = %3[floordiv(i0, 2), i1 * 48 + i4 + 16, floordiv(i3, 8) + mod(i0, 2) * 4, mod(i3, 8)], "
                        "v = %6[i0, i1, i5, i3]"));
}

// Two attentions that share their keys.
TEST(LayoutsInAnyOrder, TransposedKeysOfTwoAttentionsAreStoredByHead) {
  const auto second = [](const char* keys) {
    return attention(fmt::format(
        R"(%4 = attention float16[n, 2, t, 32] over [b < n, h < 2, i < t, j < t, d < 32, e < 32] {{scale = 0.25, q = %1[b, h, i, d], k = {}, v = %1[b, h, j, e]}}
return %3, %4)",
        keys));
  };
  EXPECT_THAT(after_pass("layouts", second("%2[b, h, d, j]"), any_order()), HasSubstr("order(0, 1, 3, 2): tanh"));
  expect_unchanged("layouts", second("%2[b, h, mod(j, 32), d]"), any_order());
}

// Heads of an image: a view of a loop's result is computed as the loop, so that it can have an order of its own.
TEST(LayoutsInAnyOrder, KeysThatAreViewsAreStoredByHead) {
  const auto graph = [](const char* rest) {
    return std::string(R"(%0 = input float16[n, t, 64]
%1 = input float16[n * 2, t, 32]
%2 = loop float16[b < n, c < 64, t < t]: tanh(%0[b, t, c])
%3 = view float16[n * 2, 32, t]: %2
%4 = attention float16[n * 2, t, 32] over [b < 1, h < n * 2, i < t, j < t, d < 32, e < 32] {scale = 0.25, q = %1[h, i, d], k = %3[h, d, j], v = %1[h, j, e]}
)") + rest;
  };
  EXPECT_THAT(after_pass("layouts", graph("return %4"), any_order()),
              HasSubstr("loop float16[i0 < n * 2, i1 < 32, i2 < t] order(0, 2, 1): tanh"));
  expect_unchanged("layouts", graph("return %4"));
  expect_unchanged("layouts", graph("return %4, %2"), any_order());  // others read it as it is
}

// Keys that a GEMM multiplies, rotated and transposed as the model has it.
constexpr const char* kKeys = R"(%0 = input float16[n, t, 64]
%1 = input float16[n, 2, t, 32]
%2 = loop float16[b < n, h < 2, d < 32, t < t]: tanh(%0[b, t, h * 32 + d])
%3 = matmul float16[b < n, h < 2, i < t, j < t; k < 32]: %1[b, h, i, k], %2[b, h, k, j]
)";

TEST(LayoutsInAnyOrder, KeysOfAGemmAreStoredAsTheyAreRead) {
  EXPECT_THAT(after_pass("layouts", kKeys + std::string("return %3"), any_order()),
              HasSubstr("order(0, 1, 3, 2): tanh"));
  expect_unchanged("layouts", kKeys + std::string("return %3"));
  expect_unchanged("layouts", kKeys + std::string("return %3, %2"), any_order());  // an output has its own order
}

TEST(LayoutsInAnyOrder, KeysOfAGemmAndAttentionAreStoredByHead) {
  const std::string graph =
      attention(R"(%4 = matmul float16[b < n, h < 2, i < t, j < t; k < 32]: %1[b, h, i, k], %2[b, h, k, j]
return %3, %4)");
  EXPECT_THAT(after_pass("layouts", graph, any_order()), HasSubstr("order(0, 1, 3, 2): tanh"));
}

TEST(LayoutsInAnyOrder, KeysThatAGemmReadsInAnotherWayStayRowMajor) {
  // Columns are contiguous in what the loop reads.
  expect_unchanged("layouts", R"(%0 = input float16[n, 64, t]
%1 = input float16[n, 2, t, 32]
%2 = loop float16[b < n, h < 2, d < 32, t < t]: tanh(%0[b, h * 32 + d, t])
%3 = matmul float16[b < n, h < 2, i < t, j < t; k < 32]: %1[b, h, i, k], %2[b, h, k, j]
return %3)",
                   any_order());
  // A second GEMM sums over what are columns for the first.
  expect_unchanged("layouts", kKeys + std::string(R"(%4 = input float16[n, 2, 32, t]
%5 = matmul float16[b < n, h < 2, i < 32, j < 32; k < t]: %4[b, h, i, k], %2[b, h, j, k]
return %3, %5)"),
                   any_order());
}

// The residual of a convolution is a transposed view of row-major tokens: they have its order already.
TEST(LayoutsInAnyOrder, TokensThatAnEpilogueReadsTransposedStayRowMajor) {
  const auto g = parse_graph(R"(%0 = input float16[n, 64, 32]
%1 = constant float16[32, 32, 1] {...}
%2 = loop float16[n < n, t < 64, c < 32]: tanh(%0[n, t, c])
%3 = loop float16[n < n, c < 32, t < 64]: %2[n, t, c]
%4 = conv float16[n, 32, 64]: %3, %1 {}
%5 = loop float16[n < n, c < 32, t < 64]: %4[n, c, t] + %2[n, t, c]
%6 = loop float16[n < n, t < 64, c < 32]: exp(%5[n, c, t])
return %6)");
  PassState state{*g, any_order(), {}};
  pass_named("epilogues").run(state);
  pass_named("layouts").run(state);
  EXPECT_THAT(to_string(*g), HasSubstr("loop float16[i0 < n, i1 < 64, i2 < 32]: tanh"));
  EXPECT_THAT(to_string(*g), HasSubstr("conv float16[n, 32, 64] order(0, 2, 1)"));
}

// An index that is any function of one variable follows the order of what it reads.
TEST(LayoutsInAnyOrder, AResizedImageStaysChannelsLast) {
  EXPECT_THAT(after_pass("layouts", R"(%0 = input float16[n, 16, 8, 8]
%1 = constant float16[16, 16, 3, 3] {...}
%2 = conv float16[n, 16, 8, 8]: %0, %1 {pads = [1, 1, 1, 1]}
%3 = loop float16[n < n, c < 16, y < 16, x < 16]: %2[n, c, floordiv(y, 2), min(7, floordiv(x + 1, 2))]
%4 = loop float16[n < n, c < 16, y < 16, x < 16]: tanh(%3[n, c, y, x])
return %4)",
                         any_order()),
              HasSubstr("order(0, 2, 3, 1): %3[i0, i1, floordiv(i2, 2)"));
}

// A window over tokens, whose channels are contiguous: it, the window after it and their mean are channels last.
TEST(LayoutsInAnyOrder, WindowsOverContiguousChannelsAreChannelsLast) {
  constexpr const char* kGraph = R"(%0 = input float16[n, 10, 10, 40]
%1 = loop float16[n < n, c < 32, y < 8, x < 8]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c + 4])))
%2 = loop float16[n < n, c < 32, y < 6, x < 6]: float16(sum{r < 3, s < 3}(float32(%1[n, c, y + r, x + s])))
%3 = loop float32[n < n, c < 32, y < 1, x < 6]: sum{r < 6}(float32(%2[n, c, r, x]))
%4 = loop float32[n < n, c < 32]: exp(%3[n, c, 0, 0])
return %4)";
  const std::string after = after_pass("layouts", kGraph, any_order());
  EXPECT_THAT(after, HasSubstr("i3 < 8] order(0, 2, 3, 1)"));
  EXPECT_THAT(after, HasSubstr("i2 < 6, i3 < 6] order(0, 2, 3, 1)"));
  EXPECT_THAT(after, HasSubstr("i2 < 1, i3 < 6] order(0, 2, 3, 1)"));
  // Channels that are not contiguous: nothing to gain.
  expect_unchanged("layouts", R"(%0 = input float16[n, 10, 10, 64]
%1 = loop float16[n < n, c < 32, y < 8, x < 8]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, 2 * c])))
%2 = loop float16[n < n, c < 32, y < 8, x < 8]: tanh(%1[n, c, y, x])
return %2)",
                   any_order());
}

// Taps of a resized image that are held inside of it: no index is affine, but the windows overlap.
TEST(LayoutsInAnyOrder, WindowsOfAResizedImageAreChannelsLast) {
  const auto graph = [](const char* taps) {
    return fmt::format(R"(%0 = input float16[n, 64, 64, 40]
%1 = constant float32[32, 6] {{...}}
%2 = loop float32[n < n, c < 40, y < 32, x < 64]: sum{{r < {0}}}(%1[y, r] * float32(%0[n, max(0, min(63, r + int64(floor(float32(y) * 2.0)) - 2)), x, c]))
%3 = loop float32[n < n, c < 40, y < 32, x < 32]: sum{{r < {0}}}(%1[x, r] * %2[n, c, y, max(0, min(63, r + int64(floor(float32(x) * 2.0)) - 2))])
%4 = loop float16[n < n, y < 32, x < 32, c < 40]: float16(%3[n, c, y, x])
return %4)",
                       taps);
  };
  const std::string after = after_pass("layouts", graph("6"), any_order());
  EXPECT_THAT(after, HasSubstr("i2 < 32, i3 < 64] order(0, 2, 3, 1)"));
  EXPECT_THAT(after, HasSubstr("i2 < 32, i3 < 32] order(0, 2, 3, 1)"));
  expect_unchanged("layouts", graph("2"), any_order());  // two taps a result, two pixels apart: nothing is read twice
}

// What a routine reads as it lies in memory is not computed in another order for a convolution.
TEST(Layouts, AViewThatARoutineReadsStaysOne) {
  const std::string after = after_pass("layouts", R"(%0 = input float16[n, 64, 16]
%1 = constant float16[16, 16, 3, 3] {...}
%2 = loop float16[n < n, t < 64, c < 16]: tanh(%0[n, t, c])
%3 = view float16[n, 16, 8, 8]: %2
%4 = conv float16[n, 16, 8, 8]: %3, %1 {pads = [1, 1, 1, 1]}
%5 = routine "sort" float16[n, 16, 8, 8]: %3
return %4, %5)",
                                       any_order());
  EXPECT_THAT(after, HasSubstr("= view float16[n, 16, 8, 8]: %2"));
}

// A causal convolution along time, of channels that the model has transposed before and transposes back behind it.
TEST(LayoutsInAnyOrder, WindowsAlongTimeBetweenTransposesAreChannelsLast) {
  const auto graph = [](const char* index) {
    return fmt::format(R"(%0 = input float16[n, 100, 64]
%1 = constant float16[32, 4] {{...}}
%2 = loop float16[n < n, c < 32, t < 100]: tanh(%0[n, t, c])
%3 = loop float16[n < n, c < 32, t < 24]: float16(sum{{r < 4}}(float32(%2[n, c, {}]) * float32(%1[c, r])))
%4 = loop float16[n < n, t < 24, c < 32]: exp(%3[n, c, t])
return %4)",
                       index);
  };
  const std::string after = after_pass("layouts", graph("t + r"), any_order());
  EXPECT_THAT(after, HasSubstr("i2 < 100] order(0, 2, 1)"));
  EXPECT_THAT(after, HasSubstr("i2 < 24] order(0, 2, 1)"));
  EXPECT_THAT(after_pass("layouts", graph("t + 2 * r"), any_order()), HasSubstr("i2 < 24] order(0, 2, 1)"));
  EXPECT_THAT(after_pass("layouts", graph("t * 3 + r"), any_order()), HasSubstr("i2 < 24] order(0, 2, 1)"));
  expect_unchanged("layouts", graph("t * 4 + r"), any_order());  // sums of a tensor in another shape
}

// The loops between a window and the transpose behind it take over its order.
TEST(LayoutsInAnyOrder, WindowsBeforeActivationsAndATransposeAreChannelsLast) {
  const auto graph = [](const char* end) {
    return fmt::format(R"(%0 = input float16[n, 10, 10, 40]
%1 = loop float16[n < n, c < 32, y < 8, x < 8]: float16(sum{{q < 4, r < 3, s < 3}}(float32(%0[n, y + r, x + s, floordiv(c, 4) * 4 + q])))
%2 = loop float16[n < n, c < 32, y < 8, x < 8]: tanh(%1[n, c, y, x])
%3 = loop float16[n < n, y < 8, x < 8, c < 32]: {}
return %3)",
                       end);
  };
  EXPECT_THAT(after_pass("layouts", graph("exp(%2[n, c, y, x])"), any_order()), HasSubstr("order(0, 2, 3, 1)"));
  // Only the loop in between is read along its last dim.
  expect_unchanged("layouts", graph("exp(%2[n, floordiv(c, 4), y, mod(c, 4) + x])"), any_order());
}

// A transposed image that a GEMM reads along its channels is the image before the transpose.
TEST(LayoutsInAnyOrder, CopiesThatGemmsReadAlongChannelsAreViews) {
  const auto graph = [](const char* also) {
    return fmt::format(R"(%0 = input float16[n, 100, 90, 64]
%1 = constant float16[27, 64] {{...}}
%2 = loop float16[n < n, c < 64, y < 100, x < 90]: %0[n, y, x, c]
%3 = matmul float32[b < n, i < 27, j < 9000; k < 64]: %1[i, k], %2[b, k, floordiv(j, 90), mod(j, 90)]
return {})",
                       also);
  };
  EXPECT_THAT(after_pass("layouts", graph("%3"), any_order()),
              HasSubstr("%2 = view float16[n, 64, 100, 90] order(0, 2, 3, 1): %0"));
  expect_unchanged("layouts", graph("%3, %2"), any_order());  // the caller gets it in its own order
}

// Tokens of several heads, each of whole vectors, are read as images; heads of 6 elements are not.
TEST(LayoutsInAnyOrder, WindowsOverHeadsAreChannelsLast) {
  const auto graph = [](int head) {
    return fmt::format(R"(%0 = input float16[n, 4, 10, 10, {0}]
%1 = loop float16[n < n, c < {1}, y < 8, x < 8]: float16(sum{{r < 3, s < 3}}(float32(%0[n, floordiv(c, {0}), y + r, x + s, mod(c, {0})])))
%2 = loop float16[n < n, c < {1}, y < 8, x < 8]: tanh(%1[n, c, y, x])
return %2)",
                       head, 4 * head);
  };
  EXPECT_THAT(after_pass("layouts", graph(8), any_order()), HasSubstr("i3 < 8] order(0, 2, 3, 1)"));
  expect_unchanged("layouts", graph(6), any_order());
}

constexpr const char* kGate = R"(%0 = input float16[n, 8, 8, 35]
%1 = input float16[n, 32, 8, 8]
%2 = constant float16[32, 32, 1, 1] {...}
%3 = conv float16[n, 32, 8, 8]: %1, %2 {}
%4 = loop float16[n < n, c < 32, y < 8, x < 8]: %3[n, c, y, x] * %0[n, y, x, c]
%5 = loop float16[n < n, c < 32, y < 7, x < 8]: %4[n, c, y, x] + %4[n, c, y + 1, x]
return %5)";

std::string with_epilogues(const char* text, const FuseOptions& options) {
  const auto g = parse_graph(text);
  PassState state{*g, options, {}};
  pass_named("epilogues").run(state);
  pass_named("layouts").run(state);
  return to_string(*g);
}

// Part of wider tokens, read by an epilogue along its columns.
TEST(LayoutsInAnyOrder, ContiguousChannelsThatAnEpilogueReadsAreNotCopied) {
  constexpr const char* kCopy = "loop float16[i0 < n, i1 < 32, i2 < 8, i3 < 8] order(0, 2, 3, 1): %0[i0, i2, i3, i1]";
  EXPECT_THAT(with_epilogues(kGate, any_order()), HasSubstr(kCopy));
  FuseOptions o = any_order();
  o.epilogues_in_any_order = true;
  EXPECT_THAT(with_epilogues(kGate, o), Not(HasSubstr(kCopy)));
}

// A convolution whose result stays row-major, because a GEMM sums over its pixels, reads channels last as they are.
TEST(LayoutsInAnyOrder, ARowMajorConvolutionReadsChannelsLast) {
  constexpr const char* kGraph = R"(%0 = input float16[n, 8, 8, 32]
%1 = constant float16[16, 32, 1, 1] {...}
%2 = constant float16[8, 8] {...}
%3 = loop float16[n < n, c < 32, y < 8, x < 8]: tanh(%0[n, y, x, c])
%4 = conv float16[n, 16, 8, 8]: %3, %1 {}
%5 = matmul float16[n < n, c < 16, y < 8, j < 8; k < 8]: %4[n, c, y, k], %2[j, k]
return %5)";
  constexpr const char* kCopy = "loop float16[i0 < n, i1 < 32, i2 < 8, i3 < 8]: %3[i0, i1, i2, i3]";
  EXPECT_THAT(after_pass("layouts", kGraph, any_device()), HasSubstr(kCopy));
  const std::string in_any = after_pass("layouts", kGraph, any_order());
  EXPECT_THAT(in_any, HasSubstr("order(0, 2, 3, 1): tanh"));
  EXPECT_THAT(in_any, Not(HasSubstr(kCopy)));
}

FuseOptions copying_views() {
  FuseOptions o = any_device();
  o.copy_viewed_images = true;
  return o;
}

// Pairs of neighbours become a dim of the image: with channels last, that is the same memory.
TEST(Layouts, AnImageWithADimDividedIsStillAView) {
  const std::string text = after_pass("layouts", R"(%0 = input float16[n, 16, 60]
%1 = constant float16[48, 16, 5] {...}
%2 = constant float16[48, 48, 1, 1] {...}
%3 = conv float16[n, 48, 60]: %0, %1 {pads = [2, 2]}
%4 = view float16[n, 48, 30, 2]: %3
%5 = conv float16[n, 48, 30, 2]: %4, %2
return %5)",
                                      any_device());
  EXPECT_THAT(text, HasSubstr("view float16[n, 48, 30, 2] order(0, 2, 3, 1)"));
}

// The channels are what is divided: the memory is another.
TEST(Layouts, AnImageWithItsChannelsDividedIsACopy) {
  const std::string text = after_pass("layouts", R"(%0 = input float16[n, 16, 60]
%1 = constant float16[48, 16, 5] {...}
%2 = constant float16[48, 24, 1, 1] {...}
%3 = conv float16[n, 48, 60]: %0, %1 {pads = [2, 2]}
%4 = view float16[n, 24, 2, 60]: %3
%5 = conv float16[n, 48, 2, 60]: %4, %2
return %5)",
                                      any_device());
  EXPECT_THAT(text, Not(HasSubstr("view")));
}
// The pixels of a convolution's result as rows of a matrix, as in attention over an image.
TEST(LayoutsOfViewedImages, AViewThatAMatmulReadsIsACopy) {
  const std::string graph = R"(%0 = input float32[n, 8, 8, 32]
%1 = constant float32[16, 32, 3, 3] {...}
%2 = constant float32[64, 4] {...}
%3 = loop float32[n < n, c < 32, y < 8, x < 8]: tanh(%0[n, y, x, c])
%4 = conv float32[n, 16, 8, 8]: %3, %1 {pads = [1, 1, 1, 1]}
%5 = view float32[n, 16, 64]: %4
%6 = matmul float32[n < n, c < 16, j < 4; k < 64]: %5[n, c, k], %2[k, j]
return %6)";
  EXPECT_THAT(after_pass("layouts", graph, any_device()), Not(HasSubstr("conv float32[n, 16, 8, 8] order")));
  const std::string copied = after_pass("layouts", graph, copying_views());
  EXPECT_THAT(copied, HasSubstr("conv float32[n, 16, 8, 8] order(0, 2, 3, 1): %3"));
  EXPECT_THAT(copied,
              HasSubstr("%5 = loop float32[i0 < n, i1 < 16, i2 < 64]: %4[i0, i1, floordiv(i2, 8), mod(i2, 8)]"));
}

TEST(LayoutsOfViewedImages, WhatAMatmulReadsItselfAndOtherValuesStayRowMajor) {
  expect_unchanged("layouts", R"(%0 = input float32[n, 32, 8, 8]
%1 = constant float32[16, 32, 3, 3] {...}
%2 = constant float32[8, 4] {...}
%3 = constant float32[64, 4] {...}
%4 = loop float32[n < n, c < 32, y < 8, x < 8]: tanh(%0[n, c, y, x])
%5 = view float32[n, 32, 64]: %4
%6 = matmul float32[n < n, c < 32, j < 4; k < 64]: %5[n, c, k], %3[k, j]
%7 = conv float32[n, 16, 8, 8]: %4, %1 {pads = [1, 1, 1, 1]}
%8 = matmul float32[n < n, c < 16, y < 8, j < 4; k < 8]: %7[n, c, y, k], %2[k, j]
return %6, %8)",
                   copying_views());
}

}  // namespace
}  // namespace sardonyx
