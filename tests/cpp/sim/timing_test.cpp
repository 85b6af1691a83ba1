// The clock: kernels whose time can be worked out from what a chip's units do in a cycle, what is said of them, and
// what is refused. What the clock is worth beside published measurements is docs/amd-clock.md's matter.
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness.h"

namespace {

using nlohmann::json;

/// What the tests know of a chip, from AMD's ISA documents and white papers: not read from the clock's own table.
struct Known {
  const char* chip;
  int simds, pools;
  double fma;         ///< cycles of a SIMD for a wave's 32-bit multiply-add; CDNA 3 and 4 take two waves' at a time
  double fmaLatency;  ///< until the next that needs the result
  double matrix;      ///< cycles of a SIMD for a 16x16x16 product of 16-bit floats
  double gbPerSecond;
};
constexpr Known kKnown[] = {{"gfx90a", 4, 110, 4, 4, 32, 1638},
                            {"gfx942", 4, 304, 2, 4, 16, 5300},
                            {"gfx950", 4, 256, 2, 4, 16, 8000},
                            {"gfx1100", 4, 48, 1, 5, 32, 960},
                            {"gfx1201", 4, 32, 1, 5, 16, 640}};

class Clock : public SimTest {
 protected:
  std::string options() const override {
    return R"(, "check_races": false, "check_global_races": false, "check_uninitialized": false, "timing": "all")";
  }
  void SetUp() override {
    SimTest::SetUp();
    sardonyxSimResetSummary();
    load("timing");
  }
  void TearDown() override {
    SimTest::TearDown();
    EXPECT_EQ(sardonyxSimConfigure(R"({"timing": "off", "timeline_segments": 0})"), 0);
  }
  const Known& known() const {
    for (const Known& k : kKnown)
      if (std::string(k.chip) == GetParam().chip) return k;
    throw std::runtime_error("no such chip");
  }
  static json last() { return json::parse(sardonyxSimTiming())["launches"].back(); }
  unsigned lanes() const { return static_cast<unsigned>(waveSize()); }
};
INSTANTIATE_TEST_SUITE_P(Chips, Clock,
                         testing::Values(Target{"gfx90a", 2}, Target{"gfx942", 2}, Target{"gfx950", 2},
                                         Target{"gfx1100", 2}, Target{"gfx1201", 2}),
                         targetName);

// Start of a wave, loads of arguments, loop and store: what the formulas below leave out.
constexpr double kAround = 3000;

TEST_P(Clock, DependentArithmeticTakesItsLatency) {
  Buffer<float> out(64);
  HIP_OK(launch("dependent", {1}, {lanes()}, out.get(), 1.5f, 200u));
  const double expected = 200 * 64 * known().fmaLatency;
  EXPECT_NEAR(last()["cycles"].get<double>(), expected, kAround + 0.1 * expected);
}

TEST_P(Clock, IndependentArithmeticTakesItsRate) {
  Buffer<float> out(64 * 16);
  // Four waves a SIMD share it.
  HIP_OK(launch("independent", {1}, {lanes() * 16}, out.get(), 1.5f, 200u));
  const double expected = 4 * 200 * 64 * known().fma;
  // Where two pipes take two waves' instructions, the last two waves have nobody to fill the slots of their loops'
  // other instructions, an eighth of all.
  const double part = known().fma == 2 ? 0.25 : 0.1;
  EXPECT_NEAR(last()["cycles"].get<double>(), expected, kAround + part * expected);
}

TEST_P(Clock, MatrixInstructionsTakeTheirPasses) {
  Buffer<float> out(64 * 4);
  HIP_OK(launch("matrixRate", {1}, {lanes() * 4}, out.get(), 100u));
  const double expected = 100 * 32 * known().matrix;
  EXPECT_NEAR(last()["cycles"].get<double>(), expected, kAround + 0.05 * expected);
  EXPECT_GT(last()["busy"]["matrix"].get<double>(), 0.8);
}

TEST_P(Clock, BankConflictsMultiplyLdsTime) {
  Buffer<std::uint32_t> out(1024);
  HIP_OK(launch("ldsStride", {1}, {256}, out.get(), 1u, 100u));
  const json straight = last();
  HIP_OK(launch("ldsStride", {1}, {256}, out.get(), 32u, 100u));
  const json conflicting = last();
  EXPECT_EQ(straight["bank_conflict_cycles"], 0);
  // Lanes whose addresses are 32 dwords apart meet in one bank of 32, in two of gfx950's 64. 32 lanes go together.
  const double together = std::string(GetParam().chip) == "gfx950" ? 16 : 32;
  double expected = 0;  // of reads of two dwords each
  for (const json& i : straight["instructions"])
    if (const auto text = i["text"].get<std::string>(); text.find("ds_read2") == 0 || text.find("ds_load_2addr") == 0)
      expected += i["count"].get<double>() * 2 * static_cast<double>(waveSize() / 32) * (together - 1);
  EXPECT_GT(expected, 0);
  const json& used = conflicting["busy"]["lds"];
  EXPECT_EQ(conflicting["bank_conflict_cycles"].get<double>(), expected);
  EXPECT_GT(conflicting["cycles"].get<double>(), 6 * straight["cycles"].get<double>());
  EXPECT_GT(used.get<double>(), 0.9);
}

TEST_P(Clock, LoadsTakeTheLatencyOfTheirLevel) {
  constexpr std::uint32_t kLoads = 500;
  double before = 0;
  // Within L1, within L2, beyond.
  for (const std::size_t bytes : {std::size_t{8} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
    std::vector<std::uint32_t> next(bytes / 4);
    const std::size_t lines = bytes / 128;
    for (std::size_t l = 0; l < lines; ++l) next[l * 32] = static_cast<std::uint32_t>((l + lines / 2 + 1) % lines * 32);
    Buffer<std::uint32_t> p(next), out(1);
    if (bytes < 4u << 20) {
      HIP_OK(launch("chase", {1}, {1}, p.get(), out.get(), static_cast<std::uint32_t>(lines)));  // fills the caches
    }
    HIP_OK(launch("chase", {1}, {1}, p.get(), out.get(), kLoads));
    const double cycles = last()["cycles"].get<double>() / kLoads;
    EXPECT_GT(cycles, before + 30) << bytes;
    EXPECT_LT(cycles, 2500) << bytes;
    before = cycles;
  }
}

TEST_P(Clock, LongCopiesRunAtMemorysRate) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;  // long beside what starts and ends a launch
  Buffer<float> from(kBytes / 4), to(kBytes / 4);
  ASSERT_EQ(sardonyxSimConfigure(R"({"timing": "sample"})"), 0);
  HIP_OK(launch("copy", {static_cast<unsigned>(kBytes / 16 / 256)}, {256}, from.get(), to.get()));
  const json j = last();
  const double rate = 2 * static_cast<double>(kBytes) / j["us"].get<double>() * 1e-3;
  EXPECT_LT(rate, known().gbPerSecond);
  EXPECT_GT(rate, 0.7 * known().gbPerSecond);
  EXPECT_EQ(j["limited_by"], "memory");
  EXPECT_TRUE(j["sample"]["extrapolated"].get<bool>());
  EXPECT_EQ(j["workgroups"], kBytes / 16 / 256);
}

TEST_P(Clock, WaitsAtBarriersAreNamed) {
  Buffer<float> out(256);
  HIP_OK(launch("uneven", {1}, {256}, out.get(), 1.5f));
  const json j = last();
  EXPECT_GT(j["lost"]["barrier"].get<double>(), 0.2);
  double barrier = 0;
  for (const json& i : j["instructions"])
    if (i["text"].get<std::string>().find("barrier") != std::string::npos && i.contains("lost_cycles_per_wave")) {
      barrier += i["lost_cycles_per_wave"].value("barrier", 0.0);
      EXPECT_NE(i["source"].get<std::string>().find("device.h"), std::string::npos);
    }
  EXPECT_GT(barrier, 500);
}

TEST_P(Clock, ResultsAreRightAndTimesRepeat) {
  Buffer<float> from(std::vector<float>(4096, 3)), to(std::vector<float>(4096, 0));
  HIP_OK(launch("copy", {4}, {256}, from.get(), to.get()));
  EXPECT_EQ(to.read(), from.read());
  HIP_OK(launch("copy", {4}, {256}, from.get(), to.get()));
  const double warm = last()["cycles"].get<double>();
  HIP_OK(launch("copy", {4}, {256}, from.get(), to.get()));
  EXPECT_EQ(last()["cycles"].get<double>(), warm);
}

TEST_P(Clock, EventsMeasureTheEstimate) {
  Buffer<float> out(1024);
  hipEvent_t a = nullptr, b = nullptr;
  HIP_OK(hipEventCreate(&a));
  HIP_OK(hipEventCreate(&b));
  HIP_OK(hipEventRecord(a, nullptr));
  HIP_OK(launch("dependent", {1}, {256}, out.get(), 1.5f, 1000u));
  HIP_OK(hipEventRecord(b, nullptr));
  float ms = 0;
  HIP_OK(hipEventElapsedTime(&ms, a, b));
  const json j = last();
  EXPECT_NEAR(ms, (j["us"].get<double>() + j["launch_us"].get<double>()) * 1e-3, 1e-3);
  HIP_OK(hipEventDestroy(a));
  HIP_OK(hipEventDestroy(b));
}

TEST_P(Clock, TheTimelineIsOfWavesAndTheirWaits) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"timeline_segments": 20000})"), 0);
  Buffer<float> out(256);
  HIP_OK(launch("uneven", {1}, {256}, out.get(), 1.5f));
  const json events = json::parse(sardonyxSimTimeline())["traceEvents"];
  int waves = 0, barriers = 0;
  for (const json& e : events) {
    if (e["ph"] != "X") continue;
    EXPECT_GE(e["dur"].get<double>(), 0);
    waves += e["name"].get<std::string>().find("wave") != std::string::npos;
    barriers += e["name"] == "barrier";
  }
  EXPECT_EQ(waves, static_cast<int>(256 / waveSize()));
  EXPECT_GT(barriers, 0);
}

TEST(ClockRefusals, ChipsWithoutFactsAreNamed) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx1030"], "timing": "all"})"), 0);
  hipModule_t module = nullptr;
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  ASSERT_EQ(hipModuleLoad(&module, SIM_KERNELS "/timing.gfx1030.O2.co"), hipSuccess);
  hipFunction_t f = nullptr;
  ASSERT_EQ(hipModuleGetFunction(&f, module, "dependent"), hipSuccess);
  float* p = nullptr;
  float x = 1;
  std::uint32_t n = 1;
  ASSERT_EQ(hipMalloc(reinterpret_cast<void**>(&p), 256), hipSuccess);
  void* params[] = {&p, &x, &n, nullptr};
  EXPECT_EQ(hipModuleLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr), hipErrorLaunchFailure);
  const std::string why = sardonyxSimLastFailure();
  EXPECT_NE(why.find("no facts of gfx1030"), std::string::npos) << why;
  EXPECT_NE(why.find("gfx1100"), std::string::npos) << why;
  EXPECT_EQ(hipFree(p), hipSuccess);
  EXPECT_EQ(hipModuleUnload(module), hipSuccess);
  EXPECT_EQ(sardonyxSimConfigure(R"({"timing": "off"})"), 0);
}

TEST(ClockRefusals, OtherWordsThanTheThreeModes) {
  EXPECT_EQ(sardonyxSimConfigure(R"({"timing": "fast"})"), -1);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("sample"), std::string::npos);
  EXPECT_EQ(sardonyxSimConfigure(R"({"timing": 3})"), -1);
  // A sample leaves memory unwritten that the whole launch writes.
  EXPECT_EQ(sardonyxSimConfigure(R"({"timing": "sample", "check_uninitialized": true})"), -1);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("check_uninitialized"), std::string::npos);
}

}  // namespace
