// Memory plans for random lifetimes: live buffers never overlap, and the arena is little larger than the peak of live
// memory.
#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sardonyx {
namespace {

// Lifetimes like those of a network: most are a few steps, some long; sizes over three orders of magnitude.
std::vector<Lifetime> lifetimes(std::uint32_t seed, int count) {
  std::minstd_rand random(seed);
  std::vector<Lifetime> out;
  for (int k = 0; k < count; ++k) {
    const int steps = static_cast<int>(random() % 4 == 0 ? random() % 20 : random() % 3);
    const std::size_t bytes = (std::size_t{1} << (random() % 10)) * (64 + random() % 64);
    out.push_back({k, bytes, k, k + 1 + steps});
  }
  return out;
}

TEST(MemoryPlan, NothingOverlapsAndLittleIsLost) {
  double worst = 1;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    const std::vector<Lifetime> lives = lifetimes(seed, 40);
    std::vector<std::size_t> offsets;
    const std::size_t total = plan_memory(lives, offsets);
    ASSERT_EQ(offsets.size(), lives.size());
    for (std::size_t a = 0; a < lives.size(); ++a) {
      EXPECT_EQ(offsets[a] % 64, 0u);
      EXPECT_LE(offsets[a] + lives[a].bytes, total);
      for (std::size_t b = 0; b < a; ++b) {
        if (lives[a].first > lives[b].last || lives[b].first > lives[a].last) continue;
        EXPECT_TRUE(offsets[a] + lives[a].bytes <= offsets[b] || offsets[b] + lives[b].bytes <= offsets[a]);
      }
    }
    worst = std::max(worst, static_cast<double>(total) / static_cast<double>(most_alive(lives)));
  }
  EXPECT_LE(worst, 1.10);
}

// A vision transformer's: of each layer the normed tokens, queries, keys and values, what attention gives, the tokens
// with what is added to them, and those of the wide products.
TEST(MemoryPlan, EqualLayersLoseNothing) {
  constexpr std::size_t kTokens = 197 * 768 * 2;
  std::vector<Lifetime> lives = {{0, 2 * kTokens, -1, 0}, {1, kTokens - 1536, 0, 1}, {2, kTokens - 1536, 1, 2}};
  const auto add = [&](std::size_t bytes, int first, int last) {
    lives.push_back({static_cast<int>(lives.size()), bytes, first, last});
  };
  for (int layer = 0; layer < 12; ++layer) {
    const int at = 1 + 8 * layer;
    add(kTokens, layer > 0 ? at : 2, at + 6);
    add(kTokens, at + 1, at + 2);
    add(3 * kTokens, at + 2, at + 4);
    add(kTokens, at + 3, at + 5);
    add(4, at + 4, at + 4);
    add(kTokens, at + 5, at + 6);
    add(kTokens, at + 6, at + 8);
    add(kTokens, at + 6, at + 7);
    add(4 * kTokens, at + 7, at + 8);
  }
  std::vector<std::size_t> offsets;
  EXPECT_LE(static_cast<double>(plan_memory(lives, offsets, 256)), 1.10 * static_cast<double>(most_alive(lives)));
}

TEST(MemoryPlan, SmallBuffersLoseToAlignmentOnly) {
  std::vector<std::size_t> offsets;
  EXPECT_EQ(plan_memory({{0, 4, 0, 1}, {1, 0, 0, 1}}, offsets, 256), 256u);
  EXPECT_EQ(plan_memory({{0, 4, 0, 1}, {1, 4, 1, 2}, {2, 4, 2, 3}}, offsets, 256), 512u);
}

TEST(MemoryPlan, NoBuffersTakeNothing) {
  std::vector<std::size_t> offsets;
  EXPECT_EQ(plan_memory({}, offsets), 0u);
  EXPECT_TRUE(offsets.empty());
}

}  // namespace
}  // namespace sardonyx
