#include "support/loading_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace sardonyx {
namespace {

using Cache = LoadingCache<int>;

TEST(LoadingCache, MakesAValueOnce) {
  Cache cache(2);
  int made = 0;
  const auto make = [&] { return std::make_shared<int>(++made); };
  EXPECT_EQ(cache.find("a"), nullptr);
  EXPECT_EQ(*cache.get("a", make), 1);
  EXPECT_EQ(*cache.get("a", make), 1);
  EXPECT_EQ(*cache.find("a"), 1);
  EXPECT_EQ(made, 1);
}

TEST(LoadingCache, DropsTheLeastRecentlyUsed) {
  Cache cache(2);
  const auto make = [] { return std::make_shared<int>(0); };
  const auto a = cache.get("a", make);
  const auto b = cache.get("b", make);
  cache.get("a", make);
  cache.get("c", make);
  EXPECT_EQ(cache.find("a"), a);
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_NE(cache.find("c"), nullptr);
  EXPECT_EQ(cache.values().size(), 2u);
  EXPECT_EQ(b.use_count(), 1);  // its user keeps it
}

TEST(LoadingCache, AFailureIsNotKept) {
  Cache cache(2);
  EXPECT_THROW(cache.get("a", []() -> Cache::Pointer { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_TRUE(cache.values().empty());
  EXPECT_EQ(*cache.get("a", [] { return std::make_shared<int>(7); }), 7);
}

TEST(LoadingCache, ThreadsWaitForTheSameKeyOnly) {
  Cache cache(4);
  std::promise<void> started;
  std::promise<void> proceed;
  std::atomic<int> made = 0;
  std::thread slow([&] {
    cache.get("slow", [&] {
      started.set_value();
      proceed.get_future().wait();
      return std::make_shared<int>(++made);
    });
  });
  started.get_future().wait();
  std::vector<std::future<int>> same;
  for (int k = 0; k < 4; ++k)
    same.push_back(std::async(std::launch::async,
                              [&] { return *cache.get("slow", [&] { return std::make_shared<int>(++made + 100); }); }));
  auto other =
      std::async(std::launch::async, [&] { return *cache.get("other", [] { return std::make_shared<int>(5); }); });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(same[0].wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(cache.find("slow"), nullptr);
  proceed.set_value();
  slow.join();
  EXPECT_EQ(other.get(), 5);
  for (auto& f : same) EXPECT_EQ(f.get(), 1);
  EXPECT_EQ(made, 1);
}

TEST(LoadingCache, WaitingThreadsGetTheFailure) {
  Cache cache(4);
  std::promise<void> started;
  std::promise<void> proceed;
  auto first = std::async(std::launch::async, [&] {
    return cache.get("a", [&]() -> Cache::Pointer {
      started.set_value();
      proceed.get_future().wait();
      throw std::runtime_error("refused");
    });
  });
  started.get_future().wait();
  std::promise<void> asking;
  auto second = std::async(std::launch::async, [&] {
    asking.set_value();
    return cache.get("a", []() -> Cache::Pointer { throw std::runtime_error("refused"); });
  });
  asking.get_future().wait();
  proceed.set_value();
  EXPECT_THROW(first.get(), std::runtime_error);
  EXPECT_THROW(second.get(), std::runtime_error);
}

}  // namespace
}  // namespace sardonyx
