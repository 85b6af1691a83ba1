// The layouts of shared memory that kernels and library both compile (src/kernels/layout_*.h): the kernels' own
// constants, as the embedded compiler has them, are those that the library launches with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/stream_tiling.h"
#include "codegen/tma_tiling.h"
#include "compile/compiler.h"
#include "kernel_sources.h"
#include "kernels/layout_attention.h"
#include "kernels/layout_gemm.h"
#include "kernels/layout_stream.h"

namespace sardonyx::codegen {
namespace {

namespace layout = sdx::layout;

/// Compiles for Hopper what `text` asserts of kernels; throws with the failed static_assert.
void expect_compiles(const std::string& text, const std::string& header = "gpu_kernels.h") {
  static const std::vector<SourceFile> headers = [] {
    std::vector<SourceFile> all;
    for (const EmbeddedFile& f : kKernelSources) all.push_back({f.name, std::string(f.text())});
    return all;
  }();
  const std::string source = fmt::format("#include \"{}\"\nusing namespace sdx;\n{}", header, text);
  EXPECT_NO_THROW(compile(source, headers, parse_target("sm_90a"))) << text;
}

std::string equal(const std::string& device, long host) {
  return fmt::format("static_assert({} == {});\n", device, host);
}

TEST(SharedLayouts, CopyingGemms) {
  std::string text;
  for (const bool full : {true, false})
    for (const KernelCandidate& c : tma_candidates(chip_of("sm_90a"), 4096, full, true, false)) {
      // "gemm_tma<TmaTiling<...>>"
      const std::string tiling = c.kernel.substr(9, c.kernel.size() - 10);
      text += equal(tiling + "::kThreads", c.tiling.threads) +
              equal(fmt::format("{}::kLayout.bytes({})", tiling, full), c.shared);
    }
  ASSERT_FALSE(text.empty());
  expect_compiles(text);
}

TEST(SharedLayouts, StreamedGemms) {
  std::string text;
  for (const StreamGemm& p :
       {StreamGemm{16, true, 0, 3072, 2048}, StreamGemm{4, true, 1, 3072, 2048}, StreamGemm{4, false, 4, 4096, 4096},
        StreamGemm{8, true, 2, 4096, 4096}, StreamGemm{4, true, 1, 16384, 2048, true}}) {
    const auto c = stream_candidate(chip_of("sm_90a"), p);
    ASSERT_TRUE(c);
    // "stream<StreamTiling<...>>"
    const std::string tiling = c->kernel.substr(7, c->kernel.size() - 8);
    text += equal(tiling + "::kWorkers + 32", c->tiling.threads) + equal(tiling + "::kLayout.bytes()", c->shared) +
            equal(tiling + "::kDepth", p.depth);
    EXPECT_EQ(c->bounds.threads, static_cast<std::uint32_t>(c->tiling.threads));
  }
  expect_compiles(text);
}

TEST(SharedLayouts, SingleTokenAttention) {
  std::string text;
  for (const int dim : {64, 80, 128})
    for (const int group : {1, 4})
      for (const int cluster : {layout::kStepCluster, 4, 2, 1})
        for (const bool appends : {false, true}) {
          const layout::StepMmaLayout l{dim, group, cluster, appends};
          const std::string problem = fmt::format("P<{}, {}, {}>", dim, group, appends ? 1 : 0);
          text += equal(fmt::format("AttentionStepMma<{}, {}>::kBytes", problem, cluster), l.bytes());
        }
  expect_compiles(
      "template <int D, int G, int A> struct P { using T = f16; using Out = f16; using Stored = f16; enum : int { kDim "
      "= D, kValueDim = D, "
      "kGroup = G, kAppends = A, kPlain = 1, kBounds = 0, kSink = 0, kZeroEmpty = 0, kKeyStride = 0 }; };\n#include "
      "\"attention.h\"\n"
      "#include \"attention_step_mma.h\"\n" +
      text);
}

TEST(SharedLayouts, PartsDoNotOverlap) {
  const layout::StepMmaLayout step{128, 4, 8, true};
  EXPECT_LT(0, step.queries_at());
  EXPECT_LT(step.queries_at(), step.new_row_at());
  EXPECT_LT(step.new_row_at(), step.acc_at());
  EXPECT_LT(step.acc_at(), step.statistics_at());
  EXPECT_LT(step.statistics_at(), step.maxima_at());
  EXPECT_LT(step.maxima_at(), step.barrier_at());
  EXPECT_LT(step.barrier_at(), step.bytes());
  // Tiles of 16 keys and 16 values of 128 elements for 8 warps.
  EXPECT_EQ(step.queries_at(), 8 * 2 * 16 * 128 * 2);

  const layout::WgmmaAttentionLayout attention{128, 64, 2, true};
  EXPECT_EQ(attention.rows(), 64);
  EXPECT_EQ(attention.value_at() - attention.key_at(), 2 * attention.part());
  EXPECT_EQ(attention.column_at() - attention.value_at(), 3 * attention.part());
  EXPECT_EQ(attention.bytes(), 64 * 256 + 5 * 128 * 256 + 2 * 128 * 4);
  EXPECT_LE(attention.bytes(), 227 << 10);
}

}  // namespace
}  // namespace sardonyx::codegen
