// GEMMs of groups of rows on GPUs: which kernels divide rows by group.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/contraction.h"
#include "codegen/tile_codegen.h"
#include "graph_text/parse.h"

namespace sardonyx::codegen {
namespace {

using testing::HasSubstr;
using testing::Not;

// {0}: type, {1}: K, {2}: index of the weights.
std::unique_ptr<Graph> graph(const char* type = "float16", int k = 256, const char* at = "%3[i], k, j") {
  return parse_graph(fmt::format(R"(%0 = input {0}[s, {1}]
%1 = input {0}[4, {1}, 512]
%2 = input int64[4]
%3 = input int64[s]
%4 = matmul {0}[i < s, one < 1, j < 512; k < {1}]: %0[i, k], %1[{2}] by %3[i] over [e < 4] to %2[e]
return %4)",
                                 type, k, at));
}

GpuTileSource source(const Graph& g, std::string_view arch) {
  TileKernel t;
  t.node = g.outputs[0]->producer;
  t.out = g.outputs[0];
  return generate_gpu_tile(t, arch, {.all = true});
}

TEST(Groups, EachRowBelongsToOneMatrix) {
  const auto g = graph();
  TileKernel t;
  t.node = g->outputs[0]->producer;
  t.out = g->outputs[0];
  Value accumulator;
  const Contraction c = contraction_of(t, accumulator);
  EXPECT_EQ(to_string(c.batches()), "4");
  EXPECT_EQ(to_string(c.m()), "s");
  EXPECT_EQ(to_string(c.n()), "512");
  ASSERT_TRUE(c.end);
  EXPECT_FALSE(c.b->args[0]->has_load);
}

TEST(Groups, CopyEngineOnHopper) {
  const auto g = graph();
  const GpuTileSource s = source(*g, "sm_90a");
  int copying = 0;
  for (std::size_t k = 0; k < s.choice.candidates.size(); ++k) {
    const GpuTiling& tiling = s.choice.candidates[k].tiling.at(0);
    SCOPED_TRACE(s.choice.candidates[k].name);
    EXPECT_TRUE(tiling.groups);
    EXPECT_EQ(tiling.splits, 1);
    EXPECT_EQ(tiling.cluster, 1);
    EXPECT_THAT(s.kernels[s.launches[k][0].kernel].body, HasSubstr("kGroups = true"));
    copying += tiling.tma;
  }
  EXPECT_GT(copying, 0);
  ASSERT_EQ(s.copied.size(), 1u);
  EXPECT_EQ(s.copied[0].a.batch, 0);          // all groups have rows of one tensor
  EXPECT_EQ(s.copied[0].b.batch, 256 * 512);  // and a matrix each
  // The weights of the first tile are not known before the rows' groups are.
  EXPECT_THAT(s.kernels[0].body, Not(HasSubstr("kLoadedB")));
}

TEST(Groups, MatrixInstructionsElsewhere) {
  for (const char* arch : {"gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80"}) {
    const auto g = graph();
    const GpuTileSource s = source(*g, arch);
    ASSERT_FALSE(s.choice.candidates.empty()) << arch;
    for (const Candidate& c : s.choice.candidates) {
      EXPECT_EQ(c.name.substr(0, 12), "gemm<Tiling<") << arch << " " << c.name;
      EXPECT_TRUE(c.tiling.at(0).groups);
    }
    EXPECT_THAT(s.kernels[0].body, HasSubstr("kGroups = true"));
    EXPECT_THAT(s.kernels[0].body, HasSubstr("Problem<f16, Access::kVector, Access::kAcross"));
  }
}

// A pass may have made the weights depend on the row in another way too: the node still means the same.
TEST(Groups, OtherIndicesOfTheRowAreABatch) {
  const auto g = graph("float16", 256, "%3[i] * 0 + %3[mod(i * 5, s)], k, j");
  TileKernel t;
  t.node = g->outputs[0]->producer;
  t.out = g->outputs[0];
  Value accumulator;
  const Contraction c = contraction_of(t, accumulator);
  EXPECT_FALSE(c.end);
  EXPECT_EQ(to_string(c.batches()), "s");
}

}  // namespace
}  // namespace sardonyx::codegen
