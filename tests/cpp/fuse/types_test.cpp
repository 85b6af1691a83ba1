// Passes that change element types: narrow_floats, widen_halves, integer_gemm, float8_gemm.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions narrowing() {
  FuseOptions o = any_device();
  o.precision = DType::kFloat16;
  return o;
}

TEST(NarrowFloats, ProductsAndWhatFollowsThem) {
  expect_pass("narrow_floats", R"(%0 = input float32[n, 256]
%1 = constant float32[256, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 256]: %0[i, k], %1[k, j]
%3 = loop float32[i < n, j < 8]: %2[i, j] * 2.0
%4 = loop float32[i < n, j < 8]: exp(%3[i, j])
return %4)",
              R"(%0 = input float32[n, 256]
%1 = constant float32[256, 8] {...}
%2 = loop float16[i < 256, j < 8]: float16:16(%1[i, j])
%3 = loop float16[i < n, j < 256]: float16:16(%0[i, j])
%4 = matmul float16[i < n, j < 8; k < 256]: %3[i, k], %2[k, j]
%5 = loop float16[i < n, j < 8]: float16:16(float32(%4[i, j]) * 2.0)
%6 = loop float32[i < n, j < 8]: exp(float32(%5[i, j]))
return %6)",
              narrowing());
}

// The sums of 8-bit products stay as they are; what is computed from them is stored in 16 bits.
TEST(NarrowFloats, WhatFollowsProductsOfEightBits) {
  expect_pass("narrow_floats", R"(%0 = input int8[n, 16]
%1 = constant int8[16, 8] {...}
%2 = matmul int32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop int32[i < n, j < 8]: %2[i, j] + %2[i, j]
%4 = loop float32[i < n, j < 8]: float32(%3[i, j]) * 0.5
%5 = loop float32[i < n, j < 8]: exp(%4[i, j])
return %5)",
              R"(%0 = input int8[n, 16]
%1 = constant int8[16, 8] {...}
%2 = matmul int32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop int32[i < n, j < 8]: %2[i, j] + %2[i, j]
%4 = loop float16[i < n, j < 8]: float16:16(float32(%3[i, j]) * 0.5)
%5 = loop float32[i < n, j < 8]: exp(float32(%4[i, j]))
return %5)",
              narrowing());
}

TEST(NarrowFloats, LongSumsStayInFloat32) {
  const char* graph = R"(%0 = input float16[n, 16]
%1 = constant float16[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop float32[i < n]: sum{r < 8}(%2[i, r])
%4 = loop float32[i < n]: %3[i] * 2.0
return %4)";
  expect_unchanged("narrow_floats", graph, narrowing());
}

// Log-softmax, whose values may be added up over hundreds of steps; a softplus is narrowed.
TEST(NarrowFloats, LogarithmsOfSumsStayInFloat32) {
  const char* graph = R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop float32[i < n]: sum{r < 8}(exp(%2[i, r]))
%4 = loop float32[i < n, j < 8]: %2[i, j] - log(%3[i])
%5 = loop float32[i < n, j < 8]: log(1.0 + exp(%2[i, j]))
%6 = loop float32[i < n]: max{r < 8}(%4[i, r] + %5[i, r])
return %6)";
  const std::string after = after_pass("narrow_floats", graph, narrowing());
  EXPECT_THAT(after, testing::HasSubstr("loop float32[i0 < n, i1 < 8]"));
  EXPECT_THAT(after, testing::HasSubstr("float16:16(log(1.0 +"));
}

TEST(NarrowFloats, ValuesThatLeaveTheRangeStayInFloat32) {
  FuseOptions o = narrowing();
  const std::map<std::string, float, std::less<>> ranges = {{"a", 1e5F}, {"c", 20.0F}};
  o.ranges = std::make_shared<const std::map<std::string, float, std::less<>>>(ranges);
  // b has no range, but is computed from a; c, the next product and what follows it are in range.
  expect_pass("narrow_floats", R"(%0 "x" = input float32[n, 256]
%1 = constant float32[256, 8] {...}
%2 "a" = matmul float32[i < n, j < 8; k < 256]: %0[i, k], %1[k, j]
%3 "b" = loop float32[i < n, j < 8]: %2[i, j] * %2[i, j]
%4 = constant float32[8, 256] {...}
%5 "c" = matmul float32[i < n, j < 256; k < 8]: %3[i, k], %4[k, j]
%6 "y" = matmul float32[i < n, j < 8; k < 256]: %5[i, k], %1[k, j]
%7 = loop float32[i < n, j < 8]: exp(%6[i, j])
return %7)",
              R"(%0 "x" = input float32[n, 256]
%1 = constant float32[256, 8] {...}
%2 = loop float16[i < 256, j < 8]: float16:16(%1[i, j])
%3 = loop float16[i < n, j < 256]: float16:16(%0[i, j])
%4 "a" = matmul float32[i < n, j < 8; k < 256]: %3[i, k], %2[k, j]
%5 "b" = loop float32[i < n, j < 8]: %4[i, j] * %4[i, j]
%6 = constant float32[8, 256] {...}
%7 "c" = matmul float32[i < n, j < 256; k < 8]: %5[i, k], %6[k, j]
%8 = loop float16[i < n, j < 256]: float16:16(%7[i, j])
%9 "y" = matmul float16[i < n, j < 8; k < 256]: %8[i, k], %2[k, j]
%10 = loop float32[i < n, j < 8]: exp(float32(%9[i, j]))
return %10)",
              o);
}

TEST(NarrowFloats, RemarksSayWhatStaysInFloat32) {
  const char* graph = R"(%0 = input float32[n, 256]
%1 = constant float32[256, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 256]: %0[i, k], %1[k, j]
%3 = loop float32[i < n]: sum{r < 8}(%2[i, r]) @"total"
%4 = loop float32[i < n, j < 8]: %2[i, j] * 2.0 @"double"
return %3, %4)";
  EXPECT_THAT(remarks_of("narrow_floats", graph, narrowing()),
              ElementsAre("total: kept in float32: an output of the model or a routine needs this type",
                          "double: kept in float32: an output of the model or a routine needs this type"));
  const std::string inner = std::string(graph).substr(0, std::string(graph).find("return")) +
                            "%5 = loop float32[i < n]: exp(%3[i])\nreturn %5";
  EXPECT_THAT(remarks_of("narrow_floats", inner, narrowing()),
              ElementsAre("total: kept in float32: it sums up many elements, and the sum may leave the range of 16-bit "
                          "floats"));
}

TEST(NarrowFloats, WithoutProductsNothingChanges) {
  expect_unchanged("narrow_floats", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
%2 = loop float32[i < n]: sin(%1[i])
return %2)",
                   narrowing());
}

FuseOptions widening() {
  FuseOptions o = any_device();
  o.widen_halves = true;
  return o;
}

TEST(WidenHalves, ValuesBetweenInputsAndOutputs) {
  expect_pass("widen_halves", R"(%0 = input float16[n]
%1 = loop float16[i < n]: exp(%0[i])
%2 = loop float16[i < n]: sin(%1[i])
return %2)",
              R"(%0 = input float16[n]
%1 = loop float32[i < n]: exp(float32(%0[i]))
%2 = loop float16[i < n]: float16(sin(%1[i]))
return %2)",
              widening());
}

TEST(WidenHalves, CastsOfTheModelRound) {
  expect_pass("widen_halves", R"(%0 = input float32[n]
%1 = loop float16[i < n]: float16:8(%0[i])
%2 = loop float32[i < n]: float32(%1[i]) * 2.0
return %2)",
              R"(%0 = input float32[n]
%1 = loop float32[i < n]: float32(float16:8(%0[i]))
%2 = loop float32[i < n]: %1[i] * 2.0
return %2)",
              widening());
}

TEST(WidenHalves, Float32StaysAsItIs) {
  expect_unchanged("widen_halves", R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i])
return %1)",
                   widening());
}

FuseOptions integers() {
  FuseOptions o = any_device();
  o.integer_tiles = true;
  return o;
}

TEST(IntegerGemm, SignedProductsWithoutZeroPoints) {
  expect_pass("integer_gemm", R"(%0 = input int8[n, 16]
%1 = constant int8[1] {0}
%2 = constant int8[16, 8] {...}
%3 = constant int8[1] {0}
%4 = routine "integer_pack" uint8[640]: %2, %3 {params = [0]}
%5 = routine "integer_matmul" int32[n, 8]: %0, %1, %4
return %5)",
              R"(%0 = input int8[n, 16]
%1 = constant int8[16, 8] {...}
%2 = matmul int32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%3 = loop int32[i < n, j < 8]: %2[i, j]
%4 = loop int32[i < n, j < 8]: %3[i, j]
return %4)",
              integers());
}

FuseOptions host_integers() {
  FuseOptions o = integers();
  o.integer_left = DType::kUInt8;
  return o;
}

TEST(IntegerGemm, TheHostMultipliesUnsignedBySignedBytes) {
  // The left operand gets 128 more, which the sums of the right one's columns correct.
  expect_pass("integer_gemm", R"(%0 = input int8[n, 16]
%1 = constant int8[1] {0}
%2 = constant int8[16, 8] {...}
%3 = constant int8[1] {0}
%4 = routine "integer_pack" uint8[640]: %2, %3 {params = [0]}
%5 = routine "integer_matmul" int32[n, 8]: %0, %1, %4
return %5)",
              R"(%0 = input int8[n, 16]
%1 = constant int8[16, 8] {...}
%2 = loop uint8[i < n, j < 16]: bitcast:uint8(%0[i, j]) ^ 128:uint8
%3 = matmul int32[i < n, j < 8; k < 16]: %2[i, k], %1[k, j]
%4 = constant int32[8] {19, 21, 23, 21, 19, 21, 20, 19}
%5 = loop int32[i < n, j < 8]: %3[i, j] - 128:int32 * %4[j]
%6 = loop int32[i < n, j < 8]: %5[i, j]
return %6)",
              host_integers());
}

TEST(IntegerGemm, TheHostPadsWithTheZeroPoint) {
  const char* graph = R"(%0 = input uint8[n, 3, 8, 8]
%1 = constant uint8[1] {7}
%2 = constant int8[4, 27] {...}
%3 = constant int8[1] {0}
%4 = routine "integer_pack" uint8[2176]: %2, %3 {params = [1]}
%5 = routine "integer_conv" int32[n, 4, 8, 8]: %0, %1, %4 {params = [1, 1, 1, 1, 1, 1, 3, 3]}
return %5)";
  EXPECT_THAT(after_pass("integer_gemm", graph, host_integers()),
              testing::HasSubstr("conv int32[n, 4, 8, 8]: %0, %1 {pads = [1, 1, 1, 1], padding = 7}"));
  // GPUs read a padded copy.
  EXPECT_THAT(after_pass("integer_gemm", graph, integers()), testing::Not(testing::HasSubstr("padding")));
}

TEST(IntegerGemm, OtherRoutinesStay) {
  expect_unchanged("integer_gemm", R"(%0 = input int8[n, 16]
%1 = routine "sort" int8[n, 16]: %0
return %1)",
                   integers());
}

FuseOptions float8() {
  FuseOptions o = any_device();
  o.float8_tiles = DType::kFloat8E4M3FN;
  return o;
}

TEST(Float8Products, ScalesApplyToTheSum) {
  expect_pass("float8_gemm", R"(%0 = input float8_e4m3fn[n, 16]
%1 = input float8_e4m3fn[16, 8]
%2 = input float32[8]
%3 = loop float32[i < n, j < 16]: float32(%0[i, j]) * 0.5
%4 = loop float32[i < 16, j < 8]: float32(%1[i, j]) * %2[j]
%5 = matmul float32[i < n, j < 8; k < 16]: %3[i, k], %4[k, j]
return %5)",
              R"(%0 = input float8_e4m3fn[n, 16]
%1 = input float8_e4m3fn[16, 8]
%2 = input float32[8]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
%4 = loop float32[i < n, j < 8]: %3[i, j] * (0.5 * %2[j])
return %4)",
              float8());
}

TEST(Float8Products, ScalesPerRowOfTheLeftOperandStayInFloat32) {
  const char* graph = R"(%0 = input float8_e4m3fn[n, 16]
%1 = input float8_e4m3fn[16, 8]
%2 = input float32[16]
%3 = loop float32[i < n, j < 16]: float32(%0[i, j]) * %2[j]
%4 = loop float32[i < 16, j < 8]: float32(%1[i, j]) * 0.5
%5 = matmul float32[i < n, j < 8; k < 16]: %3[i, k], %4[k, j] @"fc"
return %5)";
  expect_unchanged("float8_gemm", graph, float8());
  EXPECT_THAT(remarks_of("float8_gemm", graph, float8()),
              ElementsAre("fc: multiplied in float32: the left operand has more than one scale"));
}

TEST(Float8Products, OtherTypesStay) {
  expect_unchanged("float8_gemm", R"(%0 = input float8_e5m2[n, 16]
%1 = input float8_e5m2[16, 8]
%2 = loop float32[i < n, j < 16]: float32(%0[i, j]) * 0.5
%3 = loop float32[i < 16, j < 8]: float32(%1[i, j]) * 0.5
%4 = matmul float32[i < n, j < 8; k < 16]: %2[i, k], %3[k, j]
return %4)",
                   float8());
}

}  // namespace
}  // namespace sardonyx
