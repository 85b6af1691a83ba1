// The pass groups_to_blocks.
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

constexpr const char* kGraph = R"(%0 = input float16[s, 64]
%1 = input float16[4, 64, 32]
%2 = input int64[4]
%3 = input int64[s]
%4 = matmul float16[i < s, one < 1, j < 32; k < 64]: %0[i, k], %1[%3[i], k, j] by %3[i] over [e < 4] to %2[e] @"experts"
return %4)";

FuseOptions of_groups() {
  FuseOptions o = any_device();
  o.row_groups = true;
  return o;
}

TEST(GroupsToBlocks, BlocksOfOneGroupEach) {
  expect_pass("groups_to_blocks", kGraph, R"(%0 = input float16[s, 64]
%1 = input float16[4, 64, 32]
%2 = input int64[4]
%3 = input int64[s]
%4, %5, %6 = routine "group" int64[s], int64[min(s, floordiv(s, max(1, min(floordiv(s, 16), 8) * 16)) + 4), max(1, min(floordiv(s, 16), 8) * 16)], int64[min(s, floordiv(s, max(1, min(floordiv(s, 16), 8) * 16)) + 4)]: %3 {params = [4, max(1, min(floordiv(s, 16), 8) * 16)]} @"experts"
%7 = matmul float16[z < min(s, floordiv(s, max(1, min(floordiv(s, 16), 8) * 16)) + 4), i < max(1, min(floordiv(s, 16), 8) * 16), j < 32; k < 64]: %0[max(0, %5[z, i]), k], %1[%6[z], k, j] @"experts"
%8 = view float16[min(s, floordiv(s, max(1, min(floordiv(s, 16), 8) * 16)) + 4) * max(1, min(floordiv(s, 16), 8) * 16), 32]: %7 @"experts"
%9 = loop float16[i < s, one < 1, j < 32]: %8[%4[i], j] @"experts"
return %9)",
              any_device());
  EXPECT_THAT(remarks_of("groups_to_blocks", kGraph, any_device()),
              ElementsAre("experts: its rows are copied to blocks: the device has no such kernel"));
}

TEST(GroupsToBlocks, DevicesThatFindTheGroupOfATileNeedNone) {
  expect_unchanged("groups_to_blocks", kGraph, of_groups());
  FuseOptions refuses = of_groups();
  refuses.accepts_tile = [](const Node&, std::string& why) {
    why = "of float64";
    return false;
  };
  EXPECT_THAT(remarks_of("groups_to_blocks", kGraph, refuses),
              ElementsAre("experts: its rows are copied to blocks: of float64"));
}

}  // namespace
}  // namespace sardonyx
