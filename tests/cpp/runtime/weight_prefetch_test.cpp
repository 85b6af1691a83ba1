// Prefetching for later steps: in order, once, and within the window.
#include "runtime/weight_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

namespace sardonyx {
namespace {

constexpr std::int64_t kAll = INT64_MAX;

TEST(WeightPrefetch, GoesOnWhereItStopped) {
  const std::vector<char> memory(1000);
  const std::span<const char> all(memory);
  WeightPrefetch p;
  for (int k = 0; k < 4; ++k) EXPECT_EQ(p.add(), k);
  EXPECT_TRUE(p.take(0, kAll).empty()) << "nothing is known before the first run";
  p.set(0, all.subspan(0, 100));
  p.set(1, all.subspan(100, 200));
  p.set(2, all.subspan(300, 50));  // beside those of step 1
  p.set(3, all.subspan(400, 500));
  for (int run = 0; run < 2; ++run) {
    const auto first = p.take(0, 60);
    EXPECT_EQ(first.data(), memory.data() + 100);
    EXPECT_EQ(first.size(), 60U);
    const auto rest = p.take(1, kAll);
    EXPECT_EQ(rest.data(), memory.data() + 300) << "the rest of its own weights is too late";
    EXPECT_EQ(rest.size(), 50U);
    const auto last = p.take(2, kAll);
    EXPECT_EQ(last.data(), memory.data() + 400);
    EXPECT_EQ(last.size(), 500U);
    EXPECT_TRUE(p.take(3, kAll).empty());
  }
  const auto both = p.take(0, 220);
  EXPECT_EQ(both.data(), memory.data() + 100);
  EXPECT_EQ(both.size(), 220U) << "neighbours are one";
  EXPECT_EQ(p.take(1, 5).data(), memory.data() + 320);
  EXPECT_TRUE(p.take(2, 0).empty());
}

TEST(WeightPrefetch, FetchesWhatTheCachesHold) {
  const std::vector<char> memory(3 * WeightPrefetch::kWindow);
  const std::span<const char> all(memory);
  WeightPrefetch p;
  for (int k = 0; k < 3; ++k) p.set(p.add(), all.subspan(k * WeightPrefetch::kWindow, WeightPrefetch::kWindow));
  EXPECT_EQ(p.take(0, kAll).size(), std::size_t{WeightPrefetch::kWindow});
  const auto next = p.take(1, kAll);
  EXPECT_EQ(next.data(), memory.data() + 2 * WeightPrefetch::kWindow);
  EXPECT_EQ(next.size(), std::size_t{WeightPrefetch::kWindow});
  p.take(0, 100);
  EXPECT_EQ(p.take(1, 100).data(), memory.data() + 2 * WeightPrefetch::kWindow);
}

}  // namespace
}  // namespace sardonyx
