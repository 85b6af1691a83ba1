// The pass separate_windows.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

FuseOptions separating() {
  FuseOptions o = any_device();
  o.separate_windows = 64;
  return o;
}

TEST(SeparateWindows, AMaximumIsStoredInTheImagesType) {
  expect_pass("separate_windows", R"(%0 = input float16[n, 8, h, 40]
%1 = loop float16[n < n, c < 8, y < h, x < 40]: float16(max{r < 9, s < 9}(select(y + r - 4 >= 0 && y + r - 4 < h && (x + s - 4 >= 0 && x + s - 4 < 40), float32(%0[n, c, y + r - 4, x + s - 4]), -inf))) @"pool"
return %1)",
              R"(%0 = input float16[n, 8, h, 40]
%1 = loop float16[n < n, c < 8, y < h, x < 40]: float16(max{s < 9}(select(x + s - 4 >= 0 && x + s - 4 < 40, float32(%0[n, c, y, x + s - 4]), -inf))) @"pool"
%2 = loop float16[n < n, c < 8, y < h, x < 40]: float16(max{r < 9}(select(y + r - 4 >= 0 && y + r - 4 < h, float32(%1[n, c, y + r - 4, x]), -inf))) @"pool"
return %2)",
              separating());
}

TEST(SeparateWindows, SumsOfThreeDimsAreStoredInTheirType) {
  expect_pass("separate_windows", R"(%0 = input float16[20, 20, 20]
%1 = loop float16[z < 12, y < 12, x < 12]: float16(sum{q < 9, r < 9, s < 9}(float32(%0[z + q, y + r, x + s])) * 0.008)
return %1)",
              R"(%0 = input float16[20, 20, 20]
%1 = loop float32[z < 20, y < 20, x < 12]: sum{s < 9}(float32(%0[z, y, x + s]))
%2 = loop float32[z < 20, y < 12, x < 12]: sum{r < 9}(%1[z, y + r, x])
%3 = loop float16[z < 12, y < 12, x < 12]: float16(sum{q < 9}(%2[z + q, y, x]) * 0.008)
return %3)",
              separating());
}

TEST(SeparateWindows, OthersStay) {
  const auto stays = [](std::string_view body, std::string_view size = "40") {
    expect_unchanged("separate_windows",
                     fmt::format(R"(%0 = input float32[{1}, {1}]
%1 = input float32[9, 9]
%2 = loop float32[y < 32, x < 32]: {0}
return %2)",
                                 body, size),
                     separating());
  };
  stays("max{r < 7, s < 9}(%0[y + r, x + s])");                 // few terms
  stays("sum{r < 9, s < 9}(%0[y + r, x + s] * %1[r, s])");      // a convolution
  stays("sum{r < 9, s < 9}(%0[y + r, x + s + r])");             // a slanted window
  stays("max{r < 9, s < 9}(%0[y * 8 + r, x * 8 + s])", "260");  // windows that hardly overlap
  stays("prod{r < 9, s < 9}(%0[y + r, x + s])");
  stays("max{r < 9, s < 9}(select(y + r > x + s, %0[y + r, x + s], 0.0))");  // a triangle
}

}  // namespace
}  // namespace sardonyx
