// The pass closed_forms: positions, running sums and masks that are computed from indices.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ClosedForms, ConstantPositionsBecomeIndices) {
  expect_pass("closed_forms", R"(%0 = input float32[8, 4]
%1 = constant int64[2, 3] {1, 3, 5, 2, 4, 6}
%2 = loop float32[i < 2, j < 3]: %0[%1[i, j], 0]
return %2)",
              R"(%0 = input float32[8, 4]
%1 = loop float32[i < 2, j < 3]: %0[1 + i + 2 * j, 0]
return %1)");
}

TEST(ClosedForms, OtherConstantsStay) {
  expect_unchanged("closed_forms", R"(%0 = input float32[8]
%1 = constant int64[4] {0, 1, 2, 4}
%2 = loop float32[i < 4]: %0[%1[i]]
return %2)");
}

// How exporters count sequences in one row: the first position has no predecessor.
TEST(ClosedForms, DifferencesOfPositionsAreConstant) {
  expect_pass("closed_forms", R"(%0 = input float32[n, 6]
%1 = constant int64[6] {0, 1, 2, 3, 4, 5}
%2 = loop int64[i < 6]: select(i < 1, %1[0] - 1, %1[i - 1])
%3 = loop int64[i < 6]: int64(not(%1[i] - %2[i] == 1))
%4 = view int64[1, 6, 1]: %3
%5 = routine "scan" int64[1, 6, 1]: %4 {params = [0, 0, 0]}
%6 = loop float32[a < n, i < 6, j < 6]: select(%5[0, i, 0] == %5[0, j, 0] && %1[j] <= %1[i], %0[a, j], 0.0)
return %6)",
              R"(%0 = input float32[n, 6]
%1 = loop float32[a < n, i < 6, j < 6]: select(j <= i, %0[a, j], 0.0)
return %1)");
}

TEST(ClosedForms, RunningSumsOfAConstant) {
  const auto sum = [](const char* params) {
    return after_pass("closed_forms",
                      std::string(R"(%0 = input float32[n]
%1 = loop int64[a < 1, i < n, b < 1]: 2
%2 = routine "scan" int64[1, n, 1]: %1 {params = )") +
                          params + R"(}
%3 = loop int64[i < n]: %2[0, i, 0]
return %3)",
                      any_device());
  };
  EXPECT_THAT(sum("[0, 0, 0]"), HasSubstr("i0 * 2 + 2"));
  EXPECT_THAT(sum("[0, 1, 0]"), HasSubstr(": i0 * 2\n"));
  EXPECT_THAT(sum("[0, 0, 1]"), HasSubstr("n * 2 - i0 * 2"));
  EXPECT_THAT(sum("[0, 1, 1]"), HasSubstr("n * 2 - i0 * 2 - 2"));
  EXPECT_THAT(sum("[1, 0, 0]"), HasSubstr("\"scan\"")) << "a running product";
}

TEST(ClosedForms, RunningSumsOfDataStay) {
  expect_unchanged("closed_forms", R"(%0 = input int64[1, n, 1]
%1 = routine "scan" int64[1, n, 1]: %0 {params = [0, 0, 0]}
return %1)");
}

// A mask of ones is counted in float32, which is exact up to 2^24.
TEST(ClosedForms, PositionsCountedInFloats) {
  const auto positions = [](const char* n) {
    const std::string size(n);
    return after_pass("closed_forms",
                      "%0 = input float32[m]\n%1 = constant float32[] {1.0}\n%2 = loop float32[a < 1, i < " + size +
                          ", b < 1]: %1[]\n%3 = routine \"scan\" float32[1, " + size +
                          ", 1]: %2 {params = [0, 0, 0]}\n%4 = loop int64[i < " + size +
                          "]: int64(%3[0, i, 0] * 1.0 - 1.0)\nreturn %4",
                      any_device());
  };
  EXPECT_THAT(positions("256"), HasSubstr("loop int64[i0 < 256]: i0\n"));
  EXPECT_THAT(positions("20000000"), HasSubstr("\"scan\""));
  EXPECT_THAT(positions("m"), HasSubstr("\"scan\"")) << "a sum that may be larger";
}

std::string mask(const char* type, const char* elements) {
  return after_pass("closed_forms",
                    std::string("%0 = input float32[3, 4]\n%1 = constant ") + type + "[3, 4] {" + elements +
                        "}\n%2 = loop float32[i < 3, j < 4]: " +
                        (type[0] == 'b' ? "select(%1[i, j], %0[i, j], 0.0)" : "%0[i, j] + %1[i, j]") + "\nreturn %2",
                    any_device());
}

TEST(ClosedForms, BandsOfAMask) {
  const char *T = "true", *F = "false";
  const auto rows = [&](std::string pattern) {
    std::string s;
    for (const char c : pattern) s += (s.empty() ? "" : ", ") + std::string(c == '1' ? T : F);
    return mask("bool", s.c_str());
  };
  EXPECT_THAT(rows("100011001110"), HasSubstr("select(i1 < i0 + 1"));
  EXPECT_THAT(rows("110011100111"), HasSubstr("select(i1 < i0 + 2 && i0 - 1 <= i1"));
  EXPECT_THAT(rows("011100110001"), HasSubstr("select(i0 + 1 <= i1"));
  EXPECT_THAT(rows("100011001111"), HasSubstr("constant bool")) << "a row that is no shift of the others";
  EXPECT_THAT(rows("101011001110"), HasSubstr("constant bool")) << "two ranges in a row";
  EXPECT_THAT(rows("000010001100"), HasSubstr("constant bool")) << "a row without keys";
}

TEST(ClosedForms, AdditiveBands) {
  EXPECT_THAT(mask("float32", "0.0, -3e38, -3e38, -3e38, 0.0, 0.0, -3e38, -3e38, 0.0, 0.0, 0.0, -3e38"),
              HasSubstr("select(i1 < i0 + 1, 0.0, -3e+38)"));
  EXPECT_THAT(mask("float32", "0.0, -10.0, -10.0, -10.0, 0.0, 0.0, -10.0, -10.0, 0.0, 0.0, 0.0, -10.0"),
              HasSubstr("constant float32"));
  EXPECT_THAT(mask("float32", "0.0, -3e38, -2e38, -3e38, 0.0, 0.0, -3e38, -3e38, 0.0, 0.0, 0.0, -3e38"),
              HasSubstr("constant float32"));
}

}  // namespace
}  // namespace sardonyx
