// The text form of graphs: what is printed reads back as the same graph, and whatever is read is a graph or an error.
#include "graph/text.h"

#include <gtest/gtest.h>

#include "graph_text/parse.h"
#include "support/error.h"

namespace sardonyx {
namespace {

// The text in its canonical form.
std::string canonical(std::string_view text) { return to_string(*parse_graph(text)); }

void expect_canonical(std::string_view text) { EXPECT_EQ(canonical(text), text); }

void expect_refused(std::string_view text, const std::string& why) {
  try {
    parse_graph(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument) << e.what();
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
  }
}

TEST(GraphText, LoopsViewsAndConstants) {
  expect_canonical(R"(%0 "x" = input float32[n, 4]
%1 = constant float32[4] {1.0, -2.5, inf, 1e-05}
%2 = loop float32[i0 < n, i1 < 4]: %0[i0, i1] * %1[i1] @"scale"
%3 "y" = view float32[n * 4]: %2
return %3 "y"
)");
}

TEST(GraphText, NamesOfTheReaderBecomeNumbers) {
  EXPECT_EQ(canonical("%x = input float32[rows]\n%y = loop float32[i < rows]: exp(%x[i]) return %y"),
            "%0 = input float32[rows]\n%1 = loop float32[i0 < rows]: exp(%0[i0])\nreturn %1\n");
}

TEST(GraphText, OperatorsKeepTheirGrouping) {
  expect_canonical(R"(%0 = input float32[4]
%1 = loop float32[i0 < 4]: %0[i0] - (%0[i0] - 1.0) * 2.0 / %0[i0]
%2 = loop bool[i0 < 4]: %0[i0] < 1.0 && not(%1[i0] == 2.0) || isnan(%0[i0])
return %1, %2
)");
}

TEST(GraphText, TypesOfNumbers) {
  expect_canonical(R"(%0 = input float16[4]
%1 = input int8[4]
%2 = loop float16[i0 < 4]: float16:24(float32(%0[i0]) * 0.1) + 0.5:float16
%3 = loop int8[i0 < 4]: bitcast:int8(bitcast:uint8(%1[i0]) ^ 128:uint8) + -3:int8
return %2, %3
)");
}

TEST(GraphText, Reductions) {
  expect_canonical(R"(%0 = input float32[n, 8]
%1 = loop float32[i0 < n]: sum{r0 < 8}(%0[i0, r0]) - max{r1 < 8}(%0[i0, r1])
%2 = loop int64[i0 < n]: argmax{r0 < 8}(%0[i0, r0])
return %1, %2
)");
}

TEST(GraphText, LargeSharedSubexpressionsAreNamed) {
  const std::string text = canonical(R"(%0 = input float32[4]
%1 = loop float32[i < 4]: (s = exp(%0[i] * 2.0 + sqrt(%0[i]) * 3.0 + sin(%0[i]) * 4.0)) * tanh(s)
return %1)");
  EXPECT_NE(text.find("(t0 = exp("), std::string::npos) << text;
  EXPECT_NE(text.find("* tanh(t0)"), std::string::npos) << text;
  expect_canonical(text);
}

TEST(GraphText, DeepSharingStaysSmall) {
  std::string text = "%0 = input float32[4]\n%1 = loop float32[i < 4]: (s0 = %0[i] + 1.0)";
  for (int k = 1; k < 60; ++k) text = text + fmt::format(" * (s{0} = sin(s{1}) * cos(s{1}))", k, k - 1);
  EXPECT_LT(canonical(text + "\nreturn %1").size(), 10'000u);
}

TEST(GraphText, MatMul) {
  expect_canonical(R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i0 < n, i1 < 8; i2 < 16]: %0[i0, i2], %1[i2, i1]
return %2
)");
}

TEST(GraphText, MatMulOfGroups) {
  expect_canonical(R"(%0 = input float32[n, 16]
%1 = input float32[4, 16, 8]
%2 = input int64[4]
%3 = input int64[n]
%4 = matmul float32[i0 < n, i1 < 1, i2 < 8; i3 < 16]: %0[i0, i3], %1[%3[i0], i3, i2] by %3[i0] over [i4 < 4] to %2[i4]
return %4
)");
}

TEST(GraphText, Convolution) {
  expect_canonical(R"(%0 = input float32[1, 4, 9, 9]
%1 = constant float32[6, 2, 3, 3] {...}
%2 = constant float32[6] {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
%3 = conv float32[1, 6, 5, 5] order(0, 2, 3, 1): %0, %1, %2 {strides = [2, 2], pads = [1, 1, 1, 1], groups = 2}
return %3
)");
}

TEST(GraphText, Attention) {
  expect_canonical(
      R"(%0 = input float32[1, 2, s, 16]
%1 = input float32[1, 2, t, 16]
%2 = attention float32[1, 2, s, 16] over [i0 < 1, i1 < 2, i2 < s, i3 < t, i4 < 16, i5 < 16] {scale = 0.25, q = %0[i0, i1, i2, i4], k = %1[i0, i1, i3, i4], v = %1[i0, i1, i3, i5], end = i2 + 1, zero_empty}
return %2
)");
}

TEST(GraphText, AttentionOfScaledIntegers) {
  expect_canonical(
      R"(%0 = input float32[1, 2, s, 16]
%1 = input int8[1, 2, t, 16]
%2 = input float32[1, 2, t]
%3 = attention float32[1, 2, s, 16] over [i0 < 1, i1 < 2, i2 < s, i3 < t, i4 < 16, i5 < 16] {scale = 0.25, q = %0[i0, i1, i2, i4], k = %1[i0, i1, i3, i4], v = %1[i0, i1, i3, i5], k_scale = %2[i0, i1, i3], v_scale = %2[i0, i1, i3]}
return %3
)");
}

TEST(GraphText, RoutinesBindsAndChecks) {
  expect_canonical(R"(%0 = input float32[n]
%1, %2 = routine "nonzero" int64[1, n], int64[2]: %0 {params = [0, n], floats = [0.5]}
bind dim found, data 'odd name': %2
check found <= n "more than there are" assumption
%3 = loop float32[i0 < found]: %0[%1[0, i0]] @"gather"
return %3
)");
}

TEST(GraphText, Conditions) {
  expect_canonical(R"(%0 = input float32[n]
%1 = input int64[1]
bind data c: %1
%4 = if not(c == 0) reads %0 then {
  %2 = loop float32[i0 < n]: exp(%0[i0])
  return %2
} with dim m = n else {
  %3 = loop float32[i0 < n * 2]: %0[floordiv(i0, 2)]
  return %3
} with dim m = n * 2 gives float32[m]
return %4 "y"
)");
}

TEST(GraphText, Loops) {
  expect_canonical(R"(%0 = input float32[n]
%4, %5 = while: %0 {iteration = dim it, carried = 1, limit = 10, carry dim m = n} do {
  %1 = input float32[m]
  %2 = loop float32[i0 < m + 1]: select(i0 < m, %1[i0], float32(it))
  %3 = loop float32[]: sum{r0 < m}(%1[r0])
  return %2, %3
} then {carry m = m + 1} gives float32[m], float32[10]
return %4, %5
)");
}

TEST(GraphText, RefusesWhatIsNoGraph) {
  expect_refused("%0 = input float33[4]", "line 1, column 12");
  expect_refused("%0 = input float32[4]\n%1 = loop float32[i < 4]: %2[i]", "%2 is not defined");
  expect_refused("%0 = input float32[4]\n%1 = loop float32[i < 4]: %0[i, i]", "rank 1");
  expect_refused("%0 = input float32[4]\n%1 = loop float32[i < 4]: %0[i] + 1", "float32 and int64");
  expect_refused("%0 = input float32[4]\n%1 = loop float16[i < 4]: %0[i]",
                 "the body is float32, but the output float16");
  expect_refused("%0 = input float32[4]\n%1 = loop float32[i < 4]: %0[5] return %1", "at index 5");
  expect_refused("%0 = input float32[4]\n%0 = input float32[4]", "defined twice");
  expect_refused("%0 = view float32[m]: %0", "'m' is no variable");
  expect_refused("%0 = constant float32[2] {1}", "1 elements");
  expect_refused("%0 = constant float32[1000000, 1000000] {...}", "elements");
  expect_refused("%0 = constant float32[-1] {...}", "negative dim");
  expect_refused("return \"x", "closing quote");
  expect_refused("%0 = input float32[n]\n%1 = view float32[4]: %0 return %1 %0", "a statement after return");
  expect_refused("%0 = input float32[2]\n%1 = loop float32[i < 2]: " + std::string(5000, '('), "nested");
  expect_refused("%0 = loop float32[i < 2]: select(true, 1.0)", "3 operands");
  expect_refused("%0 = loop float32[i < 9223372036854775808]: 1.0", "is no number of int64");
}

TEST(GraphText, AnyPrefixIsAGraphOrAnError) {
  const std::string text = R"(%0 "x" = input float32[n, 4]
%1 = constant float32[4] {1, -2.5, inf, 1e-05}
%2 = loop float32[i < n, j < 4] order(1, 0): sum{r < 4}(%0[i, r]) * %1[j] @"scale"
%4 = if n != 0 reads %0 then { return %2 } with dim m = n else { return %2 } with dim m = n gives float32[n, 4]
return %4 "y")";
  for (std::size_t n = 0; n < text.size(); ++n) {
    std::string broken = text.substr(0, n);
    for (const char* more : {"", "}", "\xff", "%", "999999999999999999999"}) {
      try {
        parse_graph(broken + more);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument) << e.what();
      }
    }
  }
}

}  // namespace
}  // namespace sardonyx
