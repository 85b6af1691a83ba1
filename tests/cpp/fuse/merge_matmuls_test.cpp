// merge_matmuls: GEMMs of one tensor with constant weights. See also merge_quantized_test.cpp.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

constexpr const char* kTwoProducts = R"(%0 = input float32[n, 128]
%1 = constant float32[128, 8] {...}
%2 = constant float32[128, 4] {...}
%3 = matmul float32[i < n, j < 8; k < 128]: %0[i, k], %1[k, j] @"q"
%4 = matmul float32[i < n, j < 4; k < 128]: %0[i, k], %2[k, j] @"k"
return %3, %4)";

TEST(MergeMatmuls, ProductsOfOneTensor) {
  expect_pass("merge_matmuls", kTwoProducts, R"(%0 = input float32[n, 128]
%1 = constant float32[128, 8] {...}
%2 = constant float32[128, 4] {...}
%3 = loop float32[i < 128, j < 12]: select(j < 8, %1[i, j], %2[i, j - 8]) @"q + k"
%4 = matmul float32[i < n, j < 12; k < 128]: %0[i, k], %3[k, j] @"q + k"
%5 = loop float32[i < n, j < 8]: %4[i, j] @"q"
%6 = loop float32[i < n, j < 4]: %4[i, j + 8] @"k"
return %5, %6)");
}

FuseOptions transposed_constants() {
  FuseOptions o = any_device();
  o.transposed_constants = true;
  return o;
}

// As PyTorch stores the weights of a linear layer: [N, K].
TEST(MergeMatmuls, TransposesAreConcatenatedAsTheyAreStored) {
  constexpr const char* kGraph = R"(%0 = input float32[n, 128]
%1 = constant float32[8, 128] {...}
%2 = constant float32[4, 128] {...}
%3 = loop float32[i < 128, j < 8]: %1[j, i]
%4 = loop float32[i < 128, j < 4]: %2[j, i]
%5 = matmul float32[i < n, j < 8; k < 128]: %0[i, k], %3[k, j] @"q"
%6 = matmul float32[i < n, j < 4; k < 128]: %0[i, k], %4[k, j] @"k"
return %5, %6)";
  expect_pass("merge_matmuls", kGraph, R"(%0 = input float32[n, 128]
%1 = constant float32[8, 128] {...}
%2 = constant float32[4, 128] {...}
%3 = loop float32[i < 12, j < 128]: select(i < 8, %1[i, j], %2[i - 8, j]) @"q + k"
%4 = matmul float32[i < n, j < 12; k < 128]: %0[i, k], %3[j, k] @"q + k"
%5 = loop float32[i < n, j < 8]: %4[i, j] @"q"
%6 = loop float32[i < n, j < 4]: %4[i, j + 8] @"k"
return %5, %6)",
              transposed_constants());
  expect_pass("merge_matmuls", kGraph, R"(%0 = input float32[n, 128]
%1 = constant float32[8, 128] {...}
%2 = constant float32[4, 128] {...}
%3 = loop float32[i < 128, j < 8]: %1[j, i]
%4 = loop float32[i < 128, j < 4]: %2[j, i]
%5 = loop float32[i < 128, j < 12]: select(j < 8, %3[i, j], %4[i, j - 8]) @"q + k"
%6 = matmul float32[i < n, j < 12; k < 128]: %0[i, k], %5[k, j] @"q + k"
%7 = loop float32[i < n, j < 8]: %6[i, j] @"q"
%8 = loop float32[i < n, j < 4]: %6[i, j + 8] @"k"
return %7, %8)");
}

TEST(MergeMatmuls, OneTransposeOfTwoIsComputed) {
  expect_pass("merge_matmuls", R"(%0 = input float32[n, 128]
%1 = constant float32[8, 128] {...}
%2 = constant float32[128, 4] {...}
%3 = loop float32[i < 128, j < 8]: %1[j, i]
%4 = matmul float32[i < n, j < 8; k < 128]: %0[i, k], %3[k, j] @"q"
%5 = matmul float32[i < n, j < 4; k < 128]: %0[i, k], %2[k, j] @"k"
return %4, %5)",
              R"(%0 = input float32[n, 128]
%1 = constant float32[8, 128] {...}
%2 = constant float32[128, 4] {...}
%3 = loop float32[i < 128, j < 8]: %1[j, i]
%4 = loop float32[i < 128, j < 12]: select(j < 8, %3[i, j], %2[i, j - 8]) @"q + k"
%5 = matmul float32[i < n, j < 12; k < 128]: %0[i, k], %4[k, j] @"q + k"
%6 = loop float32[i < n, j < 8]: %5[i, j] @"q"
%7 = loop float32[i < n, j < 4]: %5[i, j + 8] @"k"
return %6, %7)",
              transposed_constants());
}

TEST(MergeMatmuls, ProductsOfDifferentTensorsStay) {
  expect_unchanged("merge_matmuls", R"(%0 = input float32[n, 16]
%1 = input float32[n, 16]
%2 = constant float32[16, 8] {...}
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
%4 = matmul float32[i < n, j < 8; k < 16]: %1[i, k], %2[k, j]
return %3, %4)");
}

TEST(MergeMatmuls, OneBiasOfTwoIsAReason) {
  const char* graph = R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = constant float32[8] {...}
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"q"
%4 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"k"
%5 = loop float32[i < n, j < 8]: %4[i, j] + %2[j] @"bias"
return %3, %5)";
  expect_unchanged("merge_matmuls", graph);
  EXPECT_THAT(remarks_of("merge_matmuls", graph),
              ElementsAre("k: not merged with 'q': one has a bias, the other has none"));
}

}  // namespace
}  // namespace sardonyx
