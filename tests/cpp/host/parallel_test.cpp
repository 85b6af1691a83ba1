// parallel_for and the bounded cache.
#include "host/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host/lru_cache.h"

namespace sardonyx::host {
namespace {

TEST(ParallelFor, CoversEachItemOnce) {
  for (std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (std::int64_t grain : {0, 1, 3, 2000}) {
      for (int threads : {0, 1, 2, 5}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        std::atomic<int> shorter{0};  // than the grain: the last of each thread's share
        parallel_for(count, grain, threads, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_LT(begin, end);
          if (end - begin < grain) ++shorter;
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (auto& s : seen) ASSERT_EQ(s, 1);
        EXPECT_LE(shorter, std::max(threads, 1));
      }
    }
  }
}

TEST(Shares, OwnOnesFirstThenThoseOfOthers) {
  for (const int threads : {2, 3, 12}) {
    for (const std::int64_t count : {2, 25, 1000}) {
      Shares ranges(count, threads), items(count, threads);
      std::vector<std::int64_t> by_ranges, by_items;
      std::int64_t begin, end, item;
      while (ranges.take(1, 2, begin, end))
        for (; begin < end; ++begin) by_ranges.push_back(begin);
      while (items.take(1, item)) by_items.push_back(item);
      EXPECT_EQ(by_items, by_ranges);
      EXPECT_EQ(by_items.front(), count / threads + count % threads / threads);
      std::ranges::sort(by_items);
      ASSERT_EQ(by_items.size(), static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(by_items[static_cast<std::size_t>(i)], i);
    }
  }
}

TEST(ParallelFor, UsesSeveralThreadsAndNestsInline) {
  std::atomic<int> inside{0}, nested{0};
  parallel_for(2, 1, 2, [&](std::int64_t, std::int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();  // ends only if two threads are here at once
    const auto me = std::this_thread::get_id();
    parallel_for(100, 1, 2, [&](std::int64_t begin, std::int64_t end) {
      if (std::this_thread::get_id() == me) nested += static_cast<int>(end - begin);
    });
  });
  EXPECT_EQ(nested, 200);
}

TEST(ParallelFor, ThrowsWhatTheWorkThrows) {
  EXPECT_THROW(parallel_for(100, 1, 2, [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_THROW(parallel_for(100, 1, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
}

TEST(ParallelFor, ManyCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum{0};
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        parallel_for(64, 1, 2, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
      }
    });
  }
  for (auto& c : callers) c.join();
  EXPECT_EQ(sum, 8 * 50 * 64);
}

TEST(LruCache, KeepsWhatWasUsedLast) {
  LruCache<int> cache(2);
  int made = 0;
  auto get = [&](const std::string& key) { return *cache.get(key, [&] { return std::make_shared<int>(++made); }); };
  EXPECT_EQ(get("a"), 1);
  EXPECT_EQ(get("b"), 2);
  EXPECT_EQ(get("a"), 1);
  EXPECT_EQ(get("c"), 3);  // drops b
  EXPECT_EQ(get("a"), 1);
  EXPECT_EQ(get("b"), 4);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.get("none", [] { return std::shared_ptr<int>(); }), nullptr);
  EXPECT_EQ(cache.size(), 2u);
}

}  // namespace
}  // namespace sardonyx::host
