// channel_order: weights are rearranged in place of a convolution's result.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions in_order() {
  FuseOptions o = any_device();
  o.channel_order = true;
  return o;
}

// The constants become those that result: the bias had 0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0.
TEST(ChannelOrder, WeightsAndBiasTakeTheOrderThatIsRead) {
  expect_pass("channel_order", R"(%0 = input float16[n, 8, 16, 16]
%1 = constant float16[12, 8, 3, 3] {...}
%2 = constant float16[12] {0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 0.0}
%3 = conv float16[n, 12, 16, 16]: %0, %1, %2 {pads = [1, 1, 1, 1]} @"up"
%4 = loop float16[i < n, c < 12, y < 16, x < 16]: %3[i, mod(c, 3) * 4 + floordiv(c, 3), y, x] @"shuffle"
return %4)",
              R"(%0 = input float16[n, 8, 16, 16]
%1 = constant float16[12] {0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 0.0, 0.0} @"up"
%2 = constant float16[12, 8, 3, 3] {...} @"up"
%3 = conv float16[n, 12, 16, 16]: %0, %2, %1 {pads = [1, 1, 1, 1]} @"up"
return %3)",
              in_order());
}

// {0}: what the loop loads, {1}: attributes of the convolution, {2}: more of the graph.
TEST(ChannelOrder, OtherLoopsStay) {
  const auto remarks = [](const char* load, const char* attributes = "pads = [0, 0, 0, 0]", const char* more = "%3") {
    const std::string text = fmt::format(R"(%0 = input float16[n, 8, 16, 16]
%1 = constant float16[8, {2}, 1, 1] {{...}}
%2 = conv float16[n, 8, 16, 16]: %0, %1 {{{1}}} @"conv"
%3 = loop float16[i < n, c < 8, y < 16, x < 16]: {0} @"shuffle"
return {3})",
                                         load, attributes, attributes[0] == 'g' ? 4 : 8, more);
    expect_unchanged("channel_order", text, in_order());
    return remarks_of("channel_order", text, in_order());
  };
  EXPECT_THAT(remarks("%2[i, mod(c, 4) * 2 + floordiv(c, 4), y, x]", "groups = 2"),
              ElementsAre("shuffle: the convolution has groups"));
  EXPECT_THAT(remarks("%2[i, 7 - c, y, x]", "pads = [0, 0, 0, 0]", "%3, %2"),
              ElementsAre("shuffle: other nodes read the convolution's result"));
  EXPECT_THAT(remarks("%2[i, 7 - c, x, y]"), ElementsAre()) << "dims are exchanged";
  EXPECT_THAT(remarks("%2[i, mod(c + y, 8), y, x]"), ElementsAre()) << "pixels differ";
  EXPECT_THAT(remarks("%2[i, c, y, x]"), ElementsAre()) << "no other order";
}

}  // namespace
}  // namespace sardonyx
