// Which convolutions have GEMM kernels on GPUs, and why others are loops.
#include "codegen/contraction.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph_text/parse.h"

namespace sardonyx::codegen {
namespace {

// Why a convolution of an image of 16 x 16 is a loop; empty if it has a GEMM kernel.
std::string obstacle(std::string_view type, int channels, int filters, int taps, int groups = 1) {
  const auto g = parse_graph(fmt::format(R"(%0 = input {0}[1, {1}, 16, 16]
%1 = constant {0}[{2}, {3}, {4}, {4}] {{...}}
%2 = conv {0}[1, {2}, 16, 16]: %0, %1 {{pads = [{5}, {5}, {5}, {5}], groups = {6}}}
return %2)",
                                         type, channels, filters, channels / groups, taps, taps / 2, groups));
  std::string why;
  is_contraction(*g->outputs[0]->producer, why);
  return why;
}

TEST(Contraction, FewFiltersNeedLongSumsOfWholeVectors) {
  const std::string few = "so few output channels (of a group) are a loop";
  EXPECT_EQ(obstacle("float16", 128, 3, 3), "");
  EXPECT_EQ(obstacle("bfloat16", 16, 1, 3), "");
  EXPECT_EQ(obstacle("float16", 8, 1, 3), few);      // 72 terms
  EXPECT_EQ(obstacle("float16", 20, 3, 3), few);     // no whole vectors
  EXPECT_EQ(obstacle("float32", 128, 3, 3), few);    // each product of a zero takes time
  EXPECT_EQ(obstacle("float16", 64, 8, 5, 2), few);  // 4 of a group
  EXPECT_EQ(obstacle("float32", 16, 8, 1), "");
}

TEST(Contraction, MatricesTimesVectorsOfTheirOwnAreLoopsIfSumsAreShort) {
  const auto why = [](const std::string& product) {
    const auto g = parse_graph(
        "%0 = input float16[n, 64, 16]\n%1 = input float16[n, 16, 1]\n%2 = input float16[16, 1]\n"
        "%3 = input float16[n, 64, 32]\n%4 = input float16[n, 32, 1]\n%5 = " +
        product + "\nreturn %5");
    std::string text;
    is_contraction(*g->outputs[0]->producer, text);
    return text;
  };
  EXPECT_EQ(why("matmul float16[b < n, i < 64, j < 1; k < 16]: %0[b, i, k], %1[b, k, j]"),
            "so short sums of matrices by vectors are a loop");
  EXPECT_EQ(why("matmul float16[b < n, i < 64, j < 1; k < 16]: %0[b, i, k], %2[k, j]"), "");
  EXPECT_EQ(why("matmul float16[b < n, i < 64, j < 1; k < 32]: %3[b, i, k], %4[b, k, j]"), "");
}

TEST(Contraction, SmallMatricesOfTheirOwnAreLoops) {
  const auto why = [](int terms, int columns, bool shared) {
    const auto g = parse_graph(fmt::format(R"(%0 = input float16[n, 3137, {0}]
%1 = input float16[{2}{0}, {1}]
%2 = matmul float16[b < n, i < 3137, j < {1}; k < {0}]: %0[b, i, k], %1[{3}k, j]
return %2)",
                                           terms, columns, shared ? "" : "n, ", shared ? "" : "b, "));
    std::string text;
    is_contraction(*g->outputs[0]->producer, text);
    return text;
  };
  EXPECT_EQ(why(8, 8, false), "such small matrices are a loop");
  EXPECT_EQ(why(8, 16, false), "such small matrices are a loop");
  EXPECT_EQ(why(16, 16, false), "");
  EXPECT_EQ(why(8, 8, true), "");
}

// Small left matrices: states of nine chunks. Two queries of attention are none.
TEST(Contraction, SmallLeftMatricesOfTheirOwnAreLoops) {
  const auto why = [](int rows, int terms) {
    const auto g = parse_graph(fmt::format(R"(%0 = input float16[n, {0}, {1}]
%1 = input float16[n, {1}, 8192]
%2 = matmul float16[b < n, i < {0}, j < 8192; k < {1}]: %0[b, i, k], %1[b, k, j]
return %2)",
                                           rows, terms));
    std::string text;
    is_contraction(*g->outputs[0]->producer, text);
    return text;
  };
  EXPECT_EQ(why(9, 9), "such small matrices are a loop");
  EXPECT_EQ(why(2, 64), "");
  EXPECT_EQ(why(16, 16), "");
}

// Modes of a Fourier operator, whose real parts lie between the imaginary ones and whose channels are apart.
TEST(Contraction, ScatteredMatricesAreLoops) {
  const auto why = [](const char* left, int terms) {
    const auto g = parse_graph(fmt::format(R"(%0 = input float16[n, {1}, 64, 2]
%1 = input float16[64, {1}, 20]
%2 = matmul float16[w < 64, b < n, j < 20; k < {1}]: {0}, %1[w, k, j]
return %2)",
                                           left, terms));
    std::string text;
    is_contraction(*g->outputs[0]->producer, text);
    return text;
  };
  EXPECT_EQ(why("%0[b, k, w, 0]", 20), "products of matrices whose elements lie apart with small ones are a loop");
  EXPECT_EQ(why("%0[b, k, w, 0]", 64), "");
}

// One tap: rows are pixels where channels are last, and channels where a channel's pixels are side by side.
TEST(Contraction, ColumnsOfOneTapArePixelsWhereTheseAreContiguous) {
  const auto sizes = [](const char* order) {
    const auto g = parse_graph(fmt::format(R"(%0 = input float16[2, 24, 16, 20]
%1 = constant float16[40, 24, 1, 1] {{...}}
%2 = conv float16[2, 40, 16, 20]{}: %0, %1
return %2)",
                                           order));
    Value sum;
    TileKernel t;
    t.node = g->outputs[0]->producer;
    t.out = g->outputs[0];
    const Contraction c = contraction_of(t, sum);
    return fmt::format("{} of {} x {}", to_string(c.batches()), to_string(c.m()), to_string(c.n()));
  };
  EXPECT_EQ(sizes(""), "2 of 40 x 320");
  EXPECT_EQ(sizes(" order(0, 2, 3, 1)"), "1 of 640 x 40");
}

}  // namespace
}  // namespace sardonyx::codegen
