// The pass merge_convolutions.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions merging() {
  FuseOptions o = any_device();
  o.merge_convolutions = true;
  return o;
}

// A 3 x 3 and a 1 x 1 kernel and a batch norm of the image, as RepVGG is trained.
TEST(MergeConvolutions, BranchesOfOneImage) {
  expect_pass("merge_convolutions", R"(%0 = input float32[n, 4, 8, 8]
%1 = constant float32[4, 4, 3, 3] {...}
%2 = constant float32[4, 4, 1, 1] {...}
%3 = constant float32[4] {...}
%4 = constant float32[4] {...}
%5 = constant float32[4] {...}
%6 = conv float32[n, 4, 8, 8]: %0, %1, %3 {pads = [1, 1, 1, 1]}
%7 = conv float32[n, 4, 8, 8]: %0, %2 {}
%8 = loop float32[n < n, c < 4, y < 8, x < 8]: max(%6[n, c, y, x] + %7[n, c, y, x] + (%0[n, c, y, x] * %4[c] + %5[c]), 0.0)
return %8)",
              R"(%0 = input float32[n, 4, 8, 8]
%1 = constant float32[4] {0.0, 2.0, 4.0, 6.0}
%2 = constant float32[4, 4, 3, 3] {...}
%3 = conv float32[n, 4, 8, 8]: %0, %2, %1 {pads = [1, 1, 1, 1]}
%4 = loop float32[n < n, c < 4, y < 8, x < 8]: max(%3[n, c, y, x], 0.0)
return %4)",
              merging());
}

TEST(MergeConvolutions, WhatIsLeftAlone) {
  const auto unchanged = [](const std::string& conv, const std::string& sum) {
    expect_unchanged("merge_convolutions",
                     R"(%0 = input float32[n, 4, 8, 8]
%1 = input float32[n, 4, 8, 8]
%2 = constant float32[4, 4, 3, 3] {...}
%3 = input float32[4, 4, 1, 1]
%4 = constant float32[4, 4, 1, 1] {...}
%5 = conv float32[n, 4, 8, 8]: %0, %2 {pads = [1, 1, 1, 1]}
%6 = conv float32[n, 4, 8, 8]: )" +
                         conv + "\n%7 = loop float32[n < n, c < 4, y < 8, x < 8]: " + sum + "\nreturn %7",
                     merging());
  };
  unchanged("%1, %4 {}", "%5[n, c, y, x] + %6[n, c, y, x]");                     // another image
  unchanged("%0, %3 {}", "%5[n, c, y, x] + %6[n, c, y, x]");                     // weights that are no constants
  unchanged("%0, %4 {}", "%5[n, c, y, x] * %6[n, c, y, x]");                     // no sum
  unchanged("%1, %4 {}", "%5[n, c, y, x] + %6[n, c, y, x] + %1[n, c, y, x]");    // an image beside it
  unchanged("%0, %2 {pads = [0, 2, 2, 0]}", "%5[n, c, y, x] + %6[n, c, y, x]");  // shifted
  unchanged("%1, %4 {}", "%5[n, c, y, x] + %0[n, c, x, y] + %6[n, c, y, x]");    // the image transposed
}

}  // namespace
}  // namespace sardonyx
