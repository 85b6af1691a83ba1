// The pass peel_reductions.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

TEST(PeelReductions, OneMoreScoreAtEitherEnd) {
  expect_pass("peel_reductions", R"(%0 = input float32[n, 512]
%1 = input float32[n]
%2 = loop float32[i < n]: max{r < 513}(select(r < 512, %0[i, r], %1[i]))
%3 = loop float32[i < n]: sum{r < 513}(exp(select(r < 1, %1[i], %0[i, r - 1]) - %2[i]))
return %3)",
              R"(%0 = input float32[n, 512]
%1 = input float32[n]
%2 = loop float32[i < n]: max(max{r < 512}(%0[i, r]), %1[i])
%3 = loop float32[i < n]: sum{r < 512}(exp(%0[i, r] - %2[i])) + exp(%1[i] - %2[i])
return %3)");
}

// Padding: a sum of equal terms is one term, times their number; extremes need it once.
TEST(PeelReductions, SeveralEqualTerms) {
  expect_pass("peel_reductions", R"(%0 = input float32[n, 10]
%1 = loop float32[i < n]: sum{r < 16}(exp(select(r < 10, %0[i, r], 2.0)))
%2 = loop float32[i < n]: min{r < 16}(select(r < 10, %0[i, r], 2.0))
return %1, %2)",
              R"(%0 = input float32[n, 10]
%1 = loop float32[i < n]: sum{r < 10}(exp(%0[i, r])) + exp(2.0) * 6.0
%2 = loop float32[i < n]: min(min{r < 10}(%0[i, r]), 2.0)
return %1, %2)");
}

TEST(PeelReductions, ConcatenationsOfThreeParts) {
  expect_pass("peel_reductions", R"(%0 = input float32[n, 4]
%1 = input float32[n]
%2 = loop float32[i < n]: sum{r < 6}(select(r < 1, %1[i], select(r < 5, %0[i, r - 1], 3.0)))
return %2)",
              R"(%0 = input float32[n, 4]
%1 = input float32[n]
%2 = loop float32[i < n]: sum{r < 4}(%0[i, r]) + 3.0 + %1[i]
return %2)");
}

// A cache may be empty: then no term is the constant, and the largest may be below it.
TEST(PeelReductions, EqualTermsThatMayBeNoneStay) {
  expect_unchanged("peel_reductions", R"(%0 = input float32[n, 4]
%1 = input float32[n, p]
%2 = loop float32[i < n]: max{r < p + 4}(select(r < p, 0.0, %0[i, r - p]))
return %2)");
}

TEST(PeelReductions, TheOtherTermsMayBeNone) {
  expect_pass("peel_reductions", R"(%0 = input float32[n, p]
%1 = loop float32[i < n]: max{r < p + 1}(select(r < p, %0[i, r], 2.0))
return %1)",
              R"(%0 = input float32[n, p]
%1 = loop float32[i < n]: max(max{r < p}(%0[i, r]), 2.0)
return %1)");
}

TEST(PeelReductions, OtherReductionsStay) {
  // Both parts differ from term to term; another variable decides; sums of several equal integers.
  for (const char* loop : {"float32[i < 8]: sum{r < 8}(select(r < 4, %0[i, r], %0[i, 7 - r]))",
                           "float32[i < 8]: sum{r < 8}(select(i < 4, %0[i, r], 1.0))",
                           "int32[i < 8]: sum{r < 8}(select(r < 5, int32(%0[i, r]), 2:int32))"})
    expect_unchanged("peel_reductions", std::string("%0 = input float32[8, 8]\n%1 = loop ") + loop + "\nreturn %1");
}

}  // namespace
}  // namespace sardonyx
