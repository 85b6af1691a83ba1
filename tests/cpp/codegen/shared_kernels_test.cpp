// Which sizes of GEMMs are arguments of their kernels, so that layers share them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "codegen/tile_codegen.h"
#include "graph_text/parse.h"

namespace sardonyx::codegen {
namespace {

using testing::HasSubstr;

/// The texts of a GEMM's kernels for any number of rows, by candidate.
std::map<std::string, std::string> kernels(std::string_view arch, int n, int k) {
  const auto graph = parse_graph(fmt::format(R"(%0 = input float16[s, {1}]
%1 = input float16[{0}, {1}]
%2 = matmul float16[i < s, j < {0}; k < {1}]: %0[i, k], %1[j, k]
return %2)",
                                             n, k));
  TileKernel t;
  t.node = graph->outputs[0]->producer;
  t.out = graph->outputs[0];
  const GpuTileSource s = generate_gpu_tile(t, arch, {.all = true});
  std::map<std::string, std::string> texts;
  for (std::size_t c = 0; c < s.choice.candidates.size(); ++c)
    texts[s.choice.candidates[c].name] = s.kernels[s.launches[c][0].kernel].body;
  return texts;
}

int tiles_in(const std::map<std::string, std::string>& texts) {
  return static_cast<int>(
      std::count_if(texts.begin(), texts.end(), [](const auto& t) { return t.first.starts_with("gemm<"); }));
}

TEST(SharedKernels, LayersThatDifferInNAndKHaveTheSameTiles) {
  for (const char* arch : {"gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    SCOPED_TRACE(arch);
    auto one = kernels(arch, 512, 1024), other = kernels(arch, 2048, 2048);
    EXPECT_GT(tiles_in(one), 3);
    for (const auto& [name, text] : one) {
      if (other.count(name) == 0) continue;  // so many workgroups do not divide its K
      // Tiles of 96 columns have a part of one at the end, by which they divide.
      if (name.starts_with("gemm<") && name.find("<96, 96") == std::string::npos) {
        EXPECT_EQ(text, other[name]) << name;
      }
    }
  }
}

// There is no main loop then, and its code takes longer to compile than what is left for a known K.
TEST(SharedKernels, AKOfFewTilesIsKnown) {
  auto small = kernels("gfx942", 512, 128), other = kernels("gfx942", 512, 256);
  const std::string tile = "gemm<Tiling<128, 64, 2, 2, 1, 64, 2, 2>>";
  ASSERT_TRUE(small.count(tile) && other.count(tile));
  EXPECT_THAT(small[tile], HasSubstr(", 128u}"));
  EXPECT_THAT(other[tile], HasSubstr("u32(u64(nk) >> 32) / 32 * 32}"));
}

// A number of tiles that is no power of two would be a division before the first load.
TEST(SharedKernels, OtherNAreKnownWhereDivisionsAreSlow) {
  auto texts = kernels("gfx942", 768, 1024), longer = kernels("gfx942", 768, 3072);
  for (const auto& [name, text] : texts) {
    if (!name.starts_with("gemm<")) continue;
    EXPECT_THAT(text, HasSubstr(", 768u, u32(u64(nk) >> 32)")) << name;
    EXPECT_EQ(text, longer[name]) << name;
  }
}

TEST(SharedKernels, PartsOfTilesAreKnown) {
  for (const auto& [name, text] : kernels("gfx942", 520, 1048))
    if (name.starts_with("gemm<")) EXPECT_THAT(text, HasSubstr(", 520u, 1048u}")) << name;
}

}  // namespace
}  // namespace sardonyx::codegen
