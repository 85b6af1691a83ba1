// Which tiles the cost model chooses for GEMMs of AMD's matrix instructions.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/kernel_family.h"

namespace sardonyx::codegen {

const ContractionFamily& tile_family();

namespace {

/// "32x32": the tile with the least cost for a GEMM in float16.
std::string tile_of(std::string_view arch, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Chip& chip = chip_of(arch);
  ContractionProblem p{chip};
  p.type = DType::kFloat16;
  p.a = p.b = Access::kVector;
  p.columns = n, p.depth = k;
  std::vector<GpuTiling> all;
  for (const KernelCandidate& c : tile_family().candidates(p)) all.push_back(c.tiling);
  const GpuTiling& t = all.at(choose_tiling(all, 1, m, n, k, driver_units(chip)));
  return fmt::format("{}x{}", t.rows, t.cols);
}

// Where K is short, a workgroup of 32 x 32 has its four waves mostly for the sum of what they computed.
TEST(AmdTiling, ShortSumsTakeNoTilesThatDivideK) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{3025, 64, 16},
                                {729, 128, 32},
                                {169, 192, 48},
                                {3025, 16, 64},
                                {3136, 64, 64},
                                {12544, 16, 48}})
    EXPECT_NE(tile_of("gfx942", m, n, k), "32x32") << m << " x " << n << " x " << k;
  EXPECT_EQ(tile_of("gfx942", 196, 256, 1024), "32x32");
  EXPECT_EQ(tile_of("gfx942", 128, 768, 768), "32x32");
}

// One tile for each of 48 workgroup processors.
TEST(AmdTiling, TilesFitTheUnitsOfRdna3) {
  EXPECT_EQ(tile_of("gfx1100", 384, 768, 3072), "96x64");
  EXPECT_EQ(tile_of("gfx1100", 64, 3072, 768), "64x64");
  EXPECT_EQ(tile_of("gfx1100", 64, 768, 3072), "32x32");
}

// Three tiles of 32 x 32 for each processor take as long as one of 64 x 64 for most, and read twice as much.
TEST(AmdTiling, OfEqualTilesTheOneThatReadsLess) { EXPECT_EQ(tile_of("gfx1100", 64, 2304, 768), "64x64"); }

// Few rows take small tiles: the time of a launch is none of a tile's.
TEST(AmdTiling, FewRowsTakeSmallTiles) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950", "gfx1100"}) {
    EXPECT_EQ(tile_of(chip, 128, 768, 768), "32x32") << chip;
    EXPECT_EQ(tile_of(chip, 64, 768, 768), "32x32") << chip;
  }
}

// One or two for each of 32. Many rounds take larger tiles.
TEST(AmdTiling, TilesFitTheUnitsOfRdna4) {
  EXPECT_EQ(tile_of("gfx1201", 384, 768, 3072), "96x96");
  EXPECT_EQ(tile_of("gfx1201", 768, 768, 3072), "96x96");
  EXPECT_EQ(tile_of("gfx1201", 4096, 768, 3072), "128x128");
}

}  // namespace
}  // namespace sardonyx::codegen
