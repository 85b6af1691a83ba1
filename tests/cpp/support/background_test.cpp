// Texts that are made in the background or when they are needed.
#include "support/background.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

namespace sardonyx {
namespace {

using namespace std::chrono_literals;
using Makers = std::vector<BackgroundTexts::Make>;

Makers numbers(std::size_t n, std::atomic<int>& made) {
  Makers makers;
  for (std::size_t k = 0; k < n; ++k)
    makers.push_back([&made, k] {
      ++made;
      return std::to_string(k);
    });
  return makers;
}

void wait_for(const std::function<bool()>& condition) {
  for (int k = 0; k < 2000 && !condition(); ++k) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(condition());
}

/// Lets tasks begin only when it is opened.
struct Gate {
  std::atomic<bool> open = false;
  std::atomic<int> begun = 0;
  void pass() {
    ++begun;
    while (!open) std::this_thread::sleep_for(1ms);
  }
};

TEST(Background, TextsAreMadeWhenAskedForAndOnlyOnce) {
  std::atomic<int> made = 0;
  BackgroundTexts texts(numbers(10, made));
  EXPECT_EQ(texts.get(7), "7");
  EXPECT_EQ(texts.get(7), "7");
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(texts.ready(7));
  EXPECT_FALSE(texts.ready(6));
  EXPECT_EQ(texts.counts().on_demand, 1u);
}

TEST(Background, TheBackgroundMakesTheRestWithLowPriority) {
  std::atomic<int> made = 0, niceness = -100;
  std::atomic<bool> called = false;
  Makers makers = numbers(20, made);
  const int own = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
  makers.push_back([&] {
    niceness = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
    return std::string("low");
  });
  BackgroundTexts texts(std::move(makers), [&] { called = true; });
  EXPECT_EQ(texts.get(3), "3");
  texts.start(4);
  wait_for([&] { return called.load(); });
  EXPECT_TRUE(texts.done());
  EXPECT_EQ(made, 20);
  EXPECT_EQ(texts.counts().ready, 21u);
  EXPECT_EQ(texts.counts().on_demand, 1u);
  EXPECT_EQ(niceness, std::min(19, own + 10));
}

TEST(Background, APauseHoldsItBack) {
  std::atomic<int> made = 0;
  BackgroundTexts texts(numbers(4, made));
  {
    const BackgroundTexts::Pause pause;
    texts.start(1);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(made, 0);
    EXPECT_EQ(texts.get(2), "2");  // taken out of the queue
    EXPECT_EQ(made, 1);
  }
  wait_for([&] { return texts.done(); });
  EXPECT_EQ(made, 4);
}

TEST(Background, ATextThatTheBackgroundIsMakingForLongIsMadeAgain) {
  Gate gate;
  std::atomic<int> calls = 0;
  BackgroundTexts texts({[&] {
    if (++calls == 1) gate.pass();  // the background's, on a busy machine
    return std::string("done");
  }});
  texts.start(1);
  wait_for([&] { return gate.begun == 1; });
  EXPECT_EQ(texts.get(0), "done");
  EXPECT_EQ(calls, 2);
  gate.open = true;
}

TEST(Background, ErrorsAreThrownToEachThatAsks) {
  std::atomic<int> calls = 0;
  BackgroundTexts texts({[&]() -> std::string {
                           ++calls;
                           throw std::runtime_error("no such instruction");
                         },
                         [] { return std::string("fine"); }});
  texts.start(1);
  wait_for([&] { return texts.done(); });
  for (int k = 0; k < 2; ++k) EXPECT_THROW(texts.get(0), std::runtime_error);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(texts.get(1), "fine");
  EXPECT_FALSE(texts.ready(0));
}

TEST(Background, ClosingCancelsWhatHasNotBegunAndWaitsForTheRest) {
  auto gate = std::make_shared<Gate>();
  auto ended = std::make_shared<std::atomic<int>>(0);
  Makers makers;
  for (int k = 0; k < 50; ++k)
    makers.push_back([gate, ended] {
      gate->pass();
      ++*ended;
      return std::string();
    });
  auto texts = std::make_unique<BackgroundTexts>(std::move(makers));
  texts->start(1);
  wait_for([&] { return gate->begun == 1; });
  std::jthread opener([gate] {
    std::this_thread::sleep_for(30ms);
    gate->open = true;
  });
  texts.reset();
  EXPECT_TRUE(gate->open);  // it waited
  EXPECT_EQ(*ended, gate->begun);
  EXPECT_LT(*ended, 50);
}

TEST(Background, SeveralThreadsAskForTheSameTexts) {
  std::atomic<int> made = 0;
  BackgroundTexts texts(numbers(200, made));
  texts.start(2);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t k = 0; k < 200; ++k) {
          const std::size_t at = (k * 7 + static_cast<std::size_t>(t) * 31) % 200;
          EXPECT_EQ(texts.get(at), std::to_string(at));
        }
      });
  }
  EXPECT_EQ(made, 200);
  EXPECT_TRUE(texts.done());
}

TEST(Background, AChildOfForkMakesWhatItNeedsItself) {
  std::atomic<int> made = 0;
  Makers makers = numbers(30, made);
  for (auto& make : makers)
    make = [make] {
      std::this_thread::sleep_for(2ms);
      return make();
    };
  auto texts = std::make_unique<BackgroundTexts>(std::move(makers));
  texts->start(2);
  wait_for([&] { return made >= 1; });
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // gtest's checks are the parent's
    bool right = true;
    for (std::size_t k = 0; k < 30; ++k) right = right && texts->get(k) == std::to_string(k);
    texts.reset();
    std::exit(right ? 0 : 1);  // also calls what was registered for the end
  }
  int status = -1;
  for (int k = 0; k < 2000 && ::waitpid(child, &status, WNOHANG) == 0; ++k) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  wait_for([&] { return texts->done(); });  // and the parent's background goes on
}

TEST(Background, AProcessMayEndWhileItWorks) {
  EXPECT_EXIT(
      {
        auto* texts = new BackgroundTexts(Makers(100, [] {
          std::this_thread::sleep_for(5ms);
          return std::string();
        }));
        texts->start(2);
        std::this_thread::sleep_for(12ms);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sardonyx
