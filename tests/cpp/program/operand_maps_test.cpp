// Tensor maps of a product's operands.
#include "program/operand_maps.h"

#include <gtest/gtest.h>

namespace sardonyx {
namespace {

TEST(OperandMaps, DimsAndBoxes) {
  TileLaunchStep step;
  step.copied_a = {1, 16, 2304, 230400};
  step.copied_b = {0, 0, 768, 768 * 512};
  codegen::GpuTiling t;
  t.rows = 128;
  t.cols = 192;
  t.copies = true;
  const auto maps = operand_maps(step, t, {3, 100, 512, 700});
  ASSERT_EQ(maps.size(), 2U);
  const TensorMapInfo &a = maps[0].info, &b = maps[1].info;
  EXPECT_EQ(maps[0].buffer, 1U);
  EXPECT_EQ(maps[0].offset, 32U);
  EXPECT_EQ(a.rank, 3);
  EXPECT_EQ(a.dims, (decltype(a.dims){700, 100, 3}));
  EXPECT_EQ(a.strides, (decltype(a.strides){2, 4608, 460800}));
  EXPECT_EQ(a.box, (decltype(a.box){64, 128, 1}));
  EXPECT_EQ(maps[1].buffer, 0U);
  EXPECT_EQ(b.dims, (decltype(b.dims){700, 512, 3}));
  EXPECT_EQ(b.box, (decltype(b.box){64, 192, 1}));
}

TEST(OperandMaps, OneBatchHasSomeStride) {
  TileLaunchStep step;
  step.copied_a = step.copied_b = {0, 0, 768, 0};
  codegen::GpuTiling t;
  t.rows = t.cols = 128;
  t.copies = true;
  for (const GpuCall::Map& m : operand_maps(step, t, {1, 100, 512, 768})) EXPECT_EQ(m.info.strides[2], 1536U);
}

}  // namespace
}  // namespace sardonyx
