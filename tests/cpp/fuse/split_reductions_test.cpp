// The pass split_reductions, and which kernels what it makes becomes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions splitting() {
  FuseOptions o = any_device();
  o.split_reductions = true;
  return o;
}

TEST(SplitReductions, OneLongSum) {
  expect_pass("split_reductions", R"(%0 = input float32[65536]
%1 = loop float32[]: sum{r < 65536}(%0[r])
return %1)",
              R"(%0 = input float32[65536]
%1 = loop float32[i < 16]: sum{r < 4096}(%0[4096 * i + r])
%2 = loop float32[]: sum{r < 16}(%1[r])
return %2)",
              splitting());
}

TEST(SplitReductions, ShortSumsStay) {
  expect_unchanged("split_reductions", R"(%0 = input float32[1000, 64]
%1 = loop float32[i < 1000]: sum{r < 64}(%0[i, r])
return %1)",
                   splitting());
}

// Softmax: parts have maxima of their own, with which their sums are made before the row's maximum is known.
TEST(SplitReductions, SumsOfExponentialsDoNotWaitForTheMaximum) {
  expect_pass("split_reductions", R"(%0 = input float32[4, 65536]
%1 = loop float32[i < 4]: max{r < 65536}(%0[i, r])
%2 = loop float32[i < 4]: sum{r < 65536}(exp(%0[i, r] - %1[i]))
return %2)",
              R"(%0 = input float32[4, 65536]
%1 = loop float32[i0 < 4, i1 < 16]: max{r0 < 4096}(%0[i0, i1 * 4096 + r0])
%2 = loop float32[i0 < 4]: max{r0 < 16}(%1[i0, r0])
%3 = loop float32[i0 < 4, i1 < 16]: sum{r0 < 4096}(exp(%0[i0, i1 * 4096 + r0] - min(max(%1[i0, i1], -3.4028235e+38), 3.4028235e+38)))
%4 = loop float32[i0 < 4]: sum{r0 < 16}(%3[i0, r0] * exp(min(max(%1[i0, r0], -3.4028235e+38), 3.4028235e+38) - %2[i0]))
return %4)",
              splitting());
}

// The channels of a group: each is a column, and the parts' means are combined with the squares.
TEST(SplitReductions, VariancesOfGroupsOfChannelsReadTheImageOnce) {
  expect_pass("split_reductions", R"(%0 = input float32[1, 1024, 64]
%1 = loop float32[n < 1, g < 8]: sum{c < 8, r < 1024}(%0[n, r, 8 * g + c]) / 8192.0
%2 = loop float32[n < 1, g < 8]: sum{c < 8, r < 1024}((%0[n, r, 8 * g + c] - %1[n, g]) * (%0[n, r, 8 * g + c] - %1[n, g]))
return %2)",
              R"(%0 = input float32[1, 1024, 64]
%1 = loop float32[i0 < 2, i1 < 1, i2 < 8, i3 < 8]: sum{r0 < 512}(%0[i1, i0 * 512 + r0, i2 * 8 + i3])
%2 = loop float32[i0 < 1, i1 < 8]: sum{r0 < 2, r1 < 8}(%1[r0, i0, i1, r1]) / 8192.0
%3 = loop float32[i0 < 2, i1 < 1, i2 < 8, i3 < 8]: sum{r0 < 512}((t0 = %0[i1, i0 * 512 + r0, i2 * 8 + i3] - %1[i0, i1, i2, i3] / 512.0) * t0)
%4 = loop float32[i0 < 1, i1 < 8]: sum{r0 < 2, r1 < 8}(%3[r0, i0, i1, r1] + 512.0 * ((%1[r0, i0, i1, r1] / 512.0 - %2[i0, i1]) * (%1[r0, i0, i1, r1] / 512.0 - %2[i0, i1])))
return %4)",
              splitting());
}

// A group's channels and an image of any size as one variable, as a Reshape before a norm makes them: each channel is a
// column, whose sum divides no number of a channel. The remainder by all channels goes with the quotient in it.
TEST(SplitReductions, GroupsOfChannelsOfAnImageOfAnySizeHaveVariablesForEachDim) {
  expect_pass("split_reductions", R"(%0 = input float32[n, h, w, 16]
%1 = loop float32[n < n, g < 4]: sum{r < h * w * 4}(%0[n, mod(floordiv(r, w), h), mod(r, w), mod(4 * g + floordiv(r, h * w), 16)])
return %1)",
              R"(%0 = input float32[n, h, w, 16]
%1 = loop float32[i0 < 1, i1 < n, i2 < 4, i3 < 4]: sum{r0 < h * w}(%0[i1, i0 * h + floordiv(r0, w), mod(r0, w), i2 * 4 + i3])
%2 = loop float32[i0 < n, i1 < 4]: sum{r0 < 4}(%1[0, i0, i1, r0])
return %2)",
              splitting());
}

TEST(SplitReductions, DifferencesFromWhatIsNoReductionArePlainSums) {
  expect_pass("split_reductions", R"(%0 = input float32[65536]
%1 = input float32[1]
%2 = loop float32[]: sum{r < 65536}((%0[r] - %1[0]) * (%0[r] - %1[0]))
return %2)",
              R"(%0 = input float32[65536]
%1 = input float32[1]
%2 = loop float32[i0 < 16]: sum{r0 < 4096}((%0[i0 * 4096 + r0] - %1[0]) * (%0[i0 * 4096 + r0] - %1[0]))
%3 = loop float32[]: sum{r0 < 16}(%2[r0])
return %3)",
              splitting());
}

// Sums over a batch and its images, of each channel: a row for each image.
TEST(SplitReductions, LongRunsAreRows) {
  expect_pass("split_reductions", R"(%0 = input float32[8, 32, 3136]
%1 = loop float32[c < 32]: sum{n < 8, r < 3136}(%0[n, c, r])
return %1)",
              R"(%0 = input float32[8, 32, 3136]
%1 = loop float32[i0 < 32, i1 < 8, i2 < 1]: sum{r0 < 3136}(%0[i1, i0, i2 * 3136 + r0])
%2 = loop float32[i0 < 32]: sum{r0 < 8}(%1[i0, r0, 0])
return %2)",
              splitting());
}

TEST(SplitReductions, DimsThatAViewMergesAreDivided) {
  expect_pass("split_reductions", R"(%0 = input float32[1024, 32, 64]
%1 = loop float32[c < 32]: sum{r < 65536}(%0[floordiv(r, 64), c, mod(r, 64)])
return %1)",
              R"(%0 = input float32[1024, 32, 64]
%1 = loop float32[i0 < 2, i1 < 32, i2 < 64]: sum{r0 < 512}(%0[i0 * 512 + r0, i1, i2])
%2 = loop float32[i0 < 32]: sum{r0 < 2, r1 < 64}(%1[r0, i0, r1])
return %2)",
              splitting());
}

TEST(SplitReductions, ShortRunsStay) {
  expect_unchanged("split_reductions", R"(%0 = input float32[32, 64, 400]
%1 = loop float32[c < 64]: sum{n < 32, r < 400}(%0[n, c, r])
return %1)",
                   splitting());
}

TEST(SplitReductions, WindowsStay) {
  expect_unchanged("split_reductions", R"(%0 = input float32[100, 100, 64]
%1 = loop float32[y < 64, x < 64]: sum{i < 5, j < 5, c < 64}(%0[y + i, x + j, c])
return %1)",
                   splitting());
}

TEST(SplitReductions, RemaindersOfSumsOfVariablesStay) {
  expect_unchanged("split_reductions", R"(%0 = input float32[1024, 32, 64]
%1 = loop float32[c < 32]: sum{r < 65536}(%0[floordiv(r, 64), c, mod(r + c, 64)])
return %1)",
                   splitting());
}

TEST(SplitReductions, LongOnesThatStayHaveAReason) {
  EXPECT_THAT(remarks_of("split_reductions", R"(%0 = input float32[1024, 32, 64]
%1 = input float32[4096, 16384]
%2 = loop float32[c < 32]: sum{r < 65536}(%0[floordiv(r, 64), c, mod(r + c, 64)]) @"rotated"
%3 = loop float32[i < 4096]: sum{r < 16384}(%1[i, r]) @"rows"
%4 = loop float32[i < 4096]: sum{r < 400}(%1[i, r]) @"short"
return %2, %3, %4)",
                         splitting()),
              ElementsAre("rotated: it does not go through memory in order",
                          "rows: there are enough results, or parts would be too short"));
}

// An image's norm over groups of channels: partial sums and squares, what becomes of them, and the image itself.
TEST(SplitReductions, GroupNormIsThreeKernels) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[1, 16384, 64]
%1 = loop float32[n < 1, g < 8]: sum{c < 8, r < 16384}(%0[n, r, 8 * g + c]) / 131072.0 @"mean"
%2 = loop float32[n < 1, g < 8]: sum{c < 8, r < 16384}((%0[n, r, 8 * g + c] - %1[n, g]) * (%0[n, r, 8 * g + c] - %1[n, g])) @"variance"
%3 = loop float32[n < 1, r < 16384, g < 8, c < 8]: (%0[n, r, 8 * g + c] - %1[n, g]) / sqrt(%2[n, g]) @"norm"
return %3)",
                         splitting()),
              ElementsAre("loop mean + variance", "loop mean + variance", "loop norm"));
}

// A row in one workgroup leaves a device idle if there are few rows.
TEST(SplitReductions, FewLongRowsAreNotPartOfTheirSumsKernel) {
  const auto text = [](int rows) {
    return fmt::format(R"(%0 = input float32[{0}, 65536]
%1 = loop float32[i < {0}]: sum{{r < 65536}}(%0[i, r]) @"sum"
%2 = loop float32[i < {0}, j < 65536]: %0[i, j] / %1[i] @"div"
return %2)",
                       rows);
  };
  EXPECT_THAT(kernels_of(text(64), splitting()), ElementsAre("loop sum", "loop sum", "loop div"));
  EXPECT_THAT(kernels_of(text(2000), splitting()), ElementsAre("loop sum + div"));
  EXPECT_THAT(kernels_of(text(64)), ElementsAre("loop sum + div"));  // the host's cores take a row each
}

// A batch of unknown size is taken to be small.
TEST(SplitReductions, RowsOfABatchOfUnknownSize) {
  expect_pass("split_reductions", R"(%0 = input float32[batch, 65536]
%1 = loop float32[i < batch]: sum{r < 65536}(%0[i, r])
return %1)",
              R"(%0 = input float32[batch, 65536]
%1 = loop float32[i < batch, p < 16]: sum{r < 4096}(%0[i, 4096 * p + r])
%2 = loop float32[i < batch]: sum{p < 16}(%1[i, p])
return %2)",
              splitting());
  expect_unchanged("split_reductions", R"(%0 = input float32[batch, 4000, 65536]
%1 = loop float32[i < batch, j < 4000]: sum{r < 65536}(%0[i, j, r])
return %1)",
                   splitting());
  EXPECT_THAT(kernels_of(R"(%0 = input float32[batch, 65536]
%1 = loop float32[i < batch]: sum{r < 65536}(%0[i, r]) @"sum"
%2 = loop float32[i < batch, j < 65536]: %0[i, j] / %1[i] @"div"
return %2)",
                         splitting()),
              ElementsAre("loop sum", "loop sum", "loop div"));
}

TEST(SplitReductions, ColumnsOfABatchOfUnknownSize) {
  expect_pass("split_reductions", R"(%0 = input float32[batch, 16384, 32]
%1 = loop float32[n < batch, c < 32]: max{r < 16384}(%0[n, r, c])
return %1)",
              R"(%0 = input float32[batch, 16384, 32]
%1 = loop float32[p < 16, n < batch, c < 32]: max{r < 1024}(%0[n, 1024 * p + r, c])
%2 = loop float32[n < batch, c < 32]: max{p < 16}(%1[p, n, c])
return %2)",
              splitting());
  expect_unchanged("split_reductions", R"(%0 = input float32[batch, length, 32]
%1 = loop float32[n < batch, c < 32]: max{r < length}(%0[n, r, c])
return %1)",
                   splitting());
}

// What reads results of long sums across memory runs along memory itself.
TEST(SplitReductions, LongColumnsAreReducedSideBySide) {
  const auto text = [](int length) {
    return fmt::format(R"(%0 = input float32[8, {0}, 256]
%1 = loop float32[n < 8, c < 256]: max{{r < {0}}}(%0[n, r, c]) @"max"
%2 = loop float32[n < 8, r < {0}, c < 256]: %0[n, r, c] - %1[n, c] @"sub"
return %2)",
                       length);
  };
  EXPECT_THAT(kernels_of(text(200), splitting()), ElementsAre("loop max", "loop sub"));
  EXPECT_THAT(kernels_of(text(16), splitting()), ElementsAre("loop max + sub"));
}

// The statistics of an image whose channels are last, which the model reads with channels first.
TEST(SplitReductions, WholeSumsReadMemoryInItsOrder) {
  const std::string out = after_pass("split_reductions", R"(%0 = input float32[8, 4, 4, 32]
%1 = loop float32[n < 8, c < 32, y < 4, x < 4] order(0, 2, 3, 1): tanh(%0[n, y, x, c])
%2 = loop float32[n < 8]: sum{r < 512}(%1[n, floordiv(r, 16), mod(floordiv(r, 4), 4), mod(r, 4)])
return %2)",
                                     splitting());
  EXPECT_THAT(out,
              testing::HasSubstr("sum{r0 < 512}(%1[i0, mod(r0, 32), floordiv(r0, 128), mod(floordiv(r0, 32), 4)])"));
}

// Few rows leave most of a card idle.
TEST(SplitReductions, VeryFewRowsAreSplitSooner) {
  const auto nodes = [](int rows) {
    const std::string out = after_pass("split_reductions",
                                       fmt::format(R"(%0 = input float32[{0}, 20480]
%1 = loop float32[i < {0}]: sum{{r < 20480}}(%0[i, r])
return %1)",
                                                   rows),
                                       splitting());
    return std::count(out.begin(), out.end(), '\n');
  };
  EXPECT_GT(nodes(8), nodes(64));
}

FuseOptions on_cpu() {
  FuseOptions o = splitting();
  o.few_threads = true;
  return o;
}

// A normalised image whose channels are last is computed along memory, not image by image of a channel.
TEST(SplitReductionsOfFewThreads, RowsAcrossMemoryAreKernelsOfTheirOwn) {
  const auto text = [](int length, const char* image) {
    return fmt::format(R"(%0 = input float32[16, n, 64]
%1 = input float32[n, {0}]
%2 = loop float32[n < n, c < 64]: sum{{p < 16}}(%0[p, n, c]) @"mean"
%3 = loop float32[n < n, c < 64, r < {1}] order(0, 2, 1): %1[n, {2}] - %2[n, c] @"sub"
return %3)",
                       image, length, std::string(image).ends_with("64") ? "r, c" : "c, r");
  };
  // The last one copies the result, which is row-major as an output.
  EXPECT_THAT(kernels_of(text(4096, "4096, 64"), on_cpu()), ElementsAre("loop mean", "loop sub", "loop sub"));
  EXPECT_THAT(kernels_of(text(16, "16, 64"), on_cpu()), ElementsAre("loop mean + sub"));
  EXPECT_THAT(kernels_of(text(96, "64, 96"), on_cpu()), ElementsAre("loop mean + sub"));  // read along rows
}

// On a CPU the channels of a group, which are fewer than a vector, are summed as columns.
TEST(SplitReductionsOfFewThreads, ShortRunsBecomeColumns) {
  expect_pass("split_reductions", R"(%0 = input float32[n, 14, 14, 64]
%1 = loop float32[n < n, g < 8]: sum{r < 1568}(%0[n, mod(floordiv(r, 14), 14), mod(r, 14), g * 8 + floordiv(r, 196)])
return %1)",
              R"(%0 = input float32[n, 14, 14, 64]
%1 = loop float32[p < 1, n < n, g < 8, c < 8]: sum{r < 196}(%0[n, p * 14 + floordiv(r, 14), mod(r, 14), g * 8 + c])
%2 = loop float32[n < n, g < 8]: sum{p < 1, c < 8}(%1[p, n, g, c])
return %2)",
              on_cpu());
}

// Vectors are read along memory; sums of rows are only divided if there are few of many elements.
TEST(SplitReductionsOfFewThreads, LongRunsStayWhole) {
  expect_pass("split_reductions", R"(%0 = input float32[n, 14, 14, 256]
%1 = loop float32[n < n, g < 4]: sum{r < 12544}(%0[n, mod(floordiv(r, 14), 14), mod(r, 14), g * 64 + floordiv(r, 196)])
return %1)",
              R"(%0 = input float32[n, 14, 14, 256]
%1 = loop float32[n < n, g < 4]: sum{y < 14, x < 14, c < 64}(%0[n, y, x, g * 64 + c])
return %1)",
              on_cpu());
  expect_unchanged("split_reductions", R"(%0 = input float32[n, 32768]
%1 = loop float32[n < n]: sum{r < 32768}(%0[n, r])
return %1)",
                   on_cpu());
  expect_pass("split_reductions", R"(%0 = input float32[131072]
%1 = loop float32[i < 1]: sum{r < 131072}(%0[r])
return %1)",
              R"(%0 = input float32[131072]
%1 = loop float32[p < 8]: sum{r < 16384}(%0[p * 16384 + r])
%2 = loop float32[i < 1]: sum{p < 8}(%1[p])
return %2)",
              on_cpu());
  expect_unchanged("split_reductions", R"(%0 = input float32[128, 131072]
%1 = loop float32[i < 128]: sum{r < 131072}(%0[i, r])
return %1)",
                   on_cpu());
}

// A large image with few channels has too few columns for all threads.
TEST(SplitReductionsOfFewThreads, FewColumnsAreDivided) {
  const auto text = [](int rows, int columns) {
    return fmt::format(R"(%0 = input float32[{0}, {1}]
%1 = loop float32[c < {1}]: sum{{r < {0}}}(%0[r, c])
return %1)",
                       rows, columns);
  };
  expect_pass("split_reductions", text(16384, 32), R"(%0 = input float32[16384, 32]
%1 = loop float32[p < 32, c < 32]: sum{r < 512}(%0[p * 512 + r, c])
%2 = loop float32[c < 32]: sum{p < 32}(%1[p, c])
return %2)",
              on_cpu());
  expect_unchanged("split_reductions", text(49, 1024), on_cpu());
  expect_unchanged("split_reductions", text(16384, 16384), on_cpu());
}

}  // namespace
}  // namespace sardonyx
