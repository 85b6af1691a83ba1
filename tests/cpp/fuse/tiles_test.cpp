// Passes around GEMM and convolution.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FuseOptions without_tiles() {
  FuseOptions o = any_device();
  o.accepts_tile = [](const Node&, std::string& why) {
    why = "not in float64";
    return false;
  };
  return o;
}

constexpr const char* kMatMul = R"(%0 = input float64[n, 16]
%1 = input float64[16, 8]
%2 = matmul float64[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
return %2)";

TEST(TilesToLoops, RefusedProducts) {
  expect_pass("tiles_to_loops", kMatMul, R"(%0 = input float64[n, 16]
%1 = input float64[16, 8]
%2 = loop float64[i < n, j < 8]: sum{r < 16}(%0[i, r] * %1[r, j]) @"fc"
return %2)",
              without_tiles());
  EXPECT_THAT(remarks_of("tiles_to_loops", kMatMul, without_tiles()),
              ElementsAre("fc: runs as a loop: not in float64"));
}

TEST(TilesToLoops, AcceptedProductsStay) {
  expect_unchanged("tiles_to_loops", kMatMul);
  EXPECT_THAT(remarks_of("tiles_to_loops", kMatMul), IsEmpty());
}

TEST(TilesToLoops, Convolutions) {
  expect_pass("tiles_to_loops", R"(%0 = input float32[1, 4, 8]
%1 = input float32[6, 4, 1]
%2 = conv float32[1, 6, 8]: %0, %1
return %2)",
              R"(%0 = input float32[1, 4, 8]
%1 = input float32[6, 4, 1]
%2 = loop float32[i < 1, j < 6, l < 8]: sum{r < 4}(%0[i, r, l] * %1[j, r, 0])
return %2)",
              without_tiles());
}

FuseOptions quantised() {
  FuseOptions o = any_device();
  o.prologues = true;
  return o;
}

constexpr const char* kQuantised = R"(%0 = input float32[n, 16]
%1 = constant uint8[16, 8] {...}
%2 = loop float32[i < 16, j < 8]: float32(%1[i, j]) * 0.5 @"dequantize"
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j] @"fc"
return %3)";

TEST(InlineDequantization, WeightsAreReadAsTheyAreStored) {
  expect_pass("inline_dequantization", kQuantised, R"(%0 = input float32[n, 16]
%1 = constant uint8[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], float32(%1[k, j]) * 0.5 @"dequantize + fc"
return %2)",
              quantised());
}

TEST(InlineDequantization, FloatWeightsStay) {
  expect_unchanged("inline_dequantization", R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = loop float32[i < 16, j < 8]: exp(%1[i, j])
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)",
                   quantised());
}

TEST(InlineDequantization, ReasonsWhyWeightsAreTensors) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 16]
%1 = input uint8[m, 8]
%2 = constant uint8[16, 8] {...}
%3 = constant uint8[16, 8, 9] {...}
%4 = loop float32[i < m, j < 8]: float32(%1[i, j]) * 0.5 @"of any size"
%5 = loop float32[i < 16, j < 8]: float32(%2[i, j]) + sum{r < 9}(float32(%3[i, j, r])) @"of a sum"
%6 = loop float32[i < 16, j < 8]: float32(%3[i, j, 0]) @"of a part"
%7 = matmul float32[i < n, j < 8; k < m]: %0[i, k], %4[k, j] @"a"
%8 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %5[k, j] @"b"
%9 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %6[k, j] @"c"
return %7, %8, %9)";
  expect_unchanged("inline_dequantization", kGraph, quantised());
  EXPECT_THAT(remarks_of("inline_dequantization", kGraph, quantised()),
              ElementsAre("of any size: its size is not known when compiling",
                          "of a sum: it contains a reduction, which the GEMM would repeat",
                          "of a part: it reads nearly as many bytes as it writes"));
}

TEST(MergeMatmuls, QuantisedWeightsStayQuantised) {
  const std::string graph = R"(%0 = input float32[n, 16]
%1 = constant uint8[16, 8] {...}
%2 = loop float32[i < 16, j < 8]: float32(%1[i, j]) * 0.5
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j] @"q"
%4 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j] @"k"
return %3, %4)";
  expect_unchanged("merge_matmuls", graph, quantised());
  EXPECT_EQ(remarks_of("merge_matmuls", graph, quantised()).size(), 2u);
}

FuseOptions pairing() {
  FuseOptions o = any_device();
  o.gated_gemm = true;
  return o;
}

TEST(GatedGemm, GatedLayers) {
  expect_pass("gated_gemm", R"(%0 = input float32[n, 128]
%1 = constant float32[128, 8] {...}
%2 = constant float32[128, 8] {...}
%3 = matmul float32[i < n, j < 8; k < 128]: %0[i, k], %1[k, j] @"gate"
%4 = matmul float32[i < n, j < 8; k < 128]: %0[i, k], %2[k, j] @"up"
%5 = loop float32[i < n, j < 8]: tanh(%3[i, j]) * %4[i, j] @"mul"
return %5)",
              R"(%0 = input float32[n, 128]
%1 = constant float32[128, 8] {...}
%2 = constant float32[128, 8] {...}
%3 = loop float32[i < 128, j < 16]: select(mod(j, 2) == 0, %1[i, floordiv(j, 2)], %2[i, floordiv(j, 2)])
%4 = matmul float32[i < n, j < 16; k < 128]: %0[i, k], %3[k, j] @"gate + up"
%5 = loop float32[i < n, j < 8]: tanh(%4[i, 2 * j]) * %4[i, 2 * j + 1] @"mul"
return %5)",
              pairing());
}

TEST(GatedGemm, ProductsOfDifferentTensorsStay) {
  const char* graph = R"(%0 = input float32[n, 16]
%1 = input float32[n, 16]
%2 = constant float32[16, 8] {...}
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
%4 = matmul float32[i < n, j < 8; k < 16]: %1[i, k], %2[k, j]
%5 = loop float32[i < n, j < 8]: tanh(%3[i, j]) * %4[i, j] @"mul"
return %5)";
  expect_unchanged("gated_gemm", graph, pairing());
  EXPECT_THAT(remarks_of("gated_gemm", graph, pairing()),
              ElementsAre("mul: the two products have different left operands"));
}

constexpr const char* kEpilogue = R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = constant float32[8] {...}
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
%4 = loop float32[i < n, j < 8]: %3[i, j] + %2[j] @"bias"
%5 = loop float32[i < n, j < 8]: max(%4[i, j], 0.0) @"relu"
)";

std::vector<Epilogue> epilogues_of(Graph& g, const FuseOptions& o) {
  PassState state{g, o, {}};
  pass_named("epilogues").run(state);
  return state.epilogues;
}

TEST(Epilogues, ChainsOfElementWiseLoops) {
  const auto g = parse_graph(std::string(kEpilogue) + "return %5");
  const auto found = epilogues_of(*g, any_device());
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].loops.size(), 2u);
  EXPECT_EQ(found[0].kernel.out, g->outputs[0]);
  EXPECT_EQ(to_string(found[0].kernel.epilogue).substr(0, 4), "max(");
}

TEST(Epilogues, EndAtOutputs) {
  const auto g = parse_graph(std::string(kEpilogue) + "return %4, %5");
  const auto found = epilogues_of(*g, any_device());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].loops.size(), 1u);
  EXPECT_THAT(remarks_of("epilogues", std::string(kEpilogue) + "return %4, %5"),
              ElementsAre("fc: its result is an output of the graph"));
}

TEST(Epilogues, DoNotReadOtherPositions) {
  EXPECT_THAT(remarks_of("epilogues", R"(%0 = input float32[8, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < 8, j < 8; k < 16]: %0[i, k], %1[k, j] @"fc"
%3 = loop float32[i < 8, j < 8]: exp(%2[j, i]) @"transpose"
return %3)"),
              ElementsAre("fc: 'transpose' reads its result at other positions than it writes"));
}

TEST(Epilogues, DevicesThatRefuseThemSayWhy) {
  FuseOptions o = any_device();
  o.accepts_epilogue = [](const TileKernel&, std::string& why) {
    why = "too large";
    return false;
  };
  EXPECT_THAT(remarks_of("epilogues", std::string(kEpilogue) + "return %5", o),
              ElementsAre("fc: 'bias' does not run as an epilogue: too large"));
}

TEST(Epilogues, PairsOfColumns) {
  const auto g = parse_graph(R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop float32[i < n, j < 4]: tanh(%2[i, 2 * j]) * %2[i, 2 * j + 1]
return %3)");
  EXPECT_TRUE(epilogues_of(*g, any_device()).empty());
  const auto found = epilogues_of(*g, pairing());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].kernel.pairs);
}

constexpr const char* kConvolutions = R"(%0 = input float32[1, 4, 9, 9]
%1 = constant float32[8, 4, 3, 3] {...}
%2 = constant float32[8, 8, 3, 3] {...}
%3 = conv float32[1, 8, 9, 9]: %0, %1 {pads = [1, 1, 1, 1]}
%4 = conv float32[1, 8, 9, 9]: %3, %2 {pads = [1, 1, 1, 1]}
)";

TEST(Layouts, ChannelsLastBetweenConvolutions) {
  expect_pass("layouts", std::string(kConvolutions) + "return %4", R"(%0 = input float32[1, 4, 9, 9]
%1 = constant float32[8, 4, 3, 3] {...}
%2 = constant float32[8, 8, 3, 3] {...}
%3 = loop float32[i < 1, c < 4, y < 9, x < 9] order(0, 2, 3, 1): %0[i, c, y, x]
%4 = conv float32[1, 8, 9, 9] order(0, 2, 3, 1): %3, %1 {pads = [1, 1, 1, 1]}
%5 = conv float32[1, 8, 9, 9] order(0, 2, 3, 1): %4, %2 {pads = [1, 1, 1, 1]}
%6 = loop float32[i < 1, c < 8, y < 9, x < 9]: %5[i, c, y, x]
return %6)");
}

TEST(Layouts, WhatRoutinesReadStaysRowMajor) {
  const std::string graph = R"(%0 = input float32[1, 4, 9, 9]
%1 = constant float32[8, 4, 3, 3] {...}
%2 = conv float32[1, 8, 9, 9]: %0, %1 {pads = [1, 1, 1, 1]} @"conv"
%3 = routine "sort" float32[1, 8, 9, 9]: %2
return %3)";
  expect_unchanged("layouts", graph);
  EXPECT_THAT(remarks_of("layouts", graph),
              ElementsAre("conv: stays row-major: a routine, matmul or nested graph reads it"));
}

// A single channel is last in either order: the image that the convolution reads needs no copy.
TEST(Layouts, AnEpilogueInAnotherShapeLeavesASingleChannelLast) {
  const std::string graph = R"(%0 = input float32[8, 9, 9, 64]
%1 = constant float32[1, 64, 3, 3] {...}
%2 = loop float32[n < 8, c < 64, y < 9, x < 9]: %0[n, y, x, c]
%3 = conv float32[8, 1, 9, 9]: %2, %1 {pads = [1, 1, 1, 1]} @"conv"
%4 = view float32[8, 81]: %3
%5 = loop float32[n < 8, p < 81]: tanh(%4[n, p])
return %5)";
  const auto g = parse_graph(graph);
  PassState state{*g, any_device(), {}};
  pass_named("epilogues").run(state);
  pass_named("layouts").run(state);
  EXPECT_THAT(to_string(*g), HasSubstr("view float32[8, 64, 9, 9] order(0, 2, 3, 1): %0"));
  EXPECT_THAT(to_string(*g), HasSubstr("conv float32[8, 1, 9, 9] order(0, 2, 3, 1)"));
}

constexpr const char* kAppend = R"(%0 = input float32[1, 2, 32, 4]
%1 = input float32[1, 2, 32, 4]
%2 = input float32[1, s, 24]
%3 = loop float32[b < 1, t < s, j < 8]: %2[b, t, j + 8]
%4 = loop float32[b < 1, t < s, j < 8]: %2[b, t, j + 16]
%5 = input int64[1]
)";

TEST(AppendSources, NewRowsAreReadWhereTheProductWroteThem) {
  expect_pass("append_sources", std::string(kAppend) + R"(
%6, %7 = routine "append" float32[1, 2, 32, 4], float32[1, 2, 32, 4]: %5, %3, %4, %0, %1 {params = [s, 0, 8, 0, 8, 0]}
return %6, %7)",
              R"(%0 = input float32[1, 2, 32, 4]
%1 = input float32[1, 2, 32, 4]
%2 = input float32[1, s, 24]
%3 = input int64[1]
%4, %5 = routine "append" float32[1, 2, 32, 4], float32[1, 2, 32, 4]: %3, %2, %2, %0, %1 {params = [s, 0, 24, 8, 24, 16]}
return %4, %5)");
}

TEST(AppendSources, ComputedRowsAreAReason) {
  constexpr const char* kGraph = R"(%0 = input float32[1, 2, 32, 4]
%1 = input float32[1, 2, 32, 4]
%2 = input float32[1, s, 24]
%3 = loop float32[b < 1, t < s, j < 8]: exp(%2[b, t, j + 8])
%4 = input float32[1, s, 8]
%5 = input int64[1]
%6, %7 = routine "append" float32[1, 2, 32, 4], float32[1, 2, 32, 4]: %5, %3, %4, %0, %1 {params = [s, 0, 8, 0, 8, 0]} @"cache"
return %6, %7)";
  expect_unchanged("append_sources", kGraph);
  EXPECT_THAT(remarks_of("append_sources", kGraph),
              ElementsAre("cache: the new keys are not parts of a tensor with rows at one distance",
                          "cache: the new values are not parts of a tensor with rows at one distance"));
}

TEST(AppendSources, OtherRoutinesStay) {
  expect_unchanged("append_sources", std::string(kAppend) + R"(
%6 = routine "sort" float32[1, s, 8]: %3
return %6, %4)");
}

}  // namespace
}  // namespace sardonyx
