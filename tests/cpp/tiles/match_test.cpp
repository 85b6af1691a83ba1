// What the host's GEMM, convolution and attention take, and why they refuse the rest.
#include "tiles/match.h"

#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> refusals(std::string_view graph) {
  return remarks_of("tiles_to_loops", graph, tiles::host_fuse_options());
}

TEST(HostTiles, TransposedBatchedProducts) {
  EXPECT_THAT(refusals(R"(%0 = input float32[b, n, 16]
%1 = input float32[b, 8, 16]
%2 = matmul float32[z < b, i < n, j < 8; k < 16]: %0[z, i, k], %1[z, j, k] @"product"
return %2)"),
              IsEmpty());
}

TEST(HostTiles, IntegersRunAsLoops) {
  EXPECT_THAT(
      refusals(R"(%0 = input int32[n, 16]
%1 = input int32[16, 8]
%2 = matmul int32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"product"
return %2)"),
      ElementsAre("product: runs as a loop: operands are not tensors in memory, of floats or of uint8 and int8"));
}

TEST(HostTiles, StridedOperandsRunAsLoops) {
  EXPECT_THAT(refusals(R"(%0 = input float32[n, 32]
%1 = input float32[16, 8]
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, 2 * k], %1[k, j] @"product"
return %2)"),
              ElementsAre("product: runs as a loop: an operand is not a contiguous matrix"));
}

TEST(HostTiles, ConvolutionsOfFourDimsRunAsLoops) {
  EXPECT_THAT(refusals(R"(%0 = input float32[1, 4, 3, 3, 3, 3]
%1 = input float32[8, 4, 1, 1, 1, 1]
%2 = conv float32[1, 8, 3, 3, 3, 3]: %0, %1 @"conv"
return %2)"),
              ElementsAre("conv: runs as a loop: the host's convolution supports 1 to 3 spatial dims"));
}

TEST(HostTiles, EpiloguesOfOtherFunctionsAreLoops) {
  EXPECT_THAT(remarks_of("epilogues", R"(%0 = input float32[n, 16]
%1 = input float32[16, 8]
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"product"
%3 = loop float32[i < n, j < 8]: sin(%2[i, j]) @"sin"
return %3)",
                         tiles::host_fuse_options()),
              ElementsAre(HasSubstr("product: 'sin' does not run as an epilogue: the host has no such epilogue step")));
}

TEST(HostTiles, EpiloguesOfActivationsAndBiases) {
  EXPECT_THAT(remarks_of("epilogues", R"(%0 = input float32[n, 16]
%1 = input float32[16, 8]
%2 = input float32[8]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j] @"product"
%4 = loop float32[i < n, j < 8]: max(%3[i, j] + %2[j], 0.0) @"relu"
return %4)",
                         tiles::host_fuse_options()),
              ElementsAre("product: its result is an output of the graph"));
}

}  // namespace
}  // namespace sardonyx
