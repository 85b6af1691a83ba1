// Which form the GPU kernel of a loop gets, as far as its number of threads shows it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/loop_codegen.h"
#include "fuse/schedule.h"
#include "graph_text/parse.h"

namespace sardonyx::codegen {
namespace {

// Threads of each kernel of a graph, in order.
std::vector<std::int64_t> threads_of(std::string_view text, bool long_rows = false) {
  const auto g = parse_graph(text);
  FuseOptions options;
  options.split_reductions = true;
  options.long_rows = long_rows;
  const Schedule s = fuse(*g, options);
  std::vector<std::int64_t> out;
  for (const Step& step : s.steps) {
    const Expr threads = generate_gpu_loop(std::get<LoopKernel>(step.op),
                                           {.from_inputs = [](std::int64_t) { return true; }, .any_address = long_rows})
                             .threads;
    std::int64_t n = 0;
    EXPECT_TRUE(is_const_int(threads, n)) << to_string(threads);
    out.push_back(n);
  }
  return out;
}

// Channels last: neighbouring channels are no windows that overlap, however far the positions are apart.
TEST(GpuLoops, FewMeansOfAnImageHaveATeamEach) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[1, 784, 72]
%1 = loop float32[c < 72]: sum{r < 784}(float32(%0[0, r, c]))
return %1)"),
            std::vector<std::int64_t>({72 / 8 * 128}));
}

// Channels of a concatenation select from tensors that have fewer of them: these are no overlapping windows either.
TEST(GpuLoops, MeansOfAConcatenationHaveATeamEach) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[1, 784, 64]
%1 = input float16[1, 784, 64]
%2 = loop float32[c < 128]: sum{r < 784}(select(c < 64, float32(%0[0, r, c]), max(float32(%1[0, r, c - 64]), 0.0)))
return %2)"),
            std::vector<std::int64_t>({128 / 8 * 128}));
}

TEST(GpuLoops, ManyColumnsHaveSmallerTeams) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[64, 197, 768]
%1 = loop float32[n < 64, c < 768]: sum{r < 197}(float32(%0[n, r, c]))
return %1)"),
            std::vector<std::int64_t>({64 * 768 / 8 * 32}));
}

TEST(GpuLoops, OverlappingWindowsHaveAThreadForSeveralOutputs) {
  const std::vector<std::int64_t> threads = threads_of(R"(%0 = input float16[8, 1003, 512]
%1 = loop float32[n < 8, i < 1000, c < 512]: sum{r < 4}(float32(%0[n, i + r, c]))
return %1)");
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_LE(threads[0], 8 * 1000 * 512 / 8);
}

TEST(GpuLoops, LongColumnsAreDividedAmongWorkgroups) {
  const std::vector<std::int64_t> threads = threads_of(R"(%0 = input float16[12544, 32]
%1 = loop float32[c < 32]: sum{r < 12544}(float32(%0[r, c]))
return %1)");
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads[0], 24 * 32 / 8 * 128);
}

// 13 workgroups reduce a part of each row; 13 combine the results, and compute 4096 elements each.
TEST(GpuLoops, WorkgroupsDivideFewLongRows) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[8, 50257]
%1 = loop float32[i < 8]: max{r < 50257}(float32(%0[i, r]))
%2 = loop float32[i < 8]: sum{r < 50257}(exp(float32(%0[i, r]) - %1[i]))
%3 = loop float16[i < 8, j < 50257]: float16(exp(float32(%0[i, j]) - %1[i]) / %2[i])
return %3)",
                       true),
            std::vector<std::int64_t>({8 * 13 * 256, 8 * 13 * 256}));
}

// Packs of 8 elements, of which the last overlaps with another.
TEST(GpuLoops, RowsOfOddLengthHavePacks) {
  const auto text = [](int length) {
    return fmt::format(R"(%0 = input float16[100000, {0}]
%1 = loop float32[i < 100000]: sum{{r < {0}}}(float32(%0[i, r]))
return %1)",
                       length);
  };
  EXPECT_EQ(threads_of(text(197), true), threads_of(text(200), true));
  EXPECT_EQ(threads_of(text(197), true), std::vector<std::int64_t>({100000 * 32}));
}

// A sum is one thread's work only if it has very few terms, or if there are many results.
// 25 elements, which are not loaded as vectors: four threads have seven each, more only where there are few rows.
TEST(GpuLoops, ManyShortOddRowsHaveSmallTeams) {
  for (const auto& [rows, team] : {std::pair<std::int64_t, std::int64_t>{1000, 32}, {262144, 4}})
    EXPECT_EQ(threads_of(fmt::format(R"(%0 = input float16[{0}, 25]
%1 = loop float32[i < {0}]: max{{r < 25}}(float32(%0[i, r]))
%2 = loop float32[i < {0}]: sum{{r < 25}}(exp(float32(%0[i, r]) - %1[i]))
return %2)",
                                     rows)),
              std::vector<std::int64_t>({rows * team}));
}

TEST(GpuLoops, ShortSumsOfFewResultsHaveTeams) {
  const auto text = [](int results, int terms) {
    return fmt::format(R"(%0 = input float32[{1}, {0}, 3, {1}]
%1 = loop float32[i < {0}]: sum{{r < {1}, c < {1}}}(%0[r, i, 1, c] * %0[c, i, 2, r])
return %1)",
                       results, terms);
  };
  EXPECT_EQ(threads_of(text(100, 6)), std::vector<std::int64_t>({100 * 32}));
  EXPECT_EQ(threads_of(text(100, 2)), std::vector<std::int64_t>({100}));
  EXPECT_EQ(threads_of(text(10000, 6)), std::vector<std::int64_t>({10000}));
}

// 12 parts of a row: all but the last have 4192 elements, which a workgroup keeps in registers.
TEST(GpuLoops, PartsOfUnequalLengthHaveAWorkgroupEach) {
  const std::vector<std::int64_t> threads = threads_of(R"(%0 = input float16[64, 50257]
%1 = loop float32[i < 64]: max{r < 50257}(float32(%0[i, r]))
return %1)");
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads[0], 64 * 12 * 256);
  EXPECT_LE(threads[1], 64 * 32);
}

// Nine results, and a sum over eight of them: four threads.
TEST(GpuLoops, ShortRowsOfUnequalStagesHaveSmallTeams) {
  EXPECT_EQ(threads_of(R"(%0 = input float32[10000, 9]
%1 = loop float32[i < 10000, j < 9]: exp(%0[i, j])
%2 = loop float32[i < 10000]: sum{r < 8}(%1[i, r] * %1[i, r + 1])
return %1, %2)"),
            std::vector<std::int64_t>({10000 * 4}));
}

// Neighbouring rows are next to each other in memory: a thread has a row, so that threads store next to each other.
TEST(GpuLoops, RowsAcrossMemoryHaveAThreadEach) {
  EXPECT_EQ(threads_of(R"(%0 = input float32[10000, 2]
%1 = loop float32[c < 64, i < 10000]: exp(%0[i, 0] * float32(c)) * %0[i, 1]
%2 = loop float32[i < 10000]: sum{r < 16}(%1[r, i])
return %1, %2)"),
            std::vector<std::int64_t>({10000}));
  // A factor that is the same for all columns does not make them rows.
  EXPECT_EQ(threads_of(R"(%0 = input float16[100, 29, 128]
%1 = input float16[100, 29]
%2 = loop float16[i < 100, j < 29, c < 128]: %0[i, j, c] * %1[i, j]
%3 = loop float32[i < 100, c < 128]: sum{r < 29}(float32(%2[i, r, c]))
return %2, %3)"),
            std::vector<std::int64_t>({100 * 128}));
}

// Rows of two elements that are far apart in memory: a thread has a row, not a workgroup.
TEST(GpuLoops, ShortRowsHaveAThreadEach) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[8, 2, 64, 100]
%1 = loop float16[n < 8, p < 2, c < 64, x < 100]: tanh(%0[n, p, c, x])
%2 = loop float32[n < 8, c < 64, x < 100]: sum{r < 2}(float32(%1[n, r, c, x]))
return %1, %2)"),
            std::vector<std::int64_t>({8 * 64 * 100}));
}

// The sum of squares of differences from a mean that the same kernel computes.
TEST(GpuLoops, ColumnsOfVariancesAreSideBySide) {
  EXPECT_EQ(threads_of(R"(%0 = input float16[8, 784, 64]
%1 = loop float32[n < 8, c < 64]: sum{r < 784}(float32(%0[n, r, c])) / 784.0
%2 = loop float32[n < 8, c < 64]: sum{r < 784}((float32(%0[n, r, c]) - %1[n, c]) * (float32(%0[n, r, c]) - %1[n, c]))
return %2)"),
            std::vector<std::int64_t>({8 * 64 / 8 * 128}));
}

// 98 loads at a time would not fit into registers: one row of taps at a time.
TEST(GpuLoops, LargeWindowsAreUnrolledByRows) {
  const auto kernel = [](int taps) {
    const auto g = parse_graph(fmt::format(R"(%0 = input float16[n, {0}, {0}, 64]
%1 = input float16[{1}, {1}, 64]
%2 = loop float16[n < n, y < 14, x < 14, c < 64]: float16(sum{{r < {1}, s < {1}}}(float32(%0[n, y + r, x + s, c]) * float32(%1[r, s, c])))
return %2)",
                                           13 + taps, taps));
    const Schedule s = fuse(*g, {});
    return generate_gpu_loop(std::get<LoopKernel>(s.steps[0].op), {[](std::int64_t) { return true; }, false}).kernel;
  };
  const KernelSpec small = kernel(3), large = kernel(7);
  EXPECT_EQ(small.bounds, LaunchBounds{});
  EXPECT_EQ(small.body.find("#pragma unroll 1\n"), std::string::npos);
  EXPECT_EQ(large.bounds.min_blocks, 2U);  // of three, tiles for many images would spill
  EXPECT_NE(large.body.find("#pragma unroll 1\n"), std::string::npos);
  // Both for few images and for many, whose threads have several results each.
  const auto loops = [](const std::string& text) {
    std::size_t n = 0;
    for (auto at = text.find("first_thread()"); at != std::string::npos; at = text.find("first_thread()", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(loops(large.body), loops(small.body) + 1);
}

}  // namespace
}  // namespace sardonyx::codegen
