// Products of 8 bits of one tensor become one product, with what scales them.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

// Scales and biases are concatenated like the weights; what both branches have alike stays.
TEST(MergeMatmuls, ScaledProductsOfEightBits) {
  expect_pass("merge_matmuls", R"(%0 = input float8_e4m3fn[n, 128]
%1 = constant float8_e4m3fn[128, 80] {...}
%2 = constant float8_e4m3fn[128, 72] {...}
%3 = constant float32[80] {...}
%4 = matmul float32[i < n, j < 80; k < 128]: %0[i, k], %1[k, j] @"q"
%5 = loop float32[i < n, j < 80]: %4[i, j] * (%3[j] * 0.5)
%6 = matmul float32[i < n, j < 72; k < 128]: %0[i, k], %2[k, j] @"k"
%7 = constant float32[72] {...}
%8 = loop float32[i < n, j < 72]: %6[i, j] * (%7[j] * 0.5)
return %5, %8)",
              R"(%0 = input float8_e4m3fn[n, 128]
%1 = constant float8_e4m3fn[128, 80] {...}
%2 = constant float8_e4m3fn[128, 72] {...}
%3 = constant float32[152] {...} @"q + k"
%4 = loop float8_e4m3fn[i < 128, j < 152]: select(j < 80, %1[i, j], %2[i, j - 80]) @"q + k"
%5 = matmul float32[i < n, j < 152; k < 128]: %0[i, k], %4[k, j] @"q + k"
%6 = loop float32[i < n, j < 152]: %5[i, j] * (%3[j] * 0.5) @"q + k"
%7 = loop float32[i < n, j < 80]: %6[i, j]
%8 = loop float32[i < n, j < 72]: %6[i, j + 80]
return %7, %8)");
}

TEST(MergeMatmuls, ProductsThatAreScaledDifferentlyStay) {
  const char* graph = R"(%0 = input float8_e4m3fn[n, 16]
%1 = constant float8_e4m3fn[16, 8] {...}
%2 = constant float32[8] {...}
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"q"
%4 = loop float32[i < n, j < 8]: %3[i, j] * %2[j]
%5 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"k"
%6 = loop float32[i < n, j < 8]: exp(%5[i, j])
return %4, %6)";
  expect_unchanged("merge_matmuls", graph);
  EXPECT_THAT(remarks_of("merge_matmuls", graph),
              ElementsAre("k: not merged with 'q': their results are scaled in different ways"));
}

}  // namespace
}  // namespace sardonyx
