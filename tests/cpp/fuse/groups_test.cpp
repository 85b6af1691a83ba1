// Grouping and scheduling: which nodes share a kernel, and the order of kernels.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {

std::vector<std::string> kernels_of(std::string_view in, const FuseOptions& options) {
  const auto g = parse_graph(in);
  const Schedule s = fuse(*g, options);
  std::vector<std::string> out;
  for (const auto* steps : {&s.init, &s.steps})
    for (const Step& step : *steps) {
      const char* kind = std::holds_alternative<LoopKernel>(step.op)   ? "loop "
                         : std::holds_alternative<TileKernel>(step.op) ? "tile "
                                                                       : "node ";
      out.push_back((steps == &s.init ? "init " : "") + (kind + step.origin));
    }
  return out;
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSoftmax = R"(%0 = input float32[n, 64]
%1 = loop float32[i < n]: max{r < 64}(%0[i, r]) @"max"
%2 = loop float32[i < n, j < 64]: exp(%0[i, j] - %1[i]) @"exp"
%3 = loop float32[i < n]: sum{r < 64}(%2[i, r]) @"sum"
%4 = loop float32[i < n, j < 64]: %2[i, j] / %3[i] @"div"
return %4)";

TEST(Groups, SoftmaxIsOneRowKernel) { EXPECT_THAT(kernels_of(kSoftmax), ElementsAre("loop max + exp + sum + div")); }

TEST(Groups, RowsAreNotSharedAcrossATranspose) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[64, 64]
%1 = loop float32[i < 64]: sum{r < 64}(%0[i, r]) @"sum"
%2 = loop float32[i < 64, j < 64]: %1[i] * %1[j] @"div"
return %2)"),
              ElementsAre("loop sum", "loop div"));
}

// Each of two sums could share a kernel with the loop that uses it, but not both: each would wait for the other's sum.
TEST(Groups, TwoKernelsDoNotWaitForEachOther) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[64, 64]
%1 = input float32[64, 64]
%2 = loop float32[i < 64]: sum{r < 64}(%0[i, r]) @"sum0"
%3 = loop float32[i < 64]: sum{r < 64}(%1[i, r]) @"sum1"
%4 = loop float32[i < 64]: %2[i] - exp(%3[63 - i]) @"use0"
%5 = loop float32[i < 64]: %3[i] - exp(%2[63 - i]) @"use1"
return %4, %5)"),
              ElementsAre("loop sum1", "loop sum0 + use0", "loop use1"));
}

// Partial results of few long rows are combined by each of the workgroups that use them along a row.
TEST(Groups, LongRowsCombineTheirParts) {
  FuseOptions gpu = any_device();
  gpu.split_reductions = true;
  const auto softmax = [](int rows) {
    return fmt::format(R"(%0 = input float32[{0}, 65536]
%1 = loop float32[i < {0}]: max{{r < 65536}}(%0[i, r]) @"max"
%2 = loop float32[i < {0}]: sum{{r < 65536}}(exp(%0[i, r] - %1[i])) @"sum"
%3 = loop float32[i < {0}, j < 65536]: exp(%0[i, j] - %1[i]) / %2[i] @"div"
return %3)",
                       rows);
  };
  EXPECT_THAT(kernels_of(softmax(8), gpu), ElementsAre("loop max + sum", "loop max + sum", "loop div"));
  gpu.long_rows = true;
  EXPECT_THAT(kernels_of(softmax(8), gpu), ElementsAre("loop max + sum", "loop max + sum + div"));
  EXPECT_THAT(kernels_of(softmax(1), gpu), ElementsAre("loop max + sum", "loop max + sum + div"));
  EXPECT_THAT(kernels_of(softmax(4096), gpu), ElementsAre("loop max + sum + div"));
}

// On a GPU, long columns are reduced side by side; the loops before and after them run along memory.
TEST(Groups, LoopsAroundLongColumnsAreKernelsOfTheirOwn) {
  FuseOptions gpu = any_device();
  gpu.split_reductions = true;
  const auto softmax = [](int tokens) {
    return fmt::format(R"(%0 = input float32[n, {0}, 64]
%1 = loop float32[b < n, t < {0}, c < 64]: exp(%0[b, t, c]) @"feeds"
%2 = loop float32[b < n, c < 64]: max{{r < {0}}}(%1[b, r, c]) @"max"
%3 = loop float32[b < n, t < {0}, c < 64]: %1[b, t, c] - %2[b, c] @"reads"
return %1, %3)",
                       tokens);
  };
  EXPECT_THAT(kernels_of(softmax(784), gpu), ElementsAre("loop feeds", "loop max", "loop reads"));
  EXPECT_THAT(kernels_of(softmax(16), gpu), ElementsAre("loop feeds + max + reads"));
  // An image of 28 x 28, as channels last: neither its rows nor its columns are long.
  const char* pixels = R"(%0 = input float32[n, 28, 28, 64]
%1 = loop float32[b < n, y < 28, x < 28, c < 64]: exp(%0[b, y, x, c]) @"feeds"
%2 = loop float32[b < n, c < 64]: max{r < 28, q < 28}(%1[b, r, q, c]) @"max"
return %1, %2)";
  EXPECT_THAT(kernels_of(pixels, gpu), ElementsAre("loop feeds", "loop max"));
}

// Results of windows that a second loop stores twice (a stack of branches): windows are a kernel that loads each
// element once, not one with a team of threads for each result.
TEST(Groups, StacksOfWindowsAreKernelsOfTheirOwn) {
  const auto stack = [](int step) {
    return fmt::format(R"(%0 = input float32[n, 64, 200]
%1 = input float32[n, 64, 50]
%2 = loop float32[b < n, c < 64, x < 50]: sum{{r < 3}}(%0[b, c, {} * x + r]) @"window"
%3 = loop float32[b < n, p < 2, c < 64, x < 50]: select(p < 1, %2[b, c, x], %1[b, c, x]) @"stack"
return %3)",
                       step);
  };
  EXPECT_THAT(kernels_of(stack(2)), ElementsAre("loop window", "loop stack"));
  EXPECT_THAT(kernels_of(stack(4)), ElementsAre("loop window + stack"));
}

// Of an image's tokens one is normalised (the class token). With its image, a workgroup would compute all the others,
// which takes longer than a launch.
TEST(Groups, MuchMoreThanIsReducedIsAKernelOfItsOwn) {
  FuseOptions gpu = any_device();
  gpu.split_reductions = true;
  const auto one_of = [](int tokens) {
    return fmt::format(R"(%0 = input float32[n, {0}, 128]
%1 = loop float32[b < n, t < {0}, c < 128]: exp(%0[b, t, c]) @"feeds"
%2 = loop float32[b < n]: sum{{c < 128}}(%1[b, 0, c]) @"sum"
%3 = loop float32[b < n, c < 128]: %1[b, 0, c] * %2[b] @"norm"
return %3)",
                       tokens);
  };
  EXPECT_THAT(kernels_of(one_of(785), gpu), ElementsAre("loop feeds", "loop sum + norm"));
  EXPECT_THAT(kernels_of(one_of(8), gpu), ElementsAre("loop feeds + sum + norm"));
}

// A part of a softmax's result, which is copied for a GEMM: rows of one length stay in registers, so it is not copied
// there.
TEST(Groups, RowsOfAnotherLengthAreKernelsOfTheirOwn) {
  FuseOptions gpu = any_device();
  gpu.split_reductions = true;
  const auto part = [](int row, int length) {
    return fmt::format(R"(%0 = input float32[n, {0}]
%1 = loop float32[i < n]: max{{r < {0}}}(%0[i, r]) @"max"
%2 = loop float32[i < n, j < {0}]: exp(%0[i, j] - %1[i]) @"exp"
%3 = loop float32[i < n, j < {1}]: %2[i, j] @"part"
return %2, %3)",
                       row, length);
  };
  EXPECT_THAT(kernels_of(part(544, 32), gpu), ElementsAre("loop max + exp", "loop part"));
  EXPECT_THAT(kernels_of(part(24, 8), gpu), ElementsAre("loop max + exp + part"));
}

// A norm that is stored transposed: one kernel for the statistics, one that reads and writes along memory.
TEST(Groups, RowsThatRunAcrossMemoryAreKernelsOfTheirOwn) {
  FuseOptions gpu = any_device();
  gpu.split_reductions = true;
  const auto norm = [](int channels, const char* result) {
    return fmt::format(R"(%0 = input float32[n, 196, {0}]
%1 = loop float32[b < n, t < 196]: sum{{r < {0}}}(%0[b, t, r]) @"mean"
%2 = loop float32{1}: %0[b, t, c] - %1[b, t] @"norm"
return %2)",
                       channels, fmt::format(fmt::runtime(result), channels));
  };
  EXPECT_THAT(kernels_of(norm(768, "[b < n, c < {0}, t < 196]"), gpu), ElementsAre("loop mean", "loop norm"));
  EXPECT_THAT(kernels_of(norm(768, "[b < n, t < 196, c < {0}]"), gpu), ElementsAre("loop mean + norm"));
  EXPECT_THAT(kernels_of(norm(16, "[b < n, c < {0}, t < 196]"), gpu), ElementsAre("loop mean + norm"));
}

TEST(Groups, SaysWhyALoopIsNotPartOfARowKernel) {
  FuseOptions options = any_device();
  std::vector<std::string> reasons;
  options.remarks = [&](const Remark& r) {
    if (r.pass == "groups") reasons.push_back(r.node + ": " + r.reason);
  };
  kernels_of(R"(%0 = input float32[64, 64]
%1 = loop float32[i < 64]: sum{r < 64}(%0[i, r]) @"sum"
%2 = loop float32[i < 64, j < 64]: %1[i] * %1[j] @"div"
return %2)",
             options);
  EXPECT_THAT(reasons, ElementsAre("div: not in the kernel of 'sum': it reads other rows than the one it writes"));
}

TEST(Groups, NoFusionIsOneKernelForEachNode) {
  FuseOptions options = any_device();
  options.disabled = true;
  EXPECT_THAT(kernels_of(kSoftmax, options), ElementsAre("loop max", "loop exp", "loop sum", "loop div"));
}

TEST(Groups, EpiloguesAreInTheirTileKernel) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
%3 = loop float32[i < n, j < 8]: max(%2[i, j], 0.0) @"relu"
return %3)"),
              ElementsAre("tile fc + relu"));
}

TEST(Groups, ConstantsAreComputedOnce) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = loop float32[i < 8, j < 16]: exp(%1[j, i]) @"weights"
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[j, k] @"fc"
return %3)"),
              ElementsAre("init loop weights", "tile fc"));
}

TEST(Schedule, SymbolsAreDefinedBeforeTheirUse) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n]
%1, %2 = routine "nonzero" int64[1, n], int64[1]: %0 @"nonzero"
bind dim m: %2 @"bind"
%3 = loop float32[i < m]: %0[%1[0, i]] @"gather"
return %3)"),
              ElementsAre("node nonzero", "node bind", "loop gather"));
}

TEST(Schedule, LoopsFromInputsToOutputsComeLast) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = loop float32[i < n, j < 16]: exp(%0[i, j]) @"copy"
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
return %2, %3)"),
              ElementsAre("tile fc", "loop copy"));
}

TEST(Schedule, NestedGraphsAreFused) {
  const auto g = parse_graph(R"(%0 = input float32[n]
%1 = input int64[1]
bind data c: %1
%4 = if c != 0 reads %0 then {
  %2 = loop float32[i < n]: exp(%0[i]) @"exp"
  %3 = loop float32[i < n]: sin(%2[i]) @"sin"
  return %3
} else {
  return %0
} gives float32[n]
return %4)");
  const Schedule s = fuse(*g, any_device());
  const auto& step = std::get<NodeStep>(s.steps.back().op);
  ASSERT_EQ(step.bodies.size(), 2u);
  ASSERT_EQ(step.bodies[0]->steps.size(), 1u);
  EXPECT_EQ(step.bodies[0]->steps[0].origin, "exp + sin");
}

}  // namespace
}  // namespace sardonyx
