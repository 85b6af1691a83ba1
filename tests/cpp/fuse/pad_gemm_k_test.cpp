// The pass pad_gemm_k.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

FuseOptions padding_k() {
  FuseOptions o = any_device();
  o.pad_gemm_k = true;
  return o;
}

// Tokens that an MLP mixes: the loop that computes the left operand writes the zeros, in the order in which it reads.
TEST(PadGemmK, LoopsWriteTheZerosInTheOrderThatTheyRead) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 196, 768]
%1 = constant float16[196, 384] {...}
%2 = loop float16[b < n, c < 768, t < 196]: %0[b, t, c] * 2.0:float16
%3 = matmul float16[b < n, c < 768, j < 384; k < 196]: %2[b, c, k], %1[k, j]
return %3)",
              R"(%0 = input float16[n, 196, 768]
%1 = constant float16[196, 384] {...}
%2 = loop float16[t < 200, j < 384]: select(t < 196, %1[t, j], 0.0:float16)
%3 = loop float16[b < n, c < 768, t < 200] order(0, 2, 1): select(t < 196, %0[b, t, c] * 2.0:float16, 0.0:float16)
%4 = matmul float16[b < n, c < 768, j < 384; k < 200]: %3[b, c, k], %2[k, j]
return %4)",
              padding_k());
}

// Radial basis functions: one distance for each line and one rate for each element of K are no reason for another
// order.
TEST(PadGemmK, LoopsThatReadNoMatrixKeepKInnermost) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 500, 1]
%1 = constant float16[20, 64] {...}
%2 = constant float16[20] {...}
%3 = loop float16[b < n, e < 500, t < 20]: sin(%0[b, e, 0] * %2[t]) * %0[b, e, 0]
%4 = matmul float16[b < n, e < 500, j < 64; k < 20]: %3[b, e, k], %1[k, j]
return %4)",
              R"(%0 = input float16[n, 500, 1]
%1 = constant float16[20, 64] {...}
%2 = constant float16[20] {...}
%3 = loop float16[t < 24, j < 64]: select(t < 20, %1[t, j], 0.0:float16)
%4 = loop float16[b < n, e < 500, t < 24]: select(t < 20, sin(%0[b, e, 0] * %2[t]) * %0[b, e, 0], 0.0:float16)
%5 = matmul float16[b < n, e < 500, j < 64; k < 24]: %4[b, e, k], %3[k, j]
return %5)",
              padding_k());
}

// What others read too is copied, once for all products.
TEST(PadGemmK, OtherOperandsAreCopied) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 64, 49]
%1 = constant float16[49, 64] {...}
%2 = matmul float16[b < n, i < 64, j < 64; k < 49]: %0[b, i, k], %1[k, j]
%3 = matmul float16[b < n, i < 64, j < 64; k < 49]: %0[b, i, k], %1[k, j]
return %2, %3)",
              R"(%0 = input float16[n, 64, 49]
%1 = constant float16[49, 64] {...}
%2 = loop float16[k < 56, j < 64]: select(k < 49, %1[k, j], 0.0:float16)
%3 = loop float16[b < n, i < 64, k < 56]: select(k < 49, %0[b, i, k], 0.0:float16)
%4 = matmul float16[b < n, i < 64, j < 64; k < 56]: %3[b, i, k], %2[k, j]
%5 = matmul float16[b < n, i < 64, j < 64; k < 56]: %3[b, i, k], %2[k, j]
return %4, %5)",
              padding_k());
}

// Heads of 30 elements behind one another: K takes two dims of attention's result.
TEST(PadGemmK, OperandsWhoseKTakesSeveralDimsAreGathered) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 6, 64, 30]
%1 = constant float16[180, 64] {...}
%2 = matmul float16[b < n, t < 64, j < 64; k < 180]: %0[b, floordiv(k, 30), t, mod(k, 30)], %1[k, j]
return %2)",
              R"(%0 = input float16[n, 6, 64, 30]
%1 = constant float16[180, 64] {...}
%2 = loop float16[k < 184, j < 64]: select(k < 180, %1[k, j], 0.0:float16)
%3 = loop float16[b < n, t < 64, k < 184]: select(k < 180, %0[b, floordiv(k, 30), t, mod(k, 30)], 0.0:float16)
%4 = matmul float16[b < n, t < 64, j < 64; k < 184]: %3[b, t, k], %2[k, j]
return %4)",
              padding_k());
}

// Keys of one head, beside values in the result of one GEMM.
TEST(PadGemmK, PartsOfATensorAreCopied) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 64, 72]
%1 = input float16[n, 256, 74]
%2 = matmul float16[b < n, i < 64, j < 256; k < 37]: %0[b, i, k + 3], %1[b, j, k + 37]
return %2)",
              R"(%0 = input float16[n, 64, 72]
%1 = input float16[n, 256, 74]
%2 = loop float16[b < n, j < 256, k < 40]: select(k < 37, %1[b, j, k + 37], 0.0:float16)
%3 = loop float16[b < n, i < 64, k < 40]: select(k < 37, %0[b, i, k + 3], 0.0:float16)
%4 = matmul float16[b < n, i < 64, j < 256; k < 40]: %3[b, i, k], %2[b, j, k]
return %4)",
              padding_k());
}

// Products pixel by pixel, whose channels are contiguous: K becomes innermost, whole vectors or not.
TEST(PadGemmK, OperandsThatLieAcrossAreTransposed) {
  EXPECT_THAT(after_pass("pad_gemm_k", R"(%0 = input float16[n, 33, 40, 24]
%1 = input float16[n, 24, 40, 40]
%2 = matmul float16[b < n, c < 24, i < 33, j < 40; k < 40]: %0[b, i, k, c], %1[b, c, j, k]
return %2)",
                         padding_k()),
              HasSubstr("order(0, 1, 3, 2): %0[i0, i1, i2, i3]"));
  EXPECT_THAT(after_pass("pad_gemm_k", R"(%0 = input float16[n, 33, 33, 24]
%1 = input float16[n, 40, 33, 24]
%2 = matmul float16[b < n, c < 24, i < 33, j < 40; k < 33]: %0[b, i, k, c], %1[b, j, k, c]
return %2)",
                         padding_k()),
              HasSubstr("order(0, 1, 3, 2): select(i2 < 33, %0[i0, i1, i2, i3], 0.0:float16)"));
}

// A matrix that views a loop's result, which has few columns: the loop writes the zeros, in its own shape.
TEST(PadGemmK, LoopsWriteTheZerosOfAView) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 3, 64, 25]
%1 = constant float16[75, 25] {...}
%2 = loop float16[b < n, c < 64, r < 3, v < 25]: %0[b, r, c, v]
%3 = view float16[n * 64, 75]: %2
%4 = matmul float16[i < n * 64, j < 25; k < 75]: %3[i, k], %1[k, j]
return %4)",
              R"(%0 = input float16[n, 3, 64, 25]
%1 = constant float16[75, 25] {...}
%2 = loop float16[k < 80, j < 25]: select(k < 75, %1[k, j], 0.0:float16)
%3 = loop float16[b < n, c < 64, k < 80]: select(k < 75, %0[b, floordiv(k, 25), c, mod(k, 25)], 0.0:float16)
%4 = view float16[n * 64, 80]: %3
%5 = matmul float16[i < n * 64, j < 25; k < 80]: %4[i, k], %2[k, j]
return %5)",
              padding_k());
}

// What a GEMM's epilogue may compute is copied: stored by the GEMM, it would be infinite before the epilogue bounds it.
TEST(PadGemmK, EpiloguesStay) {
  const std::string text = after_pass("pad_gemm_k", R"(%0 = input float16[n, 64]
%1 = constant float16[64, 36] {...}
%2 = constant float16[36, 40] {...}
%3 = matmul float16[i < n, j < 36; k < 64]: %0[i, k], %1[k, j]
%4 = loop float16[i < n, j < 36]: max(%3[i, j], 0.0:float16)
%5 = matmul float16[i < n, j < 40; k < 36]: %4[i, k], %2[k, j]
return %5)",
                                      padding_k());
  EXPECT_THAT(text, HasSubstr(": max("));
  EXPECT_THAT(text, Not(HasSubstr("select(i1 < 36, max(")));
}

// A concatenation is no epilogue, because it has more elements than the product: it writes the zeros itself.
TEST(PadGemmK, ConcatenationsWithProductsWriteTheZeros) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 64]
%1 = constant float16[64, 32] {...}
%2 = constant float16[36, 40] {...}
%3 = matmul float16[i < n, j < 32; k < 64]: %0[i, k], %1[k, j]
%4 = loop float16[i < n, j < 36]: select(j < 32, %3[i, j] * 2.0:float16, %0[i, j - 32])
%5 = matmul float16[i < n, j < 40; k < 36]: %4[i, k], %2[k, j]
return %5)",
              R"(%0 = input float16[n, 64]
%1 = constant float16[64, 32] {...}
%2 = constant float16[36, 40] {...}
%3 = matmul float16[i < n, j < 32; k < 64]: %0[i, k], %1[k, j]
%4 = loop float16[k < 40, j < 40]: select(k < 36, %2[k, j], 0.0:float16)
%5 = loop float16[i < n, k < 40]: select(k < 36, select(k < 32, %3[i, k] * 2.0:float16, %0[i, k - 32]), 0.0:float16)
%6 = matmul float16[i < n, j < 40; k < 40]: %5[i, k], %4[k, j]
return %6)",
              padding_k());
}

// Lines that overlap would be several times as large.
TEST(PadGemmK, OperandsThatRepeatElementsStay) {
  const char* text = R"(%0 = input float16[n, 243]
%1 = constant float16[180, 64] {...}
%2 = matmul float16[b < n, t < 64, j < 64; k < 180]: %0[b, t + k], %1[k, j] @"fc"
return %2)";
  expect_unchanged("pad_gemm_k", text, padding_k());
  EXPECT_THAT(remarks_of("pad_gemm_k", text, padding_k()),
              ElementsAre("fc: an operand is repeated, or not of 16-bit floats"));
}

// Columns of a GEMM that was merged, with their bias: a part of its result, whose rows begin anywhere.
TEST(PadGemmK, PartsOfMergedResultsAreCopied) {
  expect_pass("pad_gemm_k", R"(%0 = input float16[n, 300, 522]
%1 = input float16[n, 512, 261]
%2 = input float32[261]
%3 = matmul float16[b < n, i < 512, j < 300; k < 261]: %1[b, i, k], %0[b, j, k]
%4 = matmul float16[b < n, i < 512, j < 300; k < 261]: float16:16(float32(%1[b, i, k]) + %2[k]), %0[b, j, k]
return %3, %4)",
              R"(%0 = input float16[n, 300, 522]
%1 = input float16[n, 512, 261]
%2 = input float32[261]
%3 = loop float16[b < n, j < 300, k < 264]: select(k < 261, %0[b, j, k], 0.0:float16)
%4 = loop float16[b < n, i < 512, k < 264]: select(k < 261, %1[b, i, k], 0.0:float16)
%5 = matmul float16[b < n, i < 512, j < 300; k < 264]: %4[b, i, k], %3[b, j, k]
%6 = loop float16[b < n, j < 300, k < 264]: select(k < 261, %0[b, j, k], 0.0:float16)
%7 = loop float16[b < n, i < 512, k < 264]: select(k < 261, float16:16(float32(%1[b, i, k]) + %2[k]), 0.0:float16)
%8 = matmul float16[b < n, i < 512, j < 300; k < 264]: %7[b, i, k], %6[b, j, k]
return %5, %8)",
              padding_k());
}

// Rows of 522 elements from the 261st on: neither K nor lines could be loaded in vectors. Rows of 520 from the 256th on
// can.
TEST(PadGemmK, MisalignedOperandsOfLongSumsAreCopied) {
  const auto product = [](int width, int first) {
    return fmt::format(R"(%0 = input float16[n, 512, 4096]
%1 = input float16[n, 4096, {0}]
%2 = matmul float16[b < n, i < 512, j < 261; k < 4096]: %0[b, i, k], %1[b, k, j + {1}]
return %2)",
                       width, first);
  };
  expect_pass("pad_gemm_k", product(522, 261), R"(%0 = input float16[n, 512, 4096]
%1 = input float16[n, 4096, 522]
%2 = loop float16[b < n, j < 261, k < 4096]: %1[b, k, j + 261]
%3 = matmul float16[b < n, i < 512, j < 261; k < 4096]: %0[b, i, k], %2[b, j, k]
return %3)",
              padding_k());
  expect_unchanged("pad_gemm_k", product(520, 256), padding_k());
}

TEST(PadGemmK, WholeVectorsShortSumsAndOtherTypesStay) {
  const auto product = [](const char* type, int rows, int terms) {
    return fmt::format(R"(%0 = input {0}[n, {1}, {2}]
%1 = constant {0}[{2}, 64] {{...}}
%2 = matmul {0}[b < n, i < {1}, j < 64; k < {2}]: %0[b, i, k], %1[k, j] @"fc"
return %2)",
                       type, rows, terms);
  };
  for (const auto& [type, rows, terms] : {std::tuple("float16", 64, 48), std::tuple("float16", 64, 11),
                                          std::tuple("float32", 64, 49), std::tuple("float16", 8, 49)})
    expect_unchanged("pad_gemm_k", product(type, rows, terms), padding_k());
  EXPECT_THAT(remarks_of("pad_gemm_k", product("float32", 64, 49), padding_k()),
              ElementsAre("fc: an operand is repeated, or not of 16-bit floats"));
  EXPECT_THAT(remarks_of("pad_gemm_k", product("float16", 8, 49), padding_k()),
              ElementsAre("fc: it has too few rows or columns"));
}

}  // namespace
}  // namespace sardonyx
