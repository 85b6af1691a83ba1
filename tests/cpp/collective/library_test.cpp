// The use of NCCL and RCCL, with a stub in their place; the ranks are threads.
#include <dlfcn.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "models.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Library : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "sardonyx-collective-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  GroupOptions options(int rank, int size = 2) const {
    GroupOptions o;
    o.path = folder_ / "group";
    o.rank = rank;
    o.size = size;
    o.device = "sim:gfx1100";
    o.transport = "library";
    o.library = STUB_NCCL;
    o.timeout_seconds = 60;
    return o;
  }

  // Runs `job` for each rank; what it throws, as text.
  template <typename F>
  static std::vector<std::string> ranks(int size, const F& job) {
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] {
        try {
          job(r);
        } catch (const std::exception& e) {
          errors[static_cast<std::size_t>(r)] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    return errors;
  }

  static Tensor vector_of(const std::vector<float>& v) { return floats({static_cast<std::int64_t>(v.size())}, v); }

  /// y = sum of 2 x over the ranks; z = all of them.
  static CompiledModel model(const GroupOptions& group, std::shared_ptr<Communicator> communicator) {
    GraphBuilder g;
    const std::string x = g.input("x", DType::kFloat32, {"n"});
    const std::string twice = g.op("Add", {x, x});
    g.output(g.op("AllReduce", {twice}, {}, "com.microsoft"), "y");
    g.output(g.op("AllGather", {twice}, {{"group_size", std::int64_t{group.size}}}, "com.microsoft"), "z");
    Options o;
    o.device = group.device;
    o.communicator = std::move(communicator);
    return g.compile(o);
  }

  std::filesystem::path folder_;
};

TEST_F(Library, SumsAndGathers) {
  const auto errors = ranks(3, [&](int rank) {
    const GroupOptions o = options(rank, 3);
    const CompiledModel m = model(o, Communicator::join(o));
    for (int k = 0; k < 4; ++k) {  // the third and fourth are replayed
      const auto base = static_cast<float>(k + 1);
      const auto out = m.run({{"x", vector_of({base * static_cast<float>(rank), 1, 2})}});
      const Tensor &y = out.at("y"), &z = out.at("z");
      EXPECT_EQ(values(y), (std::vector<float>{6 * base, 6, 12}));
      EXPECT_EQ(values(z), (std::vector<float>{0, 2, 4, 2 * base, 2, 4, 4 * base, 2, 4}));
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

// Rank 0 waits in the library for rank 1, which fails: the library's work is aborted.
TEST_F(Library, AFailureEndsTheWait) {
  const auto start = Clock::now();
  const auto errors = ranks(2, [&](int rank) {
    const GroupOptions o = options(rank);
    const auto group = Communicator::join(o);
    const CompiledModel m = model(o, group);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      group->fail("rank 1: the cat pulled the plug");
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return;
    }
    m.run({{"x", vector_of({1})}});
  });
  EXPECT_THAT(errors[0], HasSubstr("the cat pulled the plug"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST_F(Library, ARankThatLeavesEndsTheWait) {
  const auto errors = ranks(2, [&](int rank) {
    const GroupOptions o = options(rank);
    const CompiledModel m = model(o, Communicator::join(o));
    if (rank == 0) m.run({{"x", vector_of({1})}});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 has left the group"));
}

TEST_F(Library, ItsOwnErrorsAreTold) {
  void* stub = dlopen(STUB_NCCL, RTLD_NOW);
  ASSERT_NE(stub, nullptr);
  const auto set_error = reinterpret_cast<void (*)(int)>(dlsym(stub, "stub_set_async_error"));
  const auto aborts = reinterpret_cast<int (*)()>(dlsym(stub, "stub_aborts"));
  const int before = aborts();
  const auto errors = ranks(1, [&](int rank) {
    const auto group = Communicator::join(options(rank, 1));
    group->check();
    set_error(3);
    for (int k = 0; k < 100; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group->check();
    }
  });
  set_error(0);
  EXPECT_THAT(errors[0], HasSubstr("RCCL: a cable is loose"));
  EXPECT_GT(aborts(), before);
}

TEST_F(Library, WhatIsMissingIsNamed) {
  // One rank has no library: the other must not wait for it.
  const auto start = Clock::now();
  auto errors = ranks(2, [&](int rank) {
    GroupOptions o = options(rank);
    if (rank == 1) o.library = folder_ / "none.so";
    Communicator::join(o);
  });
  for (const std::string& e : errors) EXPECT_THAT(e, HasSubstr("install ROCm's rccl"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  std::filesystem::remove(folder_ / "group");
  errors = ranks(1, [&](int rank) {
    GroupOptions o = options(rank, 1);
    o.library = "libm.so.6";
    Communicator::join(o);
  });
  EXPECT_THAT(errors[0], HasSubstr("libm.so.6 has no ncclGetUniqueId: it is too old"));
  errors = ranks(1, [&](int rank) {
    GroupOptions o = options(rank, 1);
    o.device = "host";
    Communicator::join(o);
  });
  EXPECT_THAT(errors[0], HasSubstr("for 'host' use the transport 'host'"));
}

}  // namespace
}  // namespace sardonyx
