// Attention whose result is stored in 8 bits in another order of its dims.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

constexpr const char* kHeads = R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, t, 16]
%3 = attention float32[1, 2, s, 16] over [b < 1, h < 2, i < s, j < t, d < 16, e < 16] {scale = 0.25, q = %0[b, h, i, d], k = %1[b, h, j, d], v = %2[b, h, j, e]} @"attention"
)";

FuseOptions gpu() {
  FuseOptions o = any_device();
  o.attention_expressions = true;
  return o;
}

// Heads beside each other, as the GEMM behind attention reads them.
TEST(QuantizeAttention, IsRoundedInItsOwnOrder) {
  expect_pass("quantize_attention",
              std::string(kHeads) + R"(%4 = loop int8[i < s, j < 32]: int8(%3[0, floordiv(j, 16), i, mod(j, 16)] * 4.0)
return %4)",
              std::string(kHeads) + R"(%4 = loop int8[b < 1, h < 2, i < s, d < 16]: int8(%3[b, h, i, d] * 4.0)
%5 = loop int8[b < 1, i < s, h < 2, d < 16]: %4[b, h, i, d]
%6 = view int8[s, 32]: %5
return %6)",
              gpu());
}

TEST(QuantizeAttention, AnEpilogueInItsOrderStays) {
  expect_unchanged("quantize_attention",
                   std::string(kHeads) + "%4 = loop int8[h < 2, i < s, d < 16]: int8(%3[0, h, i, d] * 4.0)\nreturn %4",
                   gpu());
}

TEST(QuantizeAttention, AResultThatSomethingElseReadsStays) {
  expect_unchanged(
      "quantize_attention",
      std::string(kHeads) + R"(%4 = loop int8[i < s, j < 32]: int8(%3[0, floordiv(j, 16), i, mod(j, 16)] * 4.0)
return %3, %4)",
      gpu());
}

TEST(QuantizeAttention, ResultsOfMoreThanEightBitsStay) {
  expect_unchanged(
      "quantize_attention",
      std::string(kHeads) + R"(%4 = loop float16[i < s, j < 32]: float16(%3[0, floordiv(j, 16), i, mod(j, 16)] * 4.0)
return %4)",
      gpu());
}

TEST(QuantizeAttention, AnOrderThatIsNoTransposeIsNamed) {
  const std::string graph =
      std::string(kHeads) +
      R"(%4 = loop int8[i < s, j < 32]: int8(%3[0, floordiv(j, 16), i, 15 - mod(j, 16)] * 4.0) @"reversed"
return %4)";
  expect_unchanged("quantize_attention", graph, gpu());
  EXPECT_THAT(remarks_of("quantize_attention", graph, gpu()),
              testing::ElementsAre("reversed: it reads attention's result in an order that is no transpose"));
}

}  // namespace
}  // namespace sardonyx
