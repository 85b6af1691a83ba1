// Planted faults: each fails its launch, the message names kernel, reason, source line, instruction, lane and address,
// and the process goes on.
#include "harness.h"

namespace {

/// Line of faults.cpp that carries "FAULT: <mark>".
int markedLine(const std::string& mark, int skip = 0) {
  std::ifstream in(std::string(SIM_KERNEL_SOURCES) + "/faults.cpp");
  std::string line;
  for (int n = 1; std::getline(in, line); ++n)
    if (line.find("FAULT: " + mark) != std::string::npos && skip-- == 0) return n;
  return -1;
}

class Faults : public SimTest {
 protected:
  std::string options() const override {
    return std::string(", \"check_waits\": true, \"check_races\": true, \"check_global_races\": true, ") +
           "\"max_instructions_per_wave\": 100000, \"check_uninitialized\": " + (uninitialized_ ? "true" : "false");
  }
  /// The chip calls a scalar load s_load_dword.
  bool oldNames() const { return gfx9() || std::string(GetParam().chip) == "gfx1030"; }
  bool gfx9() const { return std::string(GetParam().chip).substr(0, 4) == "gfx9"; }
  void expectMessage(hipError_t e, std::initializer_list<const char*> parts) {
    EXPECT_EQ(e, hipErrorLaunchFailure);
    std::string message = sardonyxSimLastFailure();
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    // A sound kernel runs afterwards.
    Buffer<std::uint32_t> out(64);
    EXPECT_EQ(launch("storeOne", {1}, {64}, out.get()), hipSuccess) << sardonyxSimLastFailure();
    EXPECT_EQ(out.read()[63], 1u);
  }
  /// The launch must have failed with a message that has all of `parts` and the marked line.
  void expectFailure(hipError_t e, const std::string& mark, std::initializer_list<const char*> parts, int skip = 0) {
    std::string message = sardonyxSimLastFailure();
    expectMessage(e, parts);
    std::string line = "faults.cpp:" + std::to_string(markedLine(mark, skip));
    EXPECT_NE(message.find(line), std::string::npos) << line << " is not in: " << message;
  }
  void checkUninitialized() {
    uninitialized_ = true;
    std::string json = std::string("{\"chips\": [\"") + GetParam().chip + "\"]" + options() + "}";
    ASSERT_EQ(sardonyxSimConfigure(json.c_str()), 0);
  }
  bool uninitialized_ = false;
};
SIM_TESTS(Faults);

std::string hex(const void* p, std::size_t offset) {
  char text[32];
  std::snprintf(text, sizeof text, "address 0x%zx", reinterpret_cast<std::size_t>(p) + offset);
  return text;
}

TEST_P(Faults, StoreOutOfBounds) {
  load("faults");
  Buffer<float> out(64);
  std::string address = hex(out.get(), (37 + 64) * 4);
  int wave = gfx9() ? 0 : 1;
  std::string place = "workgroup (0, 0, 0) wave " + std::to_string(wave) + " lane " + std::to_string(37 - 32 * wave);
  expectFailure(launch("outOfBounds", {1}, {64}, out.get(), 64u), "out of bounds",
                {"kernel outOfBounds", "write of 4 bytes out of bounds", "past the end of the allocation of 256 bytes",
                 "_store_", address.c_str(), place.c_str()});
}

TEST_P(Faults, LoadOutOfBounds) {
  load("faults");
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(64)), out(64);
  std::string address = hex(in.get(), 70 * 4);
  expectFailure(launch("readOutOfBounds", {1}, {64}, in.get(), out.get(), 70u), "read beyond",
                {"kernel readOutOfBounds", "read of 4 bytes out of bounds",
                 "24 bytes past the end of the allocation of 256 bytes", "_load_", address.c_str(),
                 "workgroup (0, 0, 0) wave 0 lane 21"});
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
  expectFailure(launch("storeOne", {1}, {64}, stale), "freed",
                {"kernel storeOne", "was freed", hex(stale, 0).c_str(), "lane 0"});
}

TEST_P(Faults, MissingBarrier) {
  load("faults");
  std::vector<std::uint32_t> in(256);
  Buffer<std::uint32_t> din(in), dout(256);
  expectFailure(launch("missingBarrier", {1}, {256}, din.get(), dout.get()), "race",
                {"kernel missingBarrier", "LDS data race", "with no barrier between them", "ds_", "lane"});
}

TEST_P(Faults, BarrierWithoutWait) {
  load("faults");
  Buffer<std::uint32_t> out(256);
  expectFailure(launch("barrierWithoutWait", {1}, {256}, out.get()), "no wait",
                {"kernel barrierWithoutWait", "LDS data race", "that no wait covered before the barrier"});
}

TEST_P(Faults, BarrierThatNotAllReach) {
  load("faults");
  Buffer<std::uint32_t> out(256);
  expectMessage(launch("barrierInBranch", {1}, {256}, out.get()),
                {"kernel barrierInBranch", "did not end within 100000 instructions", "faults.cpp:"});
}

TEST_P(Faults, LdsOutOfBounds) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("ldsOutOfBounds", {1}, {64}, out.get(), 16384u), "LDS bounds",
                {"kernel ldsOutOfBounds", "LDS read of 4 bytes out of bounds: the workgroup has", "lane 0"});
}

TEST_P(Faults, RaceBetweenWorkgroups) {
  load("faults");
  Buffer<std::uint32_t> cell(std::vector<std::uint32_t>(1));
  std::string address = hex(cell.get(), 0);
  expectFailure(launch("globalRace", {2}, {64}, cell.get()), "global race",
                {"kernel globalRace", "global data race: a write conflicts with a write of wave 0 of workgroup",
                 "with no atomic between them", address.c_str(), "lane 0"});
}

TEST_P(Faults, RaceWithinAWorkgroup) {
  load("faults");
  Buffer<std::uint32_t> cells(std::vector<std::uint32_t>(256)), out(256);
  expectFailure(launch("globalRaceInGroup", {1}, {256}, cells.get(), out.get()), "global race in group",
                {"kernel globalRaceInGroup", "global data race: a ", "with no barrier or atomic between them", "lane"});
}

TEST_P(Faults, OrderThroughAtomicsIsNoRace) {
  load("faults");
  ASSERT_EQ(sardonyxSimConfigure(R"({"max_instructions_per_wave": 50000000})"), 0);  // waves wait for others' turns
  Buffer<std::uint32_t> cells(256), counter(std::vector<std::uint32_t>(1)), out(1);
  HIP_OK(launch("lastGroupSums", {4}, {64}, cells.get(), counter.get(), out.get()));
  EXPECT_EQ(out.read()[0], 255u * 128);
  Buffer<std::uint32_t> flags(std::vector<std::uint32_t>(16)), data(16);
  HIP_OK(launch("flagChain", {16}, {64}, flags.get(), data.get()));
  EXPECT_EQ(data.read()[15], 120u);
}

TEST_P(Faults, EndlessLoop) {
  load("faults");
  Buffer<std::uint32_t> flag(std::vector<std::uint32_t>(2));
  expectFailure(launch("endless", {1}, {64}, flag.get()), "endless",
                {"kernel endless", "did not end within 100000 instructions"});
}

// The compiler knows nothing of loads in inline assembly, so it puts no wait after them.
TEST_P(Faults, MissingWaitForMemory) {
  load("faults");
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(64)), out(64);
  // At -O0 the first use is the spill right after the assembly.
  hipError_t e = launch("missingWait", {1}, {64}, in.get(), out.get());
  std::initializer_list<const char*> parts = {"kernel missingWait", "is read before a wait covers \"global_load_",
                                              "faults.cpp:"};
  if (GetParam().level)
    expectFailure(e, "wait", parts);
  else
    expectMessage(e, parts);
}
TEST_P(Faults, MissingWaitForLds) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectMessage(launch("missingLdsWait", {1}, {64}, out.get()),
                {"kernel missingLdsWait", "is read before a wait covers \"ds_", "faults.cpp:"});
}
TEST_P(Faults, MissingWaitForScalarMemory) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("missingScalarWait", {1}, {64}, out.get()), "scalar wait",
                {"kernel missingScalarWait", "is read before a wait covers \"s_load_"}, oldNames() ? 0 : 1);
}
TEST_P(Faults, WaitOnTheWrongCounter) {
  load("faults");
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(80)), out(128);
  expectMessage(launch("wrongWait", {1}, {64}, in.get(), out.get()),
                {"kernel wrongWait", "is read before a wait covers \"global_load_", "offset:4", "faults.cpp:"});
}

TEST_P(Faults, UnknownOpcode) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("unknownOpcode", {1}, {64}, out.get()), "opcode",
                {"kernel unknownOpcode", "not implemented, or not an instruction of this chip", ".long 0xbfff1234"});
}
TEST_P(Faults, JumpOutOfTheCode) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectMessage(launch("wildJump", {1}, {64}, out.get()),
                {"kernel wildJump", "execution left the code object", "address 0x1000"});
}
TEST_P(Faults, StoreIntoCode) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("writeCode", {1}, {64}, out.get()), "code",
                {"kernel writeCode", "to read-only memory", "lane 0"});
}

TEST_P(Faults, NeverWritten) {
  load("faults");
  checkUninitialized();
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("uninitialisedLds", {1}, {64}, out.get()), "LDS unwritten",
                {"kernel uninitialisedLds", "LDS is read but was never written"});
  std::vector<std::uint32_t> half(32);
  Buffer<std::uint32_t> in(64);
  HIP_OK(hipMemcpy(in.get(), half.data(), 128, hipMemcpyHostToDevice));
  std::string address = hex(in.get(), 128);
  expectFailure(launch("uninitialisedMemory", {1}, {64}, in.get(), out.get()), "memory unwritten",
                {"kernel uninitialisedMemory", "memory is read but was never written", address.c_str(),
                 gfx9() ? "wave 0 lane 32" : "wave 1 lane 0"});
  HIP_OK(hipMemset(in.get(), 0, 256));
  HIP_OK(launch("uninitialisedMemory", {1}, {64}, in.get(), out.get()));
  expectFailure(launch("uninitialisedRegister", {1}, {64}, out.get()), "register unwritten",
                {"kernel uninitialisedRegister", "was never written in this lane"});
}

TEST_P(Faults, Trap) {
  load("faults");
  Buffer<std::uint32_t> out(64);
  expectFailure(launch("trapped", {1}, {64}, out.get()), "trap", {"kernel trapped", "s_trap 2"});
}

TEST_P(Faults, LaunchesThatDoNotFit) {
  load("faults");
  Buffer<std::uint32_t> out(2048);
  EXPECT_EQ(launch("storeOne", {1}, {64, 32}, out.get()), hipErrorInvalidConfiguration);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("2048 work-items"), std::string::npos)
      << sardonyxSimLastFailure();
  EXPECT_EQ(launch("storeOne", {1}, {0}, out.get()), hipErrorInvalidConfiguration);
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "storeOne"));
  std::uint32_t* p = out.get();
  void* params[] = {&p};
  EXPECT_EQ(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 200 << 10, nullptr, params, nullptr),
            hipErrorInvalidConfiguration);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("bytes of LDS"), std::string::npos) << sardonyxSimLastFailure();
}

}  // namespace
