// Planted faults: each fails its launch, the message names kernel, reason and source line, and the process goes on.
#include "harness.h"

namespace {

/// Line of faults.cpp that carries "FAULT: <mark>".
int markedLine(const std::string& mark) {
  std::ifstream in(std::string(SIM_KERNEL_SOURCES) + "/faults.cpp");
  std::string line;
  for (int n = 1; std::getline(in, line); ++n)
    if (line.find("FAULT: " + mark) != std::string::npos) return n;
  return -1;
}

class Faults : public SimTest {
 protected:
  std::string options() const override {
    return ", \"check_waits\": true, \"check_races\": true, \"max_instructions_per_wave\": 100000";
  }
  /// The launch must have failed with a message that has all of `parts` and, at -O2 and -O3, the marked line.
  void expectFailure(hipError_t e, const std::string& mark, std::initializer_list<const char*> parts) {
    EXPECT_EQ(e, hipErrorLaunchFailure);
    std::string message = sardonyxSimLastFailure();
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    std::string line = "faults.cpp:" + std::to_string(markedLine(mark));
    EXPECT_NE(message.find(line), std::string::npos) << line << " is not in: " << message;
    // A sound kernel runs afterwards.
    Buffer<std::uint32_t> out(64);
    EXPECT_EQ(launch("storeOne", {1}, {64}, out.get()), hipSuccess) << sardonyxSimLastFailure();
    EXPECT_EQ(out.read()[63], 1u);
  }
};
SIM_TESTS(Faults);

TEST_P(Faults, StoreOutOfBounds) {
  load("faults");
  Buffer<float> out(64);
  expectFailure(launch("outOfBounds", {1}, {64}, out.get(), 64u), "out of bounds",
                {"kernel outOfBounds", "write of 4 bytes out of bounds", "past the end of the allocation of 256 bytes",
                 "lane", "store"});
}

TEST_P(Faults, NullPointer) {
  load("faults");
  std::uint32_t* null = nullptr;
  expectFailure(launch("nullStore", {1}, {64}, null), "null", {"kernel nullStore", "null pointer", "lane 0"});
}

TEST_P(Faults, UseAfterFree) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  std::uint32_t* stale = out.get();
  out.release();
  expectFailure(launch("storeOne", {1}, {64}, stale), "freed", {"kernel storeOne", "was freed"});
}

TEST_P(Faults, MissingBarrier) {
  load("faults");
  std::vector<std::uint32_t> in(256);
  Buffer<std::uint32_t> din(in), dout(256);
  expectFailure(launch("missingBarrier", {1}, {256}, din.get(), dout.get()), "race",
                {"kernel missingBarrier", "LDS data race", "lane"});
}

TEST_P(Faults, EndlessLoop) {
  load("faults");
  Buffer<std::uint32_t> flag(std::vector<std::uint32_t>(2));
  expectFailure(launch("endless", {1}, {64}, flag.get()), "endless",
                {"kernel endless", "did not end within 100000 instructions"});
}

TEST_P(Faults, MissingWait) {
  load("faults");
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(64)), out(64);
  hipError_t e = launch("missingWait", {1}, {64}, in.get(), out.get());
  EXPECT_EQ(e, hipErrorLaunchFailure);
  std::string message = sardonyxSimLastFailure();
  EXPECT_NE(message.find("before a wait covers \"global_load_"), std::string::npos) << message;
}

TEST_P(Faults, Trap) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("trapped", {1}, {64}, out.get()), "trap", {"kernel trapped", "s_trap 2"});
}

TEST_P(Faults, WorkgroupTooLarge) {
  load("faults");
  Buffer<std::uint32_t> out(2048);
  EXPECT_EQ(launch("storeOne", {1}, {64, 32}, out.get()), hipErrorInvalidConfiguration);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("2048 work-items"), std::string::npos)
      << sardonyxSimLastFailure();
}

}  // namespace
