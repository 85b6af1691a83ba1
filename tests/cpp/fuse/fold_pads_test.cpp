// The pass fold_pads.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

// Zeros below and to the right, as TensorFlow pads for stride 2, and all around.
TEST(FoldPads, ZerosAroundAnImage) {
  expect_pass("fold_pads", R"(%0 = input float32[n, 4, h, 8]
%1 = constant float32[6, 4, 3, 3] {...}
%2 = loop float32[n < n, c < 4, y < h + 1, x < 9]: select(y < h && x < 8, %0[n, c, y, x], 0.0)
%3 = conv float32[n, 6, floordiv(h, 2), 4]: %2, %1 {strides = [2, 2]}
%4 = loop float32[n < n, c < 4, y < h + 2, x < 10]: select(0 <= y - 1 && y - 1 < h && 0 <= x - 1 && x - 1 < 8, %0[n, c, y - 1, x - 1], 0.0)
%5 = conv float32[n, 6, h + 2, 10]: %4, %1 {pads = [1, 1, 1, 1]}
return %3, %5)",
              R"(%0 = input float32[n, 4, h, 8]
%1 = constant float32[6, 4, 3, 3] {...}
%2 = conv float32[n, 6, floordiv(h, 2), 4]: %0, %1 {strides = [2, 2], pads = [0, 0, 1, 1]}
%3 = conv float32[n, 6, h + 2, 10]: %0, %1 {pads = [2, 2, 2, 2]}
return %2, %3)",
              any_device());
}

TEST(FoldPads, WhatIsLeftAlone) {
  const auto unchanged = [](const std::string& loop) {
    expect_unchanged("fold_pads",
                     "%0 = input float32[n, 4, 8, 8]\n%1 = constant float32[6, 4, 3, 3] {...}\n%2 = loop float32[n < "
                     "n, c < 4, y < 8, x < 9]: " +
                         loop + "\n%3 = conv float32[n, 6, 6, 7]: %2, %1\nreturn %3",
                     any_device());
  };
  unchanged("select(x < 8, %0[n, c, y, x], 1.0)");                   // other values
  unchanged("select(x < 7, %0[n, c, y, x], 0.0)");                   // crops before it pads
  unchanged("select(x < 8 && y < 7, %0[n, c, y, x], 0.0)");          // zeros within the image
  unchanged("select(x < 8, %0[n, 3 - c, y, x], 0.0)");               // other channels
  unchanged("select(0 <= x - 2, %0[n, c, y, max(x - 2, 0)], 0.0)");  // not shifted
}

}  // namespace
}  // namespace sardonyx
