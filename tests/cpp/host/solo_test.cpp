// The choice between all threads and one where other processes take the cores.
#include "host/solo.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "host/parallel.h"

namespace sardonyx::host::test {
namespace {

// Seconds of wall time, of the calling thread, of the process.
constexpr SoloChoice::Times kAloneWithWork{0.010, 0.0099, 0.0190}, kLeftAlone{0.018, 0.0100, 0.0105},
    kShared{0.018, 0.0080, 0.0150}, kOwnCore{0.010, 0.0100, 0.0100}, kSharedCore{0.018, 0.0100, 0.0100};

int runs_until(SoloChoice& choice, bool solo, SoloChoice::Times run, int most) {
  for (int k = 0; k < most; ++k) {
    if (choice.solo() == solo) return k;
    EXPECT_TRUE(choice.wanted());
    choice.add(run);
  }
  return most;
}

TEST(SoloChoice, KeepsThreadsThatWork) {
  SoloChoice quiet, shared;
  EXPECT_EQ(runs_until(quiet, true, kAloneWithWork, 100), 100);
  EXPECT_EQ(runs_until(shared, true, kShared, 100), 100);
  SoloChoice one_core;  // workers did nothing, but the caller had its core: the work is too small to divide
  EXPECT_EQ(runs_until(one_core, true, kOwnCore, 100), 100);
}

TEST(SoloChoice, UsesOneThreadForAWhile) {
  SoloChoice choice;
  EXPECT_LT(runs_until(choice, true, kLeftAlone, 100), 10);
  const int first = runs_until(choice, false, kSharedCore, 10000);
  EXPECT_NEAR(first * kSharedCore.wall, 4, 0.1);
  EXPECT_LT(runs_until(choice, true, kLeftAlone, 100), 5);  // tried again, and soon given up
  EXPECT_NEAR(runs_until(choice, false, kSharedCore, 10000), 2 * first, 2);
  EXPECT_EQ(runs_until(choice, true, kAloneWithWork, 100), 100);
}

TEST(SoloChoice, EndsWhenTheCoreIsItsOwn) {
  SoloChoice choice;
  runs_until(choice, true, kLeftAlone, 100);
  EXPECT_NEAR(runs_until(choice, false, kOwnCore, 10000) * kOwnCore.wall, 1, 0.1);
}

TEST(SoloChoice, MeasuresFewShortRuns) {
  SoloChoice choice;
  int measured = 0;
  for (int k = 0; k < 160; ++k) {
    if (!choice.wanted()) continue;
    ++measured;
    choice.add({50e-6, 50e-6, 100e-6});
  }
  EXPECT_EQ(measured, 10);
}

TEST(SoloRun, LoopsStayInTheThread) {
  SoloChoice choice;
  runs_until(choice, true, kLeftAlone, 100);
  ASSERT_TRUE(choice.solo());
  std::atomic<int> others{0}, items{0};
  const auto here = std::this_thread::get_id();
  {
    const SoloRun run(choice);
    parallel_for(1000, 1, 4, [&](std::int64_t begin, std::int64_t end) {
      if (std::this_thread::get_id() != here) ++others;
      items += static_cast<int>(end - begin);
    });
    with_threads(2, [&] { EXPECT_EQ(threads_here(), 2); });  // divided as for all
  }
  EXPECT_EQ(others, 0);
  EXPECT_EQ(items, 1000);
  EXPECT_FALSE(stay_in_thread(false));  // as before the run
}

}  // namespace
}  // namespace sardonyx::host::test
