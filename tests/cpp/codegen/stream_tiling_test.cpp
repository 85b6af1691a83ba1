// Which single-row GEMMs stream their weights on Hopper, and with which ring buffers.
#include "codegen/stream_tiling.h"

#include <gtest/gtest.h>

#include "program/tiling.h"

namespace sardonyx::codegen {
namespace {

StreamGemm fp16(std::int64_t columns, std::int64_t depth) { return {16, true, 0, columns, depth}; }
StreamGemm int4(std::int64_t columns, std::int64_t depth) { return {4, true, 1, columns, depth}; }

TEST(StreamTilings, TwoWorkgroupsFitAUnit) {
  for (const StreamGemm& p :
       {fp16(3072, 2048), fp16(16384, 2048), fp16(2048, 8192), int4(3072, 2048), int4(128256, 2048), int4(2048, 8192),
        StreamGemm{8, true, 2, 4096, 4096}, StreamGemm{4, false, 4, 4096, 4096}}) {
    const auto c = stream_candidate(chip_of("sm_90a"), p);
    ASSERT_TRUE(c) << p.bits << " " << p.columns << " " << p.depth;
    SCOPED_TRACE(c->kernel);
    EXPECT_TRUE(c->tiling.few_rows);
    EXPECT_EQ(c->tiling.rows, 1);
    // One warp copies, the others multiply.
    EXPECT_EQ(c->tiling.threads, p.columns < 4096 && p.depth * p.bits % (2048 * 8) == 0 ? 544 : 288);
    EXPECT_EQ(c->tiling.cols % 16, 0);
    EXPECT_LE(c->tiling.cols, 256);
    EXPECT_LE(2 * c->shared, 227U << 10);
    // Enough workgroups to keep memory busy.
    EXPECT_GE(workgroups(c->tiling, 1, 1, p.columns), 128);
  }
}

TEST(StreamTilings, TheRowTakesRoomOfTheRing) {
  EXPECT_TRUE(stream_candidate(chip_of("sm_90a"), fp16(2048, 16384)));
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), fp16(2048, 65536)));  // 128 KB
}

TEST(StreamTilings, ColumnsAreWholePieces) {
  EXPECT_TRUE(stream_candidate(chip_of("sm_90a"), fp16(4096, 768)));  // 1536 bytes: two of 768
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), fp16(4096, 72)));  // 144 bytes
  EXPECT_FALSE(
      stream_candidate(chip_of("sm_90a"), fp16(4096, 576)));  // 1152: 384 bytes per stage, for three of eight warps
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), int4(4096, 128)));            // 64 bytes
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), {4, true, 16, 4096, 4096}));  // 8 bytes of scales
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), {8, true, 0, 4096, 4096}));   // no contiguous scales
}

TEST(StreamTilings, ManyColumnsOf16BitsAreReadAsFastWithoutARing) {
  EXPECT_FALSE(stream_candidate(chip_of("sm_90a"), fp16(128256, 2048)));
  EXPECT_TRUE(stream_candidate(chip_of("sm_90a"), int4(128256, 2048)));
}

TEST(StreamTilings, ScalesComeToSumsOfFloat16Only) {
  EXPECT_NE(stream_candidate(chip_of("sm_90a"), int4(4096, 2048))->kernel.find(", 4, true, 1024, 1, 1, "),
            std::string::npos);
  EXPECT_NE(stream_candidate(chip_of("sm_90a"), {4, false, 1, 4096, 2048})->kernel.find(", 4, false, 1024, 1, 1, "),
            std::string::npos);
  EXPECT_NE(stream_candidate(chip_of("sm_90a"), {8, true, 2, 4096, 2048})->kernel.find(", 8, false, 1024, 2, 2, "),
            std::string::npos);
}

TEST(StreamTilings, ScalesOfWholeColumnsAreCopiedTogether) {
  const auto together = [](StreamGemm p) {
    p.scales_follow = true;
    return stream_candidate(chip_of("sm_90a"), p)->kernel.find(", 1, 1, true, ") != std::string::npos;
  };
  EXPECT_NE(stream_candidate(chip_of("sm_90a"), int4(4096, 2048))->kernel.find(", 1024, 1, 1, false, "),
            std::string::npos);
  EXPECT_TRUE(together(int4(4096, 2048)));
  EXPECT_FALSE(together(int4(4104, 2048)));  // the last tile's would be beyond the end
  EXPECT_FALSE(together(int4(2048, 8192)));  // a column's in two pieces
  StreamGemm p = int4(4096, 2048);
  const std::uint32_t apart = stream_candidate(chip_of("sm_90a"), p)->shared;
  p.scales_follow = true;
  EXPECT_EQ(stream_candidate(chip_of("sm_90a"), p)->shared,
            apart - 2 * 16 * 16);  // two stages, 16 bytes between columns
}

TEST(StreamTilings, AreChosenForOneRow) {
  GpuTiling skinny, general;
  skinny.few_rows = true;
  skinny.rows = 8;
  skinny.cols = 16;
  general.rows = general.cols = 64;
  const GpuTiling one = stream_candidate(chip_of("sm_90a"), int4(4096, 2048))->tiling;
  const std::vector<GpuTiling> all = {general, skinny, one};
  EXPECT_EQ(choose_tiling(all, 1, 1, 4096, 2048, 132), 2U);
  EXPECT_EQ(choose_tiling(all, 1, 2, 4096, 2048, 132), 1U);
  EXPECT_EQ(choose_tiling(all, 1, 64, 4096, 2048, 132), 0U);
}

TEST(StreamTilings, WorkgroupsGoOnToFurtherColumns) {
  const GpuTiling t = stream_candidate(chip_of("sm_90a"), int4(128256, 2048))->tiling;
  EXPECT_EQ(t.cols, 64);
  EXPECT_EQ(workgroups(t, 1, 1, 128256), 2004);
  EXPECT_EQ(launched_workgroups(t, 1, 1, 128256, 132), t.resident * 132);
  EXPECT_EQ(launched_workgroups(t, 1, 1, 2048, 132), 32);
}

}  // namespace
}  // namespace sardonyx::codegen
