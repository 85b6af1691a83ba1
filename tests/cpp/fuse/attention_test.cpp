// Recognition of attention.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kAttention = R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, t, 16]
%3 = matmul float32[b < 1, h < 2, i < s, j < t; k < 16]: %0[b, h, i, k], %1[b, h, j, k] @"scores"
%4 = loop float32[b < 1, h < 2, i < s]: max{r < t}(%3[b, h, i, r] * 0.25) @"max"
%5 = loop float32[b < 1, h < 2, i < s, j < t]: exp(%3[b, h, i, j] * 0.25 - %4[b, h, i]) @"exp"
%6 = loop float32[b < 1, h < 2, i < s]: sum{r < t}(exp(%3[b, h, i, r] * 0.25 - %4[b, h, i])) @"sum"
%7 = loop float32[b < 1, h < 2, i < s, j < t]: exp(%3[b, h, i, j] * 0.25 - %4[b, h, i]) / %6[b, h, i] @"div"
%8 = matmul float32[b < 1, h < 2, i < s, j < 16; k < t]: %7[b, h, i, k], %2[b, h, k, j] @"attention"
)";

TEST(Attention, SoftmaxOfAProductTimesValues) {
  expect_pass("attention", std::string(kAttention) + "return %8", R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, t, 16]
%3 = attention float32[1, 2, s, 16] over [b < 1, h < 2, i < s, j < t, d < 16, e < 16] {scale = 0.25, q = %0[b, h, i, d], k = %1[b, h, j, d], v = %2[b, h, j, e]} @"attention"
return %3)");
}

// Windows of a volume in several dims: one dim of the batch has them all. The result is a view of attention's.
TEST(Attention, BatchesOfSeveralDims) {
  EXPECT_EQ(after_pass("attention", R"(%0 = input float32[n, 4, 3, 2, 16, 16]
%1 = input float32[4, 2, 16, 16]
%2 = matmul float32[b < n, y < 4, x < 3, h < 2, i < 16, j < 16; k < 16]: %0[b, y, x, h, i, k], %0[b, y, x, h, j, k]
%3 = loop float32[b < n, y < 4, x < 3, h < 2, i < 16]: max{r < 16}(%2[b, y, x, h, i, r] + %1[y, h, i, r])
%4 = loop float32[b < n, y < 4, x < 3, h < 2, i < 16]: sum{r < 16}(exp(%2[b, y, x, h, i, r] + %1[y, h, i, r] - %3[b, y, x, h, i]))
%5 = loop float32[b < n, y < 4, x < 3, h < 2, i < 16, j < 16]: exp(%2[b, y, x, h, i, j] + %1[y, h, i, j] - %3[b, y, x, h, i]) / %4[b, y, x, h, i]
%6 = matmul float32[b < n, y < 4, x < 3, h < 2, i < 16, e < 16; k < 16]: %5[b, y, x, h, i, k], %0[b, y, x, h, k, e] @"attention"
return %6)",
                       any_device()),
            canonical(canonical(R"(%0 = input float32[n, 4, 3, 2, 16, 16]
%1 = input float32[4, 2, 16, 16]
%2 = attention float32[n * 12, 2, 16, 16] over [w < n * 12, h < 2, i < 16, j < 16, d < 16, e < 16] {scale = 1.0, q = %0[floordiv(w, 12), mod(floordiv(w, 3), 4), mod(w, 3), h, i, d], k = %0[floordiv(w, 12), mod(floordiv(w, 3), 4), mod(w, 3), h, j, d], v = %0[floordiv(w, 12), mod(floordiv(w, 3), 4), mod(w, 3), h, j, e], bias = %1[mod(floordiv(w, 3), 4), h, i, j]} @"attention"
%3 = view float32[n, 4, 3, 2, 16, 16]: %2 @"attention"
return %3)")));
}

TEST(Attention, WhatIsSubtractedFromAllScoresChangesNothing) {
  const std::string found = after_pass("attention", R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, t, 16]
%3 = matmul float32[b < 1, h < 2, i < s, j < t; k < 16]: %0[b, h, i, k], %1[b, h, j, k] @"scores"
%4 = loop float32[b < 1, h < 2, i < s]: max{r < t}(%3[b, h, i, r] * 0.25)
%5 = loop float32[b < 1, h < 2, i < s]: max{r < t}(%3[b, h, i, r] * 0.25 - %4[b, h, i])
%6 = loop float32[b < 1, h < 2, i < s]: sum{r < t}(exp(%3[b, h, i, r] * 0.25 - %4[b, h, i] - %5[b, h, i]))
%7 = loop float32[b < 1, h < 2, i < s, j < t]: exp(%3[b, h, i, j] * 0.25 - %4[b, h, i] - %5[b, h, i]) / %6[b, h, i]
%8 = matmul float32[b < 1, h < 2, i < s, e < 16; k < t]: %7[b, h, i, k], %2[b, h, k, e] @"attention"
return %8)",
                                       any_device());
  EXPECT_THAT(found, HasSubstr("{scale = 0.25, q = %0[i0, i1, i2, i4], k = %1[i0, i1, i3, i4], v = %2[i0, i1, i3, "
                               "i5]}"));
}

// LightGlue attends in both directions with one product: the softmax over its rows has queries in its columns.
TEST(Attention, TransposedScoresSwapQueriesAndKeys) {
  expect_pass("attention", R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, s, 16]
%3 = matmul float32[b < 1, h < 2, i < s, j < t; k < 16]: %0[b, h, i, k], %1[b, h, j, k] @"scores"
%4 = loop float32[b < 1, h < 2, j < t]: max{r < s}(%3[b, h, r, j])
%5 = loop float32[b < 1, h < 2, j < t]: sum{r < s}(exp(%3[b, h, r, j] - %4[b, h, j]))
%6 = loop float32[b < 1, h < 2, j < t, i < s]: exp(%3[b, h, i, j] - %4[b, h, j]) / %5[b, h, j]
%7 = matmul float32[b < 1, h < 2, j < t, e < 16; k < s]: %6[b, h, j, k], %2[b, h, k, e] @"attention"
return %7)",
              R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, s, 16]
%3 = attention float32[1, 2, t, 16] over [b < 1, h < 2, i < t, j < s, d < 16, e < 16] {scale = 1.0, q = %1[b, h, i, d], k = %0[b, h, j, d], v = %2[b, h, j, e]} @"attention"
return %3)");
}

// Values with channels first times the transposed softmax (attention in YOLO's detectors). What reads the result, also
// through a view, reads attention's.
TEST(Attention, ValuesTimesTheTransposedSoftmax) {
  std::string text(kAttention);
  text = text.substr(0, text.find("%8 = ")) +
         R"(%8 = matmul float32[b < 1, h < 2, e < 16, i < s; j < t]: %2[b, h, j, e], %7[b, h, i, j] @"attention"
%9 = view float32[1, 32, s]: %8
%10 = loop float32[b < 1, c < 32, i < s]: tanh(%9[b, c, i])
%11 = loop float32[b < 1, h < 2, e < 16, i < s]: exp(%8[b, h, e, i])
return %10, %11)";
  const std::string found = after_pass("attention", text, any_device());
  EXPECT_THAT(found,
              HasSubstr("%3 = attention float32[1, 2, s, 16] over [i0 < 1, i1 < 2, i2 < s, i3 < t, i4 < 16, i5 < "
                        "16] {scale = 0.25, q = %0[i0, i1, i2, i4], k = %1[i0, i1, i3, i4], v = %2[i0, i1, i3, "
                        "i5]}"));
  EXPECT_THAT(found, HasSubstr("tanh(%3[0, floordiv(i1, 16), i2, mod(i1, 16)])"));
  EXPECT_THAT(found, HasSubstr("exp(%3[i0, i1, i3, i2])"));
}

// A softmax over the scores and a sink of each head in a further column (gpt-oss), less the largest of them or not.
std::string sink_in_a_column(const std::string& less, const std::string& sink) {
  std::string text = R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = input float32[1, 2, t, 16]
%3 = input float32[2, s]
%4 = matmul float32[b < 1, h < 2, i < s, j < t; k < 16]: %0[b, h, i, k], %1[b, h, j, k] @"scores"
%5 = loop float32[b < 1, h < 2, i < s]: max{r < t + 1}(select(r < t, %4[b, h, i, r] * 0.25, SINK))
%6 = loop float32[b < 1, h < 2, i < s]: max{r < t + 1}(select(r < t, %4[b, h, i, r] * 0.25, SINK)LESS)
%7 = loop float32[b < 1, h < 2, i < s]: sum{r < t + 1}(exp(select(r < t, %4[b, h, i, r] * 0.25, SINK)LESS - %6[b, h, i]))
%8 = loop float32[b < 1, h < 2, i < s, j < t]: exp(%4[b, h, i, j] * 0.25LESS - %6[b, h, i]) / %7[b, h, i]
%9 = matmul float32[b < 1, h < 2, i < s, e < 16; k < t]: %8[b, h, i, k], %2[b, h, k, e] @"attention"
return %9)";
  for (const auto& [name, by] : {std::pair<std::string, std::string>("LESS", less), {"SINK", sink}})
    for (auto p = text.find(name); p != std::string::npos; p = text.find(name)) text.replace(p, name.size(), by);
  FuseOptions o = any_device();
  o.attention_limits = o.attention_expressions = true;
  return after_pass("attention", after_pass("peel_reductions", text, o), o);
}

TEST(Attention, ASinkInAFurtherColumn) {
  const auto found = HasSubstr(
      "{scale = 0.25, q = %0[i0, i1, i2, i4], k = %1[i0, i1, i3, i4], v = %2[i0, i1, i3, i5], sink = %3[i1, 0]}");
  EXPECT_THAT(sink_in_a_column("", "%3[h, 0]"), found);
  EXPECT_THAT(sink_in_a_column(" - %5[b, h, i]", "%3[h, 0]"), found);
  EXPECT_THAT(sink_in_a_column("", "%3[h, i]"), testing::Not(HasSubstr("= attention")));
}

// Scores of all heads of all sequences in one dim, as baddbmm has them; values in two.
std::string merged_heads(const std::string& at) {
  std::string text = R"(%0 = input float32[n * 2, s, 16]
%1 = input float32[n * 2, t, 16]
%2 = input float32[n, 2, t, 16]
%3 = matmul float32[g < n * 2, i < s, j < t; k < 16]: %0[g, i, k], %1[g, j, k]
%4 = loop float32[b < n, h < 2, i < s, u < 1]: max{r < t}(@r] * 0.25)
%5 = loop float32[b < n, h < 2, i < s, u < 1]: sum{r < t}(exp(@r] * 0.25 - %4[b, h, i, 0]))
%6 = loop float32[b < n, h < 2, i < s, j < t]: exp(@j] * 0.25 - %4[b, h, i, 0]) / %5[b, h, i, 0]
%7 = matmul float32[b < n, h < 2, i < s, j < 16; k < t]: %6[b, h, i, k], %2[b, h, k, j]
return %7)";
  for (auto p = text.find('@'); p != std::string::npos; p = text.find('@')) text.replace(p, 1, "%3[" + at + ", ");
  return after_pass("attention", text, any_device());
}

TEST(Attention, HeadsOfTheScoresMayBeMerged) {
  EXPECT_THAT(merged_heads("b * 2 + h, i"),
              HasSubstr("{scale = 0.25, "
                        "q = %0[i0 * 2 + i1, i2, i4], k = %1[i0 * 2 + i1, i3, i4], v = %2[i0, i1, i3, i5]}"));
  EXPECT_THAT(merged_heads("mod(i, 2), b"), testing::Not(HasSubstr("= attention")));
}

// kAttention with `body` in place of the softmax, which is %7, before the second product; all forms recognised.
std::string guarded_attention(const std::string& body) {
  std::string text(kAttention);
  const auto last = text.find("%8 = ");
  text = text.substr(0, last) + "%8 = loop float32[b < 1, h < 2, i < s, j < t]: " + body + " @\"guard\"\n" +
         "%9 = matmul float32[b < 1, h < 2, i < s, j < 16; k < t]: %8[b, h, i, k], %2[b, h, k, j] @\"attention\"\n";
  FuseOptions o = any_device();
  o.attention_limits = true;
  return after_pass("attention", text + "return %9", o);
}

TEST(Attention, NanThatBecomesZeroIsARowWithoutKeys) {
  EXPECT_THAT(guarded_attention("select(isnan(%7[b, h, i, j]), 0.0, %7[b, h, i, j])"), HasSubstr("zero_empty}"));
  for (const char* other :
       {"select(isnan(%7[b, h, i, j]), 1.0, %7[b, h, i, j])", "select(isnan(%3[b, h, i, j]), 0.0, %7[b, h, i, j])",
        "select(isinf(%7[b, h, i, j]), 0.0, %7[b, h, i, j])"})
    EXPECT_THAT(guarded_attention(other), testing::Not(HasSubstr("= attention"))) << other;
}

// The bias of all rows of tokens is a product, loaded at `at`.
std::string product_as_bias(std::string_view product, std::string_view at) {
  std::string text = R"(%0 = input float32[n, 5, 4, s, 16]
%1 = input float32[n, 5, 4, s, 16]
%2 = input float32[n, 5, 4, s, 16]
%3 = input float32[n, s, s, 32]
%4 = input float32[4, s, 32]
%5 = matmul float32PRODUCT
%6 = matmul float32[b < n, r < 5, h < 4, i < s, j < s; k < 16]: %0[b, r, h, i, k], %1[b, r, h, j, k]
%7 = loop float32[b < n, r < 5, h < 4, i < s, j < s]: %6[b, r, h, i, j] + %5[AT]
%8 = loop float32[b < n, r < 5, h < 4, i < s]: max{j < s}(%7[b, r, h, i, j])
%9 = loop float32[b < n, r < 5, h < 4, i < s]: sum{j < s}(exp(%7[b, r, h, i, j] - %8[b, r, h, i]))
%10 = loop float32[b < n, r < 5, h < 4, i < s, j < s]: exp(%7[b, r, h, i, j] - %8[b, r, h, i]) / %9[b, r, h, i]
%11 = matmul float32[b < n, r < 5, h < 4, i < s, j < 16; k < s]: %10[b, r, h, i, k], %2[b, r, h, k, j]
return %11)";
  text.replace(text.find("AT]"), 2, at);
  text.replace(text.find("PRODUCT"), 7, product);
  FuseOptions o = any_device();
  o.attention_limits = true;
  return after_pass("attention", text, o);
}

TEST(Attention, ABiasMayBeAProductToo) {
  // Of pairs of tokens, and of tokens and what is known of each head.
  EXPECT_THAT(product_as_bias("[b < n, x < s, y < s, z < 4; k < 32]: %3[b, x, y, k], %4[z, 0, k]", "b, i, j, h"),
              HasSubstr("= attention"));
  EXPECT_THAT(product_as_bias("[b < n, z < 4, x < s, y < s; k < 32]: %3[b, x, 0, k], %4[z, y, k]", "b, h, i, j"),
              HasSubstr("= attention"));
}

TEST(Attention, ABiasOfZeroIsNone) {
  std::string text(kAttention);
  for (const std::string product : {"%3[b, h, i, r] * 0.25", "%3[b, h, i, j] * 0.25"})
    for (auto at = text.find(product); at != std::string::npos; at = text.find(product, at + product.size() + 8))
      text.replace(at, product.size(), "(" + product + " + 0.0)");
  ASSERT_THAT(canonical(text + "return %8"), HasSubstr("+ 0.0"));
  const std::string after = after_pass("attention", text + "return %8", any_device());
  EXPECT_THAT(after, HasSubstr("= attention"));
  EXPECT_THAT(after, testing::Not(HasSubstr("bias")));
}

// kAttention whose scores are `scores` instead of 0.25 times the product, with a float32 input %9 of shape [1, 2, s,
// 1].
std::string attention_with_scores(const std::string& scores, bool limits, const std::string& before = "") {
  std::string text(kAttention);
  const std::string plain = "%3[b, h, i, ";
  for (const std::string var : {"j", "r"}) {
    const std::string old = plain + var + "] * 0.25";
    std::string with = scores;
    for (auto at = with.find('@'); at != std::string::npos; at = with.find('@')) with.replace(at, 1, var);
    for (auto at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size()))
      text.replace(at, old.size(), "(" + with + ")");
  }
  FuseOptions o = any_device();
  o.attention_limits = limits;
  return after_pass("attention", "%9 = input float32[1, 2, s, 1]\n" + before + text + "return %8", o);
}

// Biases of Swin V2 come from a small network over relative positions.
TEST(Attention, ABiasMayComeFromAProduct) {
  const std::string before = R"(%10 = input float32[1, 2, s, 8]
%11 = input float32[1, 2, t, 8]
%12 = matmul float32[b < 1, h < 2, i < s, j < t; k < 8]: %10[b, h, i, k], %11[b, h, j, k] @"bias"
)";
  for (const char* scores :
       {"%3[b, h, i, @] * 0.25 + sigmoid(%12[b, h, i, @])", "sigmoid(%12[b, h, i, @]) + %3[b, h, i, @] * 0.25"}) {
    const std::string after = attention_with_scores(scores, false, before);
    EXPECT_THAT(after, testing::AllOf(HasSubstr("= attention"), HasSubstr("bias = "))) << scores;
  }
  // Either product could be that of queries and keys.
  EXPECT_THAT(attention_with_scores("%3[b, h, i, @] * 0.25 + %12[b, h, i, @]", false, before),
              testing::Not(HasSubstr("= attention")));
}

TEST(Attention, FactorsOfQueriesAreMultipliedIntoThem) {
  const std::string after = attention_with_scores("%3[b, h, i, @] * %9[b, h, i, 0]", true);
  EXPECT_THAT(after, HasSubstr("= attention"));
  EXPECT_THAT(after,
              HasSubstr("loop float32[i0 < 1, i1 < 2, i2 < s, i3 < 16]: %1[i0, i1, i2, i3] * %0[i0, i1, i2, 0]"));
}

TEST(Attention, FactorsOfKeysStay) {
  EXPECT_THAT(attention_with_scores("%3[b, h, i, @] * %9[b, h, @, 0]", true), testing::Not(HasSubstr("= attention")));
  EXPECT_THAT(attention_with_scores("%3[b, h, i, @] * %9[b, h, i, 0]", false), testing::Not(HasSubstr("= attention")));
}

TEST(Attention, AddedMasksLimitTheKeys) {
  const std::string product = "%3[b, h, i, @] * 0.25 + ";
  const auto with = [&](const std::string& added) { return attention_with_scores(product + added, true); };
  EXPECT_THAT(with("select(@ <= i, 0.0, -3e38)"),
              testing::AllOf(HasSubstr("i2 < s]: i2 + 1 @"), HasSubstr("end = %4[0, 0, i2]}")));
  EXPECT_THAT(with("select(@ > i, -3e38, 0.0)"), HasSubstr("i2 < s]: i2 + 1 @"));
  // A query may have no key where keys are fewer than queries.
  EXPECT_THAT(with("select(abs(@ - i) <= 2, 0.0, -3e38)"), HasSubstr("bias = "));
  EXPECT_THAT(with("select(@ < i, 0.0, -3e38)"), HasSubstr("bias = ")) << "the first query has no key";
  EXPECT_THAT(with("select(@ <= i, 0.0, -10.0)"), HasSubstr("bias = ")) << "no mask";
  // What else is added may be as low as the mask, and equal again.
  for (const char* both :
       {"select(@ <= i, 0.0, -3e38) + %9[b, h, i, 0]", "%9[b, h, i, 0] + select(@ <= i, 0.0, -3e38)"})
    EXPECT_THAT(with(both), testing::AllOf(HasSubstr("bias = "), testing::Not(HasSubstr("end = ")))) << both;
  EXPECT_THAT(attention_with_scores(product + "select(@ <= i, 0.0, -3e38)", false), HasSubstr("bias = "));
}

// A table of biases by relative position is looked up once, when the program is loaded; one from an input, and one that
// depends on sizes, for each score.
TEST(Attention, TheLowestFloat16MasksAKey) {
  const auto masked = [](const std::string& low) {
    return attention_with_scores("float32(select(@ < i + 1, float16(%3[b, h, i, @] * 0.25), " + low + "))", true);
  };
  EXPECT_THAT(masked("-65504.0:float16"), HasSubstr("end = %4[0, 0, i2]}"));
  EXPECT_THAT(masked("-60000.0:float16"), testing::Not(HasSubstr("= attention")));
}

TEST(Attention, ConstantBiasesByPositionAreStored) {
  const auto with_table = [](const char* table, const char* size) {
    constexpr const char* kGraph = R"(%0 = input float32[1, 2, {1}, 16]
%1 = {0} float32[9, 2]{2}
%2 = constant int64[8, 8] {{...}}
%3 = matmul float32[b < 1, h < 2, i < {1}, j < {1}; k < 16]: %0[b, h, i, k], %0[b, h, j, k]
%4 = loop float32[b < 1, h < 2, i < {1}, j < {1}]: %3[b, h, i, j] * 0.25 + %1[%2[mod(i, 8), mod(j, 8)], h]
%5 = loop float32[b < 1, h < 2, i < {1}]: max{{r < {1}}}(%4[b, h, i, r])
%6 = loop float32[b < 1, h < 2, i < {1}]: sum{{r < {1}}}(exp(%4[b, h, i, r] - %5[b, h, i]))
%7 = loop float32[b < 1, h < 2, i < {1}, j < {1}]: exp(%4[b, h, i, j] - %5[b, h, i]) / %6[b, h, i]
%8 = matmul float32[b < 1, h < 2, i < {1}, j < 16; k < {1}]: %7[b, h, i, k], %0[b, h, k, j]
return %8)";
    FuseOptions o = any_device();
    o.attention_limits = o.attention_expressions = true;
    const bool constant = table[0] == 'c';
    return after_pass("attention", fmt::format(kGraph, table, size, constant ? " {...}" : ""), o);
  };
  EXPECT_THAT(with_table("constant", "8"),
              testing::AllOf(HasSubstr("%1 = constant float32[1, 2, 8, 8]"), HasSubstr("bias = %1[0, i1, i2, i3]}")));
  for (const std::string& other : {with_table("input", "8"), with_table("constant", "s")})
    EXPECT_THAT(other, HasSubstr("bias = %1[%2[")) << other;
}

TEST(Attention, ASoftmaxThatIsAnOutputStays) {
  const std::string graph = std::string(kAttention) + "return %7, %8";
  EXPECT_THAT(after_pass("attention", graph, any_device()),
              HasSubstr("matmul float32[i0 < 1, i1 < 2, i2 < s, i3 < 16"));
  EXPECT_THAT(remarks_of("attention", graph), ElementsAre("attention: the softmax is used elsewhere too"));
}

TEST(Attention, ASoftmaxTimesTwoTensorsOfValuesIsTwoAttentions) {
  const auto graph = [](const char* second) {
    return std::string(kAttention) + "%9 = input float32[1, 2, t, 32]\n" + second + "return %8, %10";
  };
  const std::string after = after_pass(
      "attention", graph("%10 = matmul float32[b < 1, h < 2, i < s, j < 32; k < t]: %7[b, h, i, k], %9[b, h, k, j]\n"),
      any_device());
  EXPECT_THAT(after, HasSubstr("= attention float32[1, 2, s, 16]"));
  EXPECT_THAT(after, HasSubstr("= attention float32[1, 2, s, 32]"));
  EXPECT_THAT(after, testing::Not(HasSubstr("matmul")));
  // If another reads the softmax, or attention does not compute one of the products, the softmax is stored anyway.
  for (const char* other :
       {"%10 = loop float32[b < 1, h < 2, i < s]: sum{r < t}(%7[b, h, i, r])\n",
        "%10 = matmul float32[b < 1, h < 2, i < s, j < 32; k < t]: %7[b, h, i, k], exp(%9[b, h, k, j])\n"})
    EXPECT_THAT(after_pass("attention", graph(other), any_device()), testing::Not(HasSubstr("= attention"))) << other;
}

TEST(Attention, ProductsOfOtherThingsStay) {
  expect_unchanged("attention", R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, 16, 16]
%2 = loop float32[b < 1, h < 2, i < s, j < 16]: exp(%0[b, h, i, j])
%3 = matmul float32[b < 1, h < 2, i < s, j < 16; k < 16]: %2[b, h, i, k], %1[b, h, k, j]
return %3)");
}

TEST(Attention, DevicesThatRefuseItSayWhy) {
  FuseOptions o = any_device();
  o.accepts_tile = [](const Node& n, std::string& why) {
    why = "heads of 16 elements";
    return !n.as<AttentionOp>();
  };
  EXPECT_THAT(remarks_of("attention", std::string(kAttention) + "return %8", o),
              ElementsAre("attention: heads of 16 elements"));
}

}  // namespace
}  // namespace sardonyx
