// Which operands TMA loads on Hopper, and the launches of its tilings.
#include "codegen/tma_tiling.h"

#include <gtest/gtest.h>

#include "codegen/contraction.h"
#include "program/tiling.h"

namespace sardonyx::codegen {
namespace {

struct Vars {
  Expr z = loop_var(4), line = loop_var(100), index = loop_var(96);  // of 768 K elements, 8 at a time
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

TEST(CopiedOperand, BatchesMayShareOne) {
  const Vars v;
  const auto shared = v.of(v.line * Expr(768) + v.index * Expr(8));
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->batch, 0);
}

// Lines are contiguous: element k of line i is at k * pitch + i.
TEST(CopiedOperand, ContiguousLines) {
  const Expr z = loop_var(4), line = loop_var(128), k = loop_var(96);
  const auto plain = copied_across(z * Expr(12288) + k * Expr(128) + line + Expr(8), z, line, k, Expr());
  ASSERT_TRUE(plain && plain->across);
  EXPECT_EQ(plain->pitch, 128);
  EXPECT_EQ(plain->batch, 12288);
  EXPECT_EQ(plain->offset, 8);
  EXPECT_EQ(plain->inner, 0);
  EXPECT_FALSE(copied_across(k * Expr(132) + line, z, line, k, Expr()));            // not at 16 bytes
  EXPECT_FALSE(copied_across(k * Expr(128) + line * Expr(2), z, line, k, Expr()));  // every other element
}

// The rows of several matrices [96, 64]: row 64 i + j is column j of matrix i.
TEST(CopiedOperand, ContiguousLinesOfSeveralMatrices) {
  const Expr one = loop_var(1), line = loop_var(symbol(0, "n") * Expr(64)), k = loop_var(96);
  const Expr at = idx::floordiv(line, 64) * Expr(6144) + k * Expr(64) + idx::mod(line, 64);
  const auto several = copied_across(at, one, line, k, Expr(64));
  ASSERT_TRUE(several);
  EXPECT_EQ(several->inner, 64);
  EXPECT_EQ(several->batch, 6144);
  EXPECT_FALSE(copied_across(at, loop_var(4), line, k, Expr(64)));  // and batches besides
  // 32 of 64 lines that are copied at a time would be of the next matrix.
  const Expr narrow = idx::floordiv(line, 32) * Expr(3072) + k * Expr(32) + idx::mod(line, 32);
  EXPECT_FALSE(copied_across(narrow, one, line, k, Expr(32)));
}

// Four heads of 192 elements, which lie between the tokens: batch 4 b + h.
TEST(CopiedOperand, HeadsBetweenTokens) {
  Vars v;
  v.z = loop_var(symbol(0, "n") * Expr(4));
  const Expr b = idx::floordiv(v.z, 4), h = idx::mod(v.z, 4);
  const auto rows = v.of(b * Expr(307200) + h * Expr(768) + v.line * Expr(3072) + v.index * Expr(8) + Expr(16));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->pitch, 3072);
  EXPECT_EQ(rows->heads, 4);
  EXPECT_EQ(rows->head, 768);
  EXPECT_EQ(rows->batch, 307200);
  EXPECT_EQ(rows->offset, 16);
  const Expr k = loop_var(96);
  const auto across = copied_across(b * Expr(73728) + h * Expr(192) + k * Expr(768) + v.line, v.z, v.line, k, Expr());
  ASSERT_TRUE(across);
  EXPECT_EQ(across->pitch, 768);
  EXPECT_EQ(across->heads, 4);
  EXPECT_EQ(across->head, 192);
  EXPECT_EQ(across->batch, 73728);
  // A stride that is no multiple of 16 bytes, one operand for all heads, and two divisors.
  EXPECT_FALSE(v.of(b * Expr(307200) + h * Expr(764) + v.line * Expr(3072) + v.index * Expr(8)));
  EXPECT_FALSE(v.of(b * Expr(307200) + v.line * Expr(3072) + v.index * Expr(8)));
  EXPECT_FALSE(v.of(idx::floordiv(v.z, 2) * Expr(307200) + h * Expr(768) + v.line * Expr(3072) + v.index * Expr(8)));
}

TEST(TmaCandidates, ContiguousColumnsComeInSixtyFours) {
  const Chip& chip = chip_of("sm_90a");
  const auto all = tma_candidates(chip, 768, true, true, false), across = tma_candidates(chip, 768, true, true, true);
  EXPECT_GT(across.size(), 0U);
  EXPECT_LT(across.size(), all.size());
  for (const KernelCandidate& c : across) EXPECT_NE(c.kernel.substr(0, 31), "gemm_tma<TmaTiling<64, 64, fals");
}

TEST(CopiedOperand, WhatTheEngineCannotRead) {
  const Vars v;
  const Expr batch = v.z * Expr(80000), along = v.index * Expr(8), symbol_ = symbol(0, "n");
  EXPECT_FALSE(v.of(batch + v.line * Expr(772) + along));                    // not at 16 bytes
  EXPECT_FALSE(v.of(batch + v.line * Expr(768) + along + Expr(4)));          // likewise
  EXPECT_FALSE(v.of(batch + v.line * Expr(512) + along));                    // lines overlap
  EXPECT_FALSE(v.of(batch + v.line * symbol_ * Expr(8) + along));            // a distance that is not known
  EXPECT_FALSE(v.of(batch + v.line * Expr(768) + along * Expr(2)));          // every other vector
  EXPECT_FALSE(v.of(batch + idx::mod(v.line, 7) * Expr(768) + along));       // lines in another order
  EXPECT_FALSE(v.of(batch + v.line * Expr(std::int64_t{1} << 39) + along));  // beyond what maps count
}

// Images [n, 30, 40, channels], their channels last, under a filter.
struct Filter {
  Windows w;
  explicit Filter(const Expr& channels, std::int64_t taps = 3, std::int64_t stride = 1, std::int64_t dilation = 1) {
    const Exprs sizes = {symbol(0, "n"), 30, 40, channels};
    w.image = loop_var(sizes[0]);
    w.y = loop_var(sizes[1]);
    w.x = loop_var(sizes[2]);
    w.channel = loop_var(channels);
    w.offset = idx::linearize({w.image, w.y, w.x, w.channel}, sizes);
    w.out = {Expr(30), Expr(40)};
    w.pads = {Expr(1), Expr(2)};
    w.pads_end = {Expr(3), Expr(4)};
    w.taps = {taps, taps};
    w.strides = {stride, stride};
    w.dilations = {dilation, dilation};
  }
};

TEST(CopiedWindows, ChannelsLast) {
  const auto o = copied_windows(Filter(128).w);
  ASSERT_TRUE(o);
  EXPECT_EQ(o->channels, 128);
  EXPECT_TRUE(is_const(o->sizes[0], 40) && is_const(o->sizes[1], 30));  // x before y
  EXPECT_TRUE(is_const(o->pads[0], 2) && is_const(o->pads[1], 1));
  EXPECT_TRUE(is_const(o->pitches[0], 128) && is_const(o->pitches[1], 128 * 40));
  EXPECT_TRUE(is_const(o->pitch, 128 * 40 * 30));
  EXPECT_TRUE(copied_windows(Filter(64, 1, 2).w));
  EXPECT_TRUE(copied_windows(Filter(64, 3, 1, 36).w));
}

TEST(CopiedWindows, ChannelsUnderTapsSideBySideAreOne) {
  // 8 channels under 4 taps, in lines without padding.
  Filter few(8, 4);
  EXPECT_FALSE(copied_windows(few.w));
  few.w.pads[1] = few.w.pads_end[1] = 0;
  few.w.out[1] = 37;
  const auto o = copied_windows(few.w);
  ASSERT_TRUE(o);
  EXPECT_EQ(o->channels, 32);
  EXPECT_EQ(o->taps, (decltype(o->taps){1, 4}));
  EXPECT_TRUE(is_const(o->sizes[0], 37) && is_const(o->pitches[0], 8) && is_const(o->pitches[1], 320));
  few.w.dilations[1] = 2;
  EXPECT_FALSE(copied_windows(few.w));
}

TEST(CopiedWindows, WhatTheEngineCannotRead) {
  EXPECT_FALSE(copied_windows(Filter(48).w));              // 32 channels at a time
  EXPECT_FALSE(copied_windows(Filter(symbol(1, "c")).w));  // channels that are not known
  EXPECT_FALSE(copied_windows(Filter(64, 3, 9).w));        // steps beyond what maps count
  EXPECT_FALSE(copied_windows(Filter(64, 3, 1, 100).w));   // taps likewise
  Filter first(64), negative(64), far(64), unknown(64);
  first.w.offset = idx::linearize({first.w.image, first.w.channel, first.w.y, first.w.x}, {symbol(0, "n"), 64, 30, 40});
  EXPECT_FALSE(copied_windows(first.w));
  negative.w.pads[0] = Expr(-1);
  EXPECT_FALSE(copied_windows(negative.w));
  far.w.pads_end[1] = Expr(500);
  EXPECT_FALSE(copied_windows(far.w));
  unknown.w.pads[1] = symbol(2, "p");
  EXPECT_FALSE(copied_windows(unknown.w));
}

// A vector has 16 elements, and 64 bytes of channels are loaded at a time.
TEST(CopiedWindows, ChannelsOfOneByte) {
  EXPECT_TRUE(copied_windows(Filter(64).w, 16));
  EXPECT_TRUE(copied_windows(Filter(192).w, 16));
  EXPECT_FALSE(copied_windows(Filter(32).w, 16));
  EXPECT_FALSE(copied_windows(Filter(96).w, 16));
}

TEST(CopiedOperand, ElementsOfOneByte) {
  const Expr z = loop_var(1), line = loop_var(100), index = loop_var(48);  // of 768 K elements, 16 at a time
  EXPECT_TRUE(copied_operand(line * Expr(784) + index * Expr(16), z, line, index, 16, 768));
  EXPECT_FALSE(copied_operand(line * Expr(776) + index * Expr(16), z, line, index, 16, 768));  // not at 16 bytes
}

// The same instructions per byte of K, so that the costs per element are half of those of 16 bits.
TEST(TmaTilings, ElementsOfOneByte) {
  const Chip& chip = chip_of("sm_90a");
  const auto halves = tma_candidates(chip, 768, true, true, false),
             bytes = tma_candidates(chip, 1536, true, true, false, 1);
  ASSERT_EQ(halves.size(), bytes.size());
  for (std::size_t k = 0; k < halves.size(); ++k) {
    EXPECT_EQ(halves[k].kernel, bytes[k].kernel);
    EXPECT_EQ(halves[k].shared, bytes[k].shared);
    EXPECT_FLOAT_EQ(halves[k].tiling.busy, 2 * bytes[k].tiling.busy);
  }
  EXPECT_TRUE(tma_candidates(chip, 64, true, false, false, 1).empty());  // half a stage
}

TEST(TmaTilings, FitTheChip) {
  for (const auto& [depth, full] : {std::pair(64, true), {768, false}, {4096, true}, {4096, false}})
    for (const KernelCandidate& c : tma_candidates(chip_of("sm_90a"), depth, full, true, false)) {
      SCOPED_TRACE(c.kernel);
      const GpuTiling& t = c.tiling;
      EXPECT_TRUE(t.tma);
      EXPECT_LE(c.shared, 227U << 10);
      EXPECT_LE(t.rows, 256);
      EXPECT_LE(t.cols, 256);
      EXPECT_GE((depth + 63) / 64, t.cluster);
      EXPECT_EQ(c.bounds.cluster, t.cluster > 1 ? static_cast<std::uint32_t>(t.cluster) : 0u);
      EXPECT_EQ(c.bounds.threads, static_cast<std::uint32_t>(t.threads));
    }
}

TEST(TmaTilings, HalfStepsAreNotShared) {
  EXPECT_TRUE(tma_candidates(chip_of("sm_90a"), 32, true, false, false).empty());
  const auto all = tma_candidates(chip_of("sm_90a"), 224, true, false, false);
  ASSERT_FALSE(all.empty());
  for (const KernelCandidate& c : all) EXPECT_EQ(c.tiling.cluster, 1) << c.kernel;
}

TEST(TmaTilings, NoMoreWorkgroupsThanUnits) {
  GpuTiling t;
  t.rows = 128;
  t.cols = 192;
  t.tma = true;
  EXPECT_EQ(workgroups(t, 1, 600, 576), 15);
  EXPECT_EQ(launched_workgroups(t, 1, 600, 576, 132), 15);
  EXPECT_EQ(workgroups(t, 1, 12800, 576), 300);
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 576, 132), 132);
  // Those that share K have one tile each.
  t.cluster = 4;
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 192, 132), 400);
  t.cluster = 1;
  t.tma = false;
  EXPECT_EQ(launched_workgroups(t, 1, 12800, 576, 132), 300);
}

// Groups may each end within a tile.
TEST(TmaTilings, TilesOfGroups) {
  GpuTiling t;
  t.rows = 128;
  t.cols = 256;
  t.groups = true;
  EXPECT_EQ(workgroups(t, 8, 4096, 512), (32 + 8) * 2);
  EXPECT_EQ(workgroups(t, 8, 100, 512), 8 * 2);
  EXPECT_EQ(workgroups(t, 64, 3, 512), 3 * 2);
}

// 28 clusters of 4 run at once on 132 units, 32 do not.
TEST(TmaTilings, ClustersDoNotFillTheChip) {
  std::vector<GpuTiling> all;
  for (const KernelCandidate& c : tma_candidates(chip_of("sm_90a"), 1024, true, true, false)) all.push_back(c.tiling);
  const auto cluster = [&](std::int64_t m, std::int64_t n) {
    return all[choose_tiling(all, 1, m, n, 1024, 132)].cluster;
  };
  EXPECT_EQ(cluster(196, 256), 4);
  EXPECT_NE(cluster(196, 512), 4);
}

}  // namespace
}  // namespace sardonyx::codegen
