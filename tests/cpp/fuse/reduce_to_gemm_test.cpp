// The pass reduce_to_gemm.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// State-space models in chunks: outputs of a chunk by queries and keys, for each head. The products are over
// [chunk, query, key, head, state].
constexpr const char* kBroadcast = R"(%0 = input float32[n, 64, 4, 32]
%1 = input float32[n, 64, 4, 32]
%2 = loop float32[c < n, i < 64, j < 64, h < 4, s < 32]: %0[c, i, h, s] * %1[c, j, h, s] @"mul"
%3 = loop float32[c < n, i < 64, j < 64, h < 4]: sum{s < 32}(%2[c, i, j, h, s]) @"sum"
return %3)";

TEST(ReduceToGemm, ProductsOfBroadcastTensors) {
  expect_pass("reduce_to_gemm", kBroadcast, R"(%0 = input float32[n, 64, 4, 32]
%1 = input float32[n, 64, 4, 32]
%2 = matmul float32[c < n, h < 4, i < 64, j < 64; s < 32]: %0[c, i, h, s], %1[c, j, h, s] @"sum"
%3 = loop float32[c < n, i < 64, j < 64, h < 4]: %2[c, h, i, j] @"sum"
return %3)");
}

TEST(ReduceToGemm, ViewsAndExpandedTensorsBetween) {
  expect_pass("reduce_to_gemm", R"(%0 = input float32[64, 32]
%1 = input float32[48, 32]
%2 = loop float32[i < 64, j < 48, s < 32]: %0[i, s] @"expand"
%3 = view float32[1, 48, 32]: %1
%4 = loop float32[i < 64, j < 48, s < 32]: %2[i, j, s] * %3[0, j, s] @"mul"
%5 = loop float32[i < 64, j < 48]: sum{s < 32}(%4[i, j, s]) @"sum"
return %5)",
              R"(%0 = input float32[64, 32]
%1 = input float32[48, 32]
%2 = matmul float32[i < 64, j < 48; s < 32]: %0[i, s], %1[j, s] @"sum"
%3 = loop float32[i < 64, j < 48]: %2[i, j] @"sum"
return %3)");
}

TEST(ReduceToGemm, FurtherFactorsGoToTheSideThatHasTheirDims) {
  expect_pass("reduce_to_gemm", R"(%0 = input float32[64, 32]
%1 = input float32[48, 32]
%2 = input float32[32]
%3 = loop float32[i < 64, j < 48, s < 32]: %0[i, s] * %1[j, s] @"mul"
%4 = loop float32[i < 64, j < 48, s < 32]: %3[i, j, s] * %2[s] @"mul"
%5 = loop float32[i < 64, j < 48]: sum{s < 32}(%4[i, j, s]) @"sum"
return %5)",
              R"(%0 = input float32[64, 32]
%1 = input float32[48, 32]
%2 = input float32[32]
%3 = loop float32[i < 64, s < 32]: %0[i, s] * %2[s] @"sum"
%4 = matmul float32[i < 64, j < 48; s < 32]: %3[i, s], %1[j, s] @"sum"
%5 = loop float32[i < 64, j < 48]: %4[i, j] @"sum"
return %5)");
}

TEST(ReduceToGemm, SumsOverSeveralDimsBecomeOne) {
  expect_pass("reduce_to_gemm", R"(%0 = input float32[n, 12, 10]
%1 = input float32[12, 10, 48]
%2 = loop float32[i < n, j < 48]: sum{r < 12, s < 10}(%0[i, r, s] * %1[r, s, j]) @"sum"
return %2)",
              R"(%0 = input float32[n, 12, 10]
%1 = input float32[12, 10, 48]
%2 = matmul float32[i < n, j < 48; k < 120]: %0[i, floordiv(k, 10), mod(k, 10)], %1[floordiv(k, 10), mod(k, 10), j] @"sum"
%3 = loop float32[i < n, j < 48]: %2[i, j] @"sum"
return %3)");
}

// As a GEMM, each element would be read for every window that has it.
TEST(ReduceToGemm, WindowsStay) {
  expect_unchanged("reduce_to_gemm", R"(%0 = input float32[40, 20]
%1 = input float32[8, 4, 32]
%2 = loop float32[i < 33, j < 32]: sum{r < 8, s < 4}(%0[i + r, s] * %1[r, s, j]) @"sum"
return %2)");
}

// {}: what is multiplied by what, of float32 %0[i, s] and float16 %1[j, s].
std::string after_of_types(const std::string& product) {
  return after_pass("reduce_to_gemm",
                    "%0 = input float32[64, 32]\n%1 = input float16[48, 32]\n%2 = input float16[64, 32]\n"
                    "%3 = loop float16[i < 64, j < 48, s < 32]: float16(" +
                        product +
                        ") @\"mul\"\n%4 = loop float16[i < 64, j < 48]: "
                        "float16(sum{s < 32}(float32(%3[i, j, s]))) @\"sum\"\nreturn %4",
                    any_device());
}

TEST(ReduceToGemm, OperandsHaveOneTypeThatTheModelMultiplies) {
  EXPECT_THAT(after_of_types("float32(%2[i, s]) * float32(%1[j, s])"),
              HasSubstr("matmul float16[i0 < 64, i1 < 48; i2 < 32]"));
  // Operands of two types; one that is rounded first.
  for (const char* other : {"%0[i, s] * float32(%1[j, s])", "float32(float16(%0[i, s])) * float32(%1[j, s])"})
    EXPECT_THAT(after_of_types(other), testing::Not(HasSubstr("matmul"))) << other;
}

TEST(ReduceToGemm, ProductsThatAreNeededElsewhereStay) {
  std::string graph(kBroadcast);
  graph.replace(graph.rfind("return"), std::string::npos, "return %2, %3");
  expect_unchanged("reduce_to_gemm", graph.c_str());
}

TEST(ReduceToGemm, OtherSumsStay) {
  const auto with = [](const std::string& sum) {
    return "%0 = input float32[64, 32]\n%1 = input float32[64, 32]\n%2 = input float32[48, 8]\n"
           "%3 = loop float32[i < 64, j < 48, s < 32]: " +
           sum + " @\"mul\"\n%4 = loop float32[i < 64, j < 48]: sum{s < 32}(%3[i, j, s]) @\"sum\"\nreturn %4";
  };
  // Both have rows; a factor has rows and columns; a factor is no tensor.
  for (const char* sum : {"%0[i, s] * %1[i, s]", "%0[i, s] * %2[j, 0] * %2[mod(j + i, 48), mod(s, 8)]",
                          "%0[i, s] * exp(%2[j, mod(s, 8)])"})
    expect_unchanged("reduce_to_gemm", with(sum).c_str());
  EXPECT_THAT(remarks_of("reduce_to_gemm", with("%0[i, s] * %1[i, s]").c_str()),
              ElementsAre("sum: no two tensors have rows and columns of their own"));
  const char* kShort = R"(%0 = input float32[64, 4]
%1 = input float32[48, 4]
%2 = loop float32[i < 64, j < 48, s < 4]: %0[i, s] * %1[j, s] @"mul"
%3 = loop float32[i < 64, j < 48]: sum{s < 4}(%2[i, j, s]) @"sum"
return %3)";
  expect_unchanged("reduce_to_gemm", kShort);
  EXPECT_THAT(remarks_of("reduce_to_gemm", kShort), ElementsAre("sum: its sums of products are short"));
}

}  // namespace
}  // namespace sardonyx
