// Which operands Hopper's copy engine fetches, and what its tilings launch.
#include "codegen/tma_tiling.h"

#include <gtest/gtest.h>

#include "codegen/tiling.h"

namespace sardonyx::codegen {
namespace {

struct Vars {
  Expr z = loop_var(4), line = loop_var(100), index = loop_var(96);  // of 768 k's, 8 at a time
  std::optional<CopiedOperand> of(const Expr& offset) const { return copied_operand(offset, z, line, index, 8, 768); }
};

TEST(CopiedOperand, LinesAtFixedDistances) {
  const Vars v;
  const auto plain = v.of(v.z * Expr(76800) + v.line * Expr(768) + v.index * Expr(8));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->offset, 0);
  EXPECT_EQ(plain->pitch, 768);
  EXPECT_EQ(plain->batch, 76800);
  // A part of longer lines.
  const auto part = v.of(v.z * Expr(230400) + v.line * Expr(2304) + v.index * Expr(8) + Expr(1536));
  ASSERT_TRUE(part);
  EXPECT_EQ(part->offset, 1536);
  EXPECT_EQ(part->pitch, 2304);
}

TEST(CopiedOperand, OneBatchNeedsNoDistanceOfBatches) {
  Vars v;
  v.z = loop_var(1);
  const auto one = v.of(v.line * Expr(768) + v.index * Expr(8));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->batch, 0);
}

TEST(CopiedOperand, WhatTheEngineCannotRead) {
  const Vars v;
  const Expr batch = v.z * Expr(80000), along = v.index * Expr(8), symbol_ = symbol(0, "n");
  EXPECT_FALSE(v.of(batch + v.line * Expr(772) + along));                    // not at 16 bytes
  EXPECT_FALSE(v.of(batch + v.line * Expr(768) + along + Expr(4)));          // likewise
  EXPECT_FALSE(v.of(batch + v.line * Expr(512) + along));                    // lines overlap
  EXPECT_FALSE(v.of(v.line * Expr(768) + along));                            // one operand for all batches
  EXPECT_FALSE(v.of(batch + v.line * symbol_ * Expr(8) + along));            // a distance that is not known
  EXPECT_FALSE(v.of(batch + v.line * Expr(768) + along * Expr(2)));          // every other vector
  EXPECT_FALSE(v.of(batch + idx::mod(v.line, 7) * Expr(768) + along));       // lines in another order
  EXPECT_FALSE(v.of(batch + v.line * Expr(std::int64_t{1} << 39) + along));  // beyond what maps count
}

TEST(TmaTilings, FitTheChip) {
  for (const std::int64_t depth : {64, 768, 4096})
    for (const TmaCandidate& c : tma_candidates(depth)) {
      SCOPED_TRACE(c.kernel);
      const GpuTiling& t = c.tiling;
      EXPECT_TRUE(t.copies);
      EXPECT_LE(c.shared, 227U << 10);
      EXPECT_LE(t.rows, 256);
      EXPECT_LE(t.cols, 256);
      EXPECT_GE((depth + 63) / 64, t.cluster);
      EXPECT_EQ(t.cluster > 1, c.bounds.find(".reqnctapercluster") != std::string::npos);
      EXPECT_NE(c.bounds.find(".maxntid " + std::to_string(t.threads)), std::string::npos);
    }
}

TEST(TmaTilings, NoMoreWorkgroupsThanUnits) {
  GpuTiling t;
  t.rows = 128;
  t.cols = 192;
  t.copies = true;
  EXPECT_EQ(workgroups(t, 1, 600, 576), 15);
  EXPECT_EQ(launched_workgroups(t, 1, 600, 576, 132), 15);
  EXPECT_EQ(workgroups(t, 1, 12800, 576), 300);
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 576, 132), 132);
  // Those that share k's have one tile each.
  t.cluster = 4;
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 192, 132), 400);
  t.cluster = 1;
  t.copies = false;
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 576, 132), 300);
}

}  // namespace
}  // namespace sardonyx::codegen
