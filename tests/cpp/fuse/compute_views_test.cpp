// The pass compute_views.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions computing_views() {
  FuseOptions o = any_device();
  o.compute_views = true;
  return o;
}

// The last step of a group norm: an image as rows of groups, and back.
TEST(ComputeViews, RowsOfGroupsAreTheImageAgain) {
  expect_pass("compute_views", R"(%0 = input float32[n, 8, 6, 6]
%1 = input float32[n, 2, 1]
%2 = view float32[n, 2, 144]: %0
%3 = loop float32[n < n, g < 2, r < 144]: %2[n, g, r] - %1[n, g, 0]
%4 = view float32[n, 8, 6, 6]: %3
%5 = loop float32[n < n, c < 8, y < 6, x < 6]: tanh(%4[n, c, y, x])
return %5)",
              R"(%0 = input float32[n, 8, 6, 6]
%1 = input float32[n, 2, 1]
%2 = view float32[n, 2, 144]: %0
%3 = loop float32[n < n, c < 8, y < 6, x < 6]: %2[n, floordiv(c, 4), mod(c, 4) * 36 + y * 6 + x] - %1[n, floordiv(c, 4), 0]
%4 = loop float32[n < n, c < 8, y < 6, x < 6]: tanh(%3[n, c, y, x])
return %4)",
              computing_views());
}

TEST(ComputeViews, WhatIsLeftAlone) {
  const auto unchanged = [&](const std::string& text) { expect_unchanged("compute_views", text, computing_views()); };
  // The loop reads its input in its own shape.
  unchanged(R"(%0 = input float32[n, 2, 144]
%1 = loop float32[n < n, g < 2, r < 144]: tanh(%0[n, g, r])
%2 = view float32[n, 8, 6, 6]: %1
%3 = loop float32[n < n, c < 8, y < 6, x < 6]: exp(%2[n, c, y, x])
return %3)");
  const std::string rows = R"(%0 = input float32[n, 8, 6, 6]
%1 = view float32[n, 2, 144]: %0
%2 = loop float32[n < n, g < 2, r < 144]: tanh(%1[n, g, r])
%3 = view float32[n, 8, 6, 6]: %2
)";
  unchanged(rows + "return %2, %3");  // also an output in its own shape
  unchanged(rows + "%4 = loop float32[n < n, g < 2]: sum{r < 144}(%2[n, g, r])\nreturn %3, %4");  // also read in it
}

}  // namespace
}  // namespace sardonyx
