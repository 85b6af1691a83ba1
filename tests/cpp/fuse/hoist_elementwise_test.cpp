// The pass hoist_elementwise.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions hoisting() {
  FuseOptions o = any_device();
  o.hoist_elementwise = true;
  return o;
}

// A depthwise convolution of an image, then tokens and an activation.
TEST(HoistElementwise, AnActivationOfTokens) {
  expect_pass("hoist_elementwise", R"(%0 = input float16[n, 10, 12, 32]
%1 = constant float32[32] {...}
%2 = loop float16[n < n, c < 32, y < 8, x < 10]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c])))
%3 = loop float16[n < n, t < 80, c < 32]: float16(tanh(float32(%2[n, c, floordiv(t, 10), mod(t, 10)]) + %1[c]))
return %3)",
              R"(%0 = input float16[n, 10, 12, 32]
%1 = constant float32[32] {...}
%2 = loop float16[n < n, c < 32, y < 8, x < 10]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c])))
%3 = loop float16[n < n, c < 32, y < 8, x < 10]: float16(tanh(float32(%2[n, c, y, x]) + %1[c]))
%4 = loop float16[n < n, t < 80, c < 32]: %3[n, c, floordiv(t, 10), mod(t, 10)]
return %4)",
              hoisting());
}

TEST(HoistElementwise, WhatIsLeftAlone) {
  const std::string window = R"(%0 = input float16[n, 10, 12, 32]
%1 = input float16[n, 80, 32]
%2 = loop float16[n < n, c < 32, y < 8, x < 10]: float16(sum{r < 3, s < 3}(float32(%0[n, y + r, x + s, c])))
)";
  const std::string tokens = "%3 = loop float16[n < n, t < 80, c < 32]: ",
                    there = "%2[n, c, floordiv(t, 10), mod(t, 10)]";
  const auto unchanged = [&](const std::string& rest) {
    expect_unchanged("hoist_elementwise", window + rest, hoisting());
  };
  unchanged(tokens + there + "\nreturn %3");                            // moves elements only
  unchanged(tokens + "tanh(" + there + ") + %1[n, t, c]\nreturn %3");   // with a tensor of its own order
  unchanged(tokens + "tanh(" + there + ")\nreturn %2, %3");             // the window is an output
  unchanged(tokens + "tanh(%2[n, c, floordiv(t, 10), 0])\nreturn %3");  // not all of it
  unchanged("%3 = loop float16[n < n, c < 32, y < 8, x < 10]: tanh(%2[n, c, y, x])\nreturn %3");  // in order
}

}  // namespace
}  // namespace sardonyx
