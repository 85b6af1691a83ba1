// Passes that remove, merge and inline nodes: remove_dead, merge_equal, inline_loops, trim_rows, shrink_repeats.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(RemoveDead, NodesThatNothingNeeds) {
  expect_pass("remove_dead", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
%2 = loop float32[i < n]: sin(%1[i])
return %1)",
              R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
return %1)");
}

TEST(RemoveDead, ChecksAndBindsOfUsedSymbolsStay) {
  expect_unchanged("remove_dead", R"(%0 = input float32[n]
%1 = input int64[2]
bind dim m, dim unused: %1
check n != 1 "n is 1"
%2 = loop float32[i < m]: %0[0]
return %2)");
}

TEST(RemoveDead, BindsOfUnusedSymbolsGo) {
  expect_pass("remove_dead", R"(%0 = input int64[1]
bind dim m: %0
return %0)",
              R"(%0 = input int64[1]
return %0)");
}

// Samples of an image for each channel of a head, which a GEMM reads with all channels side by side: neighbouring
// channels are neighbours in memory, neighbouring places are not.
constexpr const char* kSamples = R"(%0 = input float16[n, 10, 16]
%1 = input int64[n, 2, 64, 9]
%2 = loop float32[g < n * 2, c < 8, p < 64]: sum{r < 9}(float32(%0[floordiv(g, 2), %1[floordiv(g, 2), mod(g, 2), p, r], mod(g, 2) * 8 + c]))
%3 = loop float16[b < n, p < 64, c < 16]: float16(%2[b * 2 + floordiv(c, 8), mod(c, 8), p])
)";

TEST(InlineLoops, ShortSumsInTheOrderInWhichTheyAreRead) {
  expect_pass("inline_loops", std::string(kSamples) + "return %3", R"(%0 = input float16[n, 10, 16]
%1 = input int64[n, 2, 64, 9]
%2 = loop float16[b < n, p < 64, c < 16]: float16(sum{r < 9}(float32(%0[b, %1[b, floordiv(c, 8), p, r], c])))
return %2)");
  // Another reader would compute them again.
  expect_unchanged("inline_loops", std::string(kSamples) + "return %2, %3");
}

TEST(MergeEqual, LoopsOverDifferentVariables) {
  expect_pass("merge_equal", R"(%0 = input float32[n, 4]
%1 = loop float32[i < n]: sum{r < 4}(%0[i, r])
%2 = loop float32[j < n]: sum{s < 4}(%0[j, s])
%3 = loop float32[i < n]: %1[i] * %2[i]
return %3)",
              R"(%0 = input float32[n, 4]
%1 = loop float32[i < n]: sum{r < 4}(%0[i, r])
%2 = loop float32[i < n]: %1[i] * %1[i]
return %2)");
}

TEST(MergeEqual, OriginsAreJoined) {
  expect_pass("merge_equal", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i]) @"a"
%2 = loop float32[i < n]: exp(%0[i]) @"b"
return %1, %2)",
              R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i]) @"a + b"
return %1, %1)");
}

TEST(MergeEqual, DifferentOnesStay) {
  expect_unchanged("merge_equal", R"(%0 = input float32[n, n]
%1 = loop float32[i < n]: sum{r < n}(%0[i, r])
%2 = loop float32[i < n]: sum{r < n}(%0[r, i])
%3 = matmul float32[i < n, j < n; k < n]: %0[i, k], %0[k, j]
%4 = matmul float32[i < n, j < n; k < n]: %0[i, k], %0[j, k]
return %1, %2, %3, %4)");
}

TEST(MergeEqual, ValuesOfNestedGraphsStay) {
  expect_unchanged("merge_equal", R"(%0 = input float32[n]
%1 = input int64[1]
bind data c: %1
%2 = loop float32[i < n]: exp(%0[i])
%3 = loop float32[i < n]: exp(%0[i])
%4 = if c != 0 reads %3 then { return %3 } else { return %3 } gives float32[n]
return %2, %4)");
}

TEST(InlineLoops, ChainsOfLoopsAreOne) {
  expect_pass("inline_loops", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
%2 = loop float32[i < n]: sin(%1[i])
return %2)",
              R"(%0 = input float32[n]
%1 = loop float32[i < n]: sin(exp(%0[i]))
return %1)");
}

TEST(InlineLoops, TransposesAreIndices) {
  expect_pass("inline_loops", R"(%0 = input float32[n, 4]
%1 = loop float32[i < 4, j < n]: %0[j, i]
%2 = loop float32[i < n]: sum{r < 4}(%1[r, i])
return %2)",
              R"(%0 = input float32[n, 4]
%1 = loop float32[i < n]: sum{r < 4}(%0[i, r])
return %1)");
}

TEST(InlineLoops, ReshapesAreIndices) {
  expect_pass("inline_loops", R"(%0 = input float32[6, 4]
%1 = view float32[24]: %0
%2 = loop float32[i < 4]: exp(%1[i])
return %2)",
              R"(%0 = input float32[6, 4]
%1 = loop float32[i < 4]: exp(%0[0, i])
return %1)");
}

TEST(InlineLoops, OperandsOfProductsAreReadTransposed) {
  expect_pass("inline_loops", R"(%0 = input float32[n, 16]
%1 = input float32[8, 16]
%2 = loop float32[i < 16, j < 8]: %1[j, i]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)",
              R"(%0 = input float32[n, 16]
%1 = input float32[8, 16]
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[j, k]
return %2)");
}

// On the host, which packs them itself. Bytes are packed by a step of their own; a left operand is not packed.
TEST(InlineLoops, ConstantRightOperandsAreReadAsTheyAreStored) {
  FuseOptions options = any_device();
  options.transposed_constants = true;
  expect_pass("inline_loops", R"(%0 = input float32[n, 16]
%1 = constant float32[8, 16] {...}
%2 = loop float32[i < 16, j < 8]: %1[j, i]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)",
              R"(%0 = input float32[n, 16]
%1 = constant float32[8, 16] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[j, k]
return %2)",
              options);
  const std::string left = R"(%0 = input float32[16, n]
%1 = constant float32[16, 8] {...}
%2 = loop float32[i < 8, j < 16]: %1[j, i]
%3 = matmul float32[i < 8, j < n; k < 16]: %2[i, k], %0[k, j]
return %3)";
  const std::string bytes = R"(%0 = input uint8[n, 16]
%1 = constant int8[8, 16] {...}
%2 = loop int8[i < 16, j < 8]: %1[j, i]
%3 = matmul int32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)";
  // A part of a matrix.
  const std::string part = R"(%0 = input float32[n, 16]
%1 = constant float32[9, 16] {...}
%2 = loop float32[i < 16, j < 8]: %1[j, i]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)";
  for (const std::string& graph : {left, bytes, part}) expect_unchanged("inline_loops", graph, options);
  expect_unchanged("inline_loops", R"(%0 = input float32[n, 16]
%1 = constant float32[8, 16] {...}
%2 = loop float32[i < 16, j < 8]: %1[j, i]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)");
}

TEST(InlineLoops, ReductionsAreNotRepeated) {
  const char* graph = R"(%0 = input float32[n, 4]
%1 = loop float32[i < n]: sum{r < 4}(%0[i, r]) @"sum"
%2 = loop float32[i < n, j < 4]: %0[i, j] / %1[i] @"div"
return %2)";
  expect_unchanged("inline_loops", graph);
  EXPECT_THAT(remarks_of("inline_loops", graph), ElementsAre("sum: it is a reduction, which would be repeated"));
}

// Every mention of the same element is one evaluation.
TEST(InlineLoops, EqualLoadsAreOneUse) {
  expect_pass("inline_loops", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
%2 = loop float32[i < n]: %1[i] * sigmoid(%1[i]) + sin(%1[i])
return %2)",
              R"(%0 = input float32[n]
%1 = loop float32[i < n]: (t0 = exp(%0[i])) * sigmoid(t0) + sin(t0)
return %1)");
}

TEST(InlineLoops, LoadsOfDifferentElementsAreSeveralUses) {
  expect_unchanged("inline_loops", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
%2 = loop float32[i < n]: %1[i] * sigmoid(%1[n - i - 1]) + sin(%1[i])
return %2)");
}

TEST(InlineLoops, ExpensiveValuesAreNotRecomputed) {
  const char* graph = R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i]) @"exp"
%2 = loop float32[i < n, j < 100]: %1[i] * float32(j) @"outer"
return %2)";
  expect_unchanged("inline_loops", graph);
  EXPECT_THAT(remarks_of("inline_loops", graph), ElementsAre("exp: recomputing it costs more than storing it"));
}

std::size_t loops_after(std::string_view pass, std::string_view in, const FuseOptions& options) {
  const std::string out = after_pass(pass, in, options);
  std::size_t n = 0;
  for (std::size_t at = 0; (at = out.find("= loop", at)) != std::string::npos; ++at) ++n;
  return n;
}

// On a GPU, what takes less time to compute wherever it is read than to store and to load.
TEST(InlineLoops, CheapValuesAreRecomputedOnGpus) {
  FuseOptions gpu = any_device();
  gpu.operations_per_byte = 7;
  const auto graph = [](int columns, const char* value) {
    return fmt::format(R"(%0 = input float32[n, 3]
%1 = loop float32[i < n, k < 3]: {}
%2 = loop float32[i < n, j < {}, k < 3]: %1[i, k] + float32(j)
return %2)",
                       value, columns);
  };
  constexpr const char* kFive = "sqrt(sqrt(sqrt(sqrt(sqrt(%0[i, k])))))";
  expect_unchanged("inline_loops", graph(4, kFive));
  EXPECT_EQ(loops_after("inline_loops", graph(4, kFive), gpu), 1u);
  EXPECT_EQ(loops_after("inline_loops", graph(100, kFive), gpu), 2u);
  EXPECT_EQ(loops_after("inline_loops", graph(8, "sin(%0[i, k])"), gpu), 2u);
  // Each of the three is another element.
  EXPECT_EQ(loops_after("inline_loops", R"(%0 = input float32[n, 3]
%1 = loop float32[i < n, k < 3]: sqrt(sqrt(sqrt(sqrt(sqrt(%0[i, k])))))
%2 = loop float32[i < n]: %1[i, 0] * %1[i, 1] * %1[i, 2]
return %2)",
                        gpu),
            1u);
  // What the terms of a sum share is computed once for all of them.
  for (const char* index : {"", "r"})
    EXPECT_EQ(loops_after("inline_loops",
                          fmt::format(R"(%0 = input float32[n]
%1 = input float32[8]
%2 = loop float32[i < n, r < 8]: {}(%0[i]) * {} * %1[r]
%3 = loop float32[i < n, j < 2]: sum{{r < 8}}(%2[i, r] * float32(j + r))
return %3)",
                                      "sin", *index ? "sin(sin(sin(float32(r) * %0[i])))" : "cos(%0[i])"),
                          gpu),
              *index ? 2u : 1u);
  // Windows overlap, and what two loops read is stored anyway.
  EXPECT_EQ(loops_after("inline_loops", R"(%0 = input float32[100]
%1 = loop float32[i < 100]: sqrt(sqrt(sqrt(sqrt(sqrt(%0[i])))))
%2 = loop float32[i < 98]: sum{r < 3}(%1[i + r])
return %2)",
                        gpu),
            2u);
  EXPECT_EQ(loops_after("inline_loops", R"(%0 = input float32[n]
%1 = loop float32[i < n]: sqrt(sqrt(sqrt(sqrt(sqrt(%0[i])))))
%2 = loop float32[i < n, j < 4]: %1[i] + float32(j)
%3 = loop float32[i < n, j < 4]: %1[i] * float32(j)
return %2, %3)",
                        gpu),
            3u);
}

// Decays of each channel are computed while the kernel that multiplies by them waits for memory.
TEST(InlineLoops, FewValuesNeedNoLaunchOfTheirOwn) {
  FuseOptions gpu = any_device();
  gpu.operations_per_byte = 7;
  const auto graph = [](int columns, const char* value) {
    return fmt::format(R"(%0 = input float32[n]
%1 = input float32[n, {0}]
%2 = input float32[n, {0}]
%3 = loop float32[i < n]: {1}
%4 = loop float32[i < n, j < {0}]: %1[i, j] * %3[i] + %2[i, j]
return %4)",
                       columns, value);
  };
  EXPECT_EQ(loops_after("inline_loops", graph(128, "exp(%0[i])"), gpu), 1u);
  EXPECT_EQ(loops_after("inline_loops", graph(16, "exp(%0[i])"), gpu), 2u);
  const char* kMany = "exp(exp(exp(exp(exp(exp(exp(exp(exp(%0[i])))))))))";
  EXPECT_EQ(loops_after("inline_loops", graph(128, kMany), gpu), 2u);
  expect_unchanged("inline_loops", graph(128, "exp(%0[i])"));
}

// A depthwise convolution with its residual, which two others read: the convolution's kernel stores the sum.
TEST(InlineLoops, ResidualsOfSumsAreStoredOnce) {
  const std::string graph = R"(%0 = input float16[n, 64, 32]
%1 = constant float16[32, 5] {...}
%2 = loop float16[b < n, t < 60, c < 32]: float16(sum{r < 5}(float32(%0[b, t + r, c] * %1[c, r])))
%3 = loop float16[b < n, t < 60, c < 32]: %2[b, t, c] + %0[b, t + 2, c]
%4 = loop float16[b < n, c < 32, t < 60]: %3[b, t, c] * %3[b, t, c]
%5 = loop float16[b < n, t < 60, c < 32]: exp(%3[b, t, c])
)";
  expect_unchanged("inline_loops", graph + "return %4, %5");
  EXPECT_THAT(after_pass("inline_loops", graph + "return %2, %4, %5", any_device()),
              testing::Not(testing::HasSubstr("%5 = ")));  // the sums are stored anyway
}

// Features of points for each of their neighbours are computed once for each point.
TEST(InlineLoops, WhatIsGatheredSeveralTimesIsStored) {
  const auto text = [](int neighbours, const char* feature) {
    return fmt::format(R"(%0 = input float32[n, 32]
%1 = input int64[n, {0}]
%2 = loop float32[i < n, c < 32]: {1}
%3 = loop float32[i < n, k < {0}, c < 32]: %2[%1[i, k], c]
return %3)",
                       neighbours, feature);
  };
  const auto stays = testing::HasSubstr("%3 = ");
  expect_unchanged("inline_loops", text(16, "exp(%0[i, c] * %0[i, c]) + 1.0"));
  EXPECT_THAT(after_pass("inline_loops", text(1, "exp(%0[i, c] * %0[i, c]) + 1.0"), any_device()), testing::Not(stays));
  // Cheap ones too, if there are many neighbours.
  expect_unchanged("inline_loops", text(16, "%0[i, c] + 1.0"));
  EXPECT_THAT(after_pass("inline_loops", text(2, "%0[i, c] + 1.0"), any_device()), testing::Not(stays));
}

// A mask of scores, whose sums and products with values are needed: the product of queries and keys stores it.
TEST(InlineLoops, MasksThatAProductReadsAreStored) {
  expect_unchanged("inline_loops", R"(%0 = input float16[n, 64]
%1 = input float16[64, 64]
%2 = matmul float16[i < n, j < 64; k < 64]: %0[i, k], %1[k, j]
%3 = loop float16[i < n, j < 64]: select(j <= i, %2[i, j], 0.0:float16)
%4 = matmul float16[i < n, j < 64; k < 64]: %3[i, k], %1[k, j]
%5 = loop float32[i < n]: sum{r < 64}(float32(%3[i, r]))
return %4, %5)");
}

// A loop that is too large for its reader stores what the reader would convert it to, and a product reads that.
TEST(InlineLoops, LargeExpressionsAreStoredNarrow) {
  std::string sum = "exp(%0[j, i])";
  for (int k = 1; k < 150; ++k) sum += fmt::format(" + exp(%0[j, i] * {}.0)", k + 1);
  const auto text = [&](const std::string& returned) {
    return fmt::format(R"(%0 = input float32[n, 8]
%1 = input float16[8, 16]
%2 = loop float32[i < 8, j < n]: {}
%3 = loop float16[i < n, j < 8]: float16(%2[j, i])
%4 = matmul float16[i < n, j < 16; k < 8]: %3[i, k], %1[k, j]
return {})",
                       sum, returned);
  };
  const std::string out = after_pass("inline_loops", text("%4"), any_device());
  EXPECT_THAT(out, testing::HasSubstr("%2 = loop float16[i0 < 8, i1 < n]: float16("));
  EXPECT_THAT(out, testing::HasSubstr("%3 = matmul float16[i0 < n, i1 < 16; i2 < 8]: %2[i2, i0], %1[i2, i1]"));
  expect_unchanged("inline_loops", text("%2, %4"));
}

TEST(InlineLoops, OutputsAreStored) {
  const char* graph = R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i]) @"exp"
%2 = loop float32[i < n]: sin(%1[i])
return %1, %2)";
  expect_unchanged("inline_loops", graph);
  EXPECT_EQ(remarks_of("inline_loops", graph).size(), 1u);
}

// y = sum of a[k] * b[k] over k, as a chain of loops that reads 2 * terms tensors.
std::string sum_of_products(int terms) {
  std::string text;
  int id = 0;
  for (; id < 2 * terms; ++id) text += fmt::format("%{} = input float32[n]\n", id);
  for (int k = 0; k < terms; ++k)
    text += fmt::format("%{} = loop float32[i < n]: %{}[i] * %{}[i]\n", id++, 2 * k, 2 * k + 1);
  int sum = 2 * terms;
  for (int k = 1; k < terms; ++k, sum = id++)
    text += fmt::format("%{} = loop float32[i < n]: %{}[i] + %{}[i]\n", id, sum, 2 * terms + k);
  return text + fmt::format("return %{}", sum);
}

std::size_t loops_after_inlining(const std::string& text) {
  const std::string after = after_pass("inline_loops", text, any_device());
  std::size_t n = 0;
  for (std::size_t at = after.find("= loop"); at != std::string::npos; at = after.find("= loop", at + 1)) ++n;
  return n;
}

TEST(InlineLoops, AKernelReadsAtMost32Tensors) {
  EXPECT_EQ(loops_after_inlining(sum_of_products(16)), 1u);
  EXPECT_EQ(loops_after_inlining(sum_of_products(17)), 2u);
  EXPECT_THAT(remarks_of("inline_loops", sum_of_products(17)),
              Contains(testing::HasSubstr("the kernel would become too large, or read too many tensors")));
}

TEST(TrimRows, OnlyTheLastRowIsComputed) {
  expect_pass("trim_rows", R"(%0 = input float32[s, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < s, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop float32[j < 8]: %2[s - 1, j]
return %3)",
              R"(%0 = input float32[s, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < min(1, s), j < 8; k < 16]: %0[s - 1, k], %1[k, j]
%3 = loop float32[j < 8]: %2[0, j]
return %3)");
}

TEST(TrimRows, SeveralRowsStay) {
  constexpr const char* kGraph = R"(%0 = input float32[s, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < s, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
%3 = loop float32[j < 8]: %2[s - 1, j]
%4 = loop float32[j < 8]: %2[0, j]
return %3, %4)";
  expect_unchanged("trim_rows", kGraph);
  EXPECT_THAT(remarks_of("trim_rows", kGraph),
              ElementsAre("fc: all rows are computed: its readers need different ones"));
}

TEST(TrimRows, OutputsStay) {
  constexpr const char* kGraph = R"(%0 = input float32[s, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < s, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
%3 = loop float32[j < 8]: %2[s - 1, j]
return %2, %3)";
  expect_unchanged("trim_rows", kGraph);
  EXPECT_THAT(remarks_of("trim_rows", kGraph),
              ElementsAre("fc: all rows are computed: its result is an output, or a routine reads it"));
}

FuseOptions shrinking() {
  FuseOptions o = any_device();
  o.shrink_repeats = true;
  return o;
}

TEST(ShrinkRepeats, ExpandedMasks) {
  expect_pass("shrink_repeats", R"(%0 = input float32[4]
%1 = loop float32[i < 8, j < 4]: exp(%0[j])
%2 = loop float32[i < 8, j < 4]: %1[i, j] * %1[0, j]
return %2)",
              R"(%0 = input float32[4]
%1 = loop float32[i < 1, j < 4]: exp(%0[j])
%2 = loop float32[i < 8, j < 4]: %1[0, j] * %1[0, j]
return %2)",
              shrinking());
}

TEST(ShrinkRepeats, ProductsThatHeadsShare) {
  const auto graph = [](int heads, int computed, const char* read) {
    return fmt::format(R"(%0 = input float16[n, 64, 32]
%1 = input float16[n, {0}, 64, 64]
%2 = matmul float16[b < n, h < {1}, i < 64, j < 64; k < 32]: %0[b, i, k], %0[b, j, k]
%3 = loop float16[b < n, h < {0}, i < 64, j < 64]: %2[b, {2}, i, j] * %1[b, h, i, j]
return %3)",
                       heads, computed, read);
  };
  expect_pass("shrink_repeats", graph(24, 24, "h"), graph(24, 1, "0"), shrinking());
  expect_unchanged("shrink_repeats", graph(2, 2, "h"), shrinking());
}

TEST(ShrinkRepeats, OutputsAndReadersOfWholeTensorsKeepTheirShape) {
  expect_unchanged("shrink_repeats", R"(%0 = input float32[4]
%1 = loop float32[i < 8, j < 4]: exp(%0[j])
%2 = routine "sort" float32[8, 4]: %1
return %2)",
                   shrinking());
}

TEST(ShrinkRepeats, FixedIndicesIntoTensorsThatMayBeEmptyStay) {
  expect_unchanged("shrink_repeats", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[0])
%2 = loop float32[i < n]: %1[i] * 2.0
return %2)",
                   shrinking());
}

// Two branches that are stacked, summed, and weighted: each term reads its branch.
TEST(InlineLoops, SumsOverStackedTensorsReadTheirParts) {
  const auto graph = [](const char* sum) {
    return fmt::format(R"(%0 = input float32[n, 64]
%1 = input float32[n, 64]
%2 = loop float32[n < n, p < 2, c < 64]: select(p < 1, %0[n, c], %1[n, c])
%3 = loop float32[n < n, c < 64]: {}
%4 = loop float32[n < n, c < 64]: exp(%3[n, c])
return %4)",
                       sum);
  };
  expect_pass("inline_loops", graph("sum{r < 2}(%2[n, r, c] * 3.0)"), R"(%0 = input float32[n, 64]
%1 = input float32[n, 64]
%2 = loop float32[n < n, c < 64]: exp(%0[n, c] * 3.0 + %1[n, c] * 3.0)
return %2)");
  // Along another dim nothing is selected.
  EXPECT_THAT(after_pass("inline_loops", graph("sum{r < 2}(%2[n, 0, c + r - 1])"), any_device()),
              testing::HasSubstr("sum{"));
}

}  // namespace
}  // namespace sardonyx
