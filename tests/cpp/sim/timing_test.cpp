// The clock: kernels whose time can be worked out from what a chip's units do in a cycle, what is said of them, and
// what is refused. What the clock is worth beside published measurements is docs/amd-clock.md's matter.
#include <algorithm>
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

// The rounds that are replayed have more work than the rest of the launch.
TEST_P(Clock, UnevenWorkgroupsTakeWhatTheirAverageTakes) {
  const auto groups = static_cast<unsigned>(known().pools) * 48;
  Buffer<float> out(std::size_t{groups} * 256);
  ASSERT_EQ(sardonyxSimConfigure(R"({"timing": "sample"})"), 0);
  HIP_OK(launch("dependent", {groups}, {256}, out.get(), 1.5f, 10u));
  const double even = last()["cycles"].get<double>();
  HIP_OK(launch("declining", {groups}, {256}, out.get(), 1.5f, 20u, groups));
  EXPECT_NEAR(last()["cycles"].get<double>() / even, 1, 0.08);  // turns are rounded down: 5 % less work
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

/// Every chip that can be simulated can be timed.
class ClockOfEveryChip : public Clock {};
INSTANTIATE_TEST_SUITE_P(Chips, ClockOfEveryChip,
                         testing::Values(Target{"gfx90a", 2}, Target{"gfx942", 2}, Target{"gfx950", 2},
                                         Target{"gfx1030", 2}, Target{"gfx1100", 2}, Target{"gfx1101", 2},
                                         Target{"gfx1102", 2}, Target{"gfx1103", 2}, Target{"gfx1150", 2},
                                         Target{"gfx1151", 2}, Target{"gfx1200", 2}, Target{"gfx1201", 2}),
                         targetName);

TEST_P(ClockOfEveryChip, HasPlausibleArithmetic) {
  Buffer<float> out(64);
  HIP_OK(launch("dependent", {1}, {lanes()}, out.get(), 1.5f, 200u));
  const double latency = lanes() == 64 ? 4 : 5;
  EXPECT_NEAR(last()["cycles"].get<double>(), 200 * 64 * latency, kAround + 0.1 * 200 * 64 * latency);
}

// RDNA 2 and 3 have a cache between L0 and L2; the others go to L2, which takes at least 190 cycles everywhere.
TEST_P(ClockOfEveryChip, ShaderArraysHaveTheirCache) {
  const std::size_t lines = (96 << 10) / 128;
  std::vector<std::uint32_t> next(lines * 32);
  for (std::size_t l = 0; l < lines; ++l) next[l * 32] = static_cast<std::uint32_t>((l + 1) % lines * 32);
  Buffer<std::uint32_t> p(next), out(1);
  HIP_OK(launch("chase", {1}, {1}, p.get(), out.get(), static_cast<std::uint32_t>(lines)));
  HIP_OK(launch("chase", {1}, {1}, p.get(), out.get(), static_cast<std::uint32_t>(10 * lines)));
  const double cycles = last()["cycles"].get<double>() / (10.0 * lines);
  const std::string chip = GetParam().chip;
  const bool array = chip == "gfx1030" || chip.starts_with("gfx110") || chip.starts_with("gfx115");
  if (array)
    EXPECT_LT(cycles, 160);
  else
    EXPECT_GT(cycles, 190);
}

// A pair of SIMDs has 64 bytes a cycle from LDS, a pool two pairs; reads of LDS are what this kernel waits for.
TEST_P(Clock, LdsGivesWhatItsPortsCarry) {
  Buffer<std::uint32_t> out(1024);
  HIP_OK(launch("ldsStride", {1}, {1024}, out.get(), 1u, 800u));
  const json j = last();
  double bytes = 0;  // of reads of two dwords each
  for (const json& i : j["instructions"])
    if (const auto text = i["text"].get<std::string>(); text.find("ds_read2") == 0 || text.find("ds_load_2addr") == 0)
      bytes += i["count"].get<double>() * 8 * lanes();
  EXPECT_GT(bytes, 1e7);
  EXPECT_GE(j["cycles"].get<double>(), bytes / (2 * 64));
  EXPECT_LE(j["cycles"].get<double>(), 1.3 * bytes / (2 * 64));  // where the additions are not hidden
}

TEST_P(Clock, FlatReadsOfLdsHaveConflictsToo) {
  Buffer<std::uint32_t> out(1024);
  HIP_OK(launch("ldsFlat", {1}, {1024}, out.get(), 1u, 50u));
  const json straight = last();
  EXPECT_EQ(straight["bank_conflict_cycles"], 0);
  HIP_OK(launch("ldsFlat", {1}, {1024}, out.get(), 32u, 50u));
  const json conflicting = last();
  const double together = std::string(GetParam().chip) == "gfx950" ? 16 : 32;
  EXPECT_EQ(conflicting["bank_conflict_cycles"].get<double>(), 1024.0 / 32 * 16 * 50 * (together - 1));
  EXPECT_GT(conflicting["cycles"].get<double>(), 3 * straight["cycles"].get<double>());
}

// Lanes 32 dwords apart: RDNA's L0 has them in one bank and takes two cycles for each, CDNA's L1 takes one of each four
// in a cycle (gpu-strides).
TEST_P(Clock, StridedLoadsTakeTheirBanksOfL1) {
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(64 * 64, 1)), out(1024);
  constexpr std::uint32_t kTurns = 100;
  HIP_OK(launch("strided", {1}, {1024}, in.get(), out.get(), 32u, kTurns));
  const double loads = 1024.0 / lanes() * 16 * kTurns;
  const double expected = lanes() == 64 ? loads * 64 : loads / 2 * 64;  // a workgroup processor has two L0s
  EXPECT_NEAR(last()["cycles"].get<double>(), expected, kAround + 0.1 * expected);
  EXPECT_EQ(last()["limited_by"], "l1");
  HIP_OK(launch("strided", {1}, {1024}, in.get(), out.get(), 1u, kTurns));
  EXPECT_LT(last()["cycles"].get<double>(), expected / 4);
}

// Where some units have two workgroups and others one, memory serves those with two at more than an equal share.
TEST_P(Clock, MemoryServesUnitsByWhatTheyAskFor) {
  const auto pools = static_cast<unsigned>(known().pools);
  const std::size_t floats = std::size_t{2} * pools * 1024 * 4;
  Buffer<float> a(floats), b(floats), c(floats), d(floats);
  HIP_OK(launch("copy", {pools * 3 / 2}, {1024}, a.get(), b.get()));
  const double some = last()["cycles"].get<double>();
  HIP_OK(launch("copy", {pools * 2}, {1024}, c.get(), d.get()));
  EXPECT_LT(some, 0.9 * last()["cycles"].get<double>());
}

TEST_P(Clock, AtomicsOnOneWordFollowOneAnother) {
  Buffer<std::uint32_t> out(std::vector<std::uint32_t>(64, 0));
  HIP_OK(launch("atomicOne", {1024}, {256}, out.get()));
  EXPECT_EQ(out.read()[0], 4096u);
  const json j = last();
  if (std::string(GetParam().chip) == "gfx1201") {  // 66 ns each, measured; of other chips it is not known
    EXPECT_NEAR(j["us"].get<double>(), 4096 * 0.066, 10);
    EXPECT_EQ(j["limited_by"], "atomics");
  } else {
    EXPECT_EQ(j["atomic_cycles"], 0);
  }
}

TEST_P(Clock, TheClockCanBeGiven) {
  Buffer<float> out(64);
  ASSERT_EQ(sardonyxSimConfigure(R"({"mhz": 1000})"), 0);
  HIP_OK(launch("dependent", {1}, {lanes()}, out.get(), 1.5f, 200u));
  const json slow = last();
  ASSERT_EQ(sardonyxSimConfigure(R"({"mhz": 0})"), 0);
  EXPECT_EQ(slow["mhz"], 1000);
  EXPECT_NEAR(slow["us"].get<double>(), slow["cycles"].get<double>() / 1000, 0.01);
  HIP_OK(launch("dependent", {1}, {lanes()}, out.get(), 1.5f, 200u));
  EXPECT_GT(last()["mhz"].get<double>(), 1500);
  EXPECT_EQ(sardonyxSimConfigure(R"({"mhz": 5})"), -1);
}

TEST_P(Clock, RepeatsTakeTheEstimateOfTheLast) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"timing": "sample", "timing_repeats": 2})"), 0);
  sardonyxSimResetSummary();
  Buffer<float> out(64), other(std::vector<float>(64, -1.0f));
  const auto run = [&](float* to, unsigned rounds) {
    EXPECT_EQ(launch("dependent", {1}, {lanes()}, to, 1.5f, rounds), hipSuccess);
    return last()["cycles"].get<double>();
  };
  run(out.get(), 200u);
  const double second = run(out.get(), 200u);
  EXPECT_EQ(run(other.get(), 200u), second);  // only the address differs: not executed
  EXPECT_EQ(other.read()[0], -1.0f);
  EXPECT_GT(run(other.get(), 400u), 1.5 * second);  // another launch: executed
  EXPECT_NE(other.read()[0], -1.0f);
  EXPECT_EQ(json::parse(sardonyxSimTiming())["launches"].size(), 4u);
  ASSERT_EQ(sardonyxSimConfigure(R"({"timing_repeats": 0})"), 0);
}

TEST_P(Clock, AWavesLifeIsPictured) {
  Buffer<float> out(256);
  HIP_OK(launch("uneven", {1}, {256}, out.get(), 1.5f));
  const json j = last();
  // Wave 0 computes for most of its life; those that wait for it are at the barrier.
  const auto life = j["wave"]["life"].get<std::string>();
  const double cycles = j["wave"]["cycles"].get<double>(), step = j["wave"]["cycles_a_character"].get<double>();
  EXPECT_NEAR(static_cast<double>(life.size()) * step, cycles, step);
  EXPECT_LE(life.size(), 96u);
  const auto computing = std::count(life.begin(), life.end(), '#') + std::count(life.begin(), life.end(), 'v');
  EXPECT_GT(static_cast<double>(computing), 0.5 * static_cast<double>(life.size())) << life;
  // The source line of the loop's arithmetic takes most of the instructions.
  double most = 0, all = 0;
  for (const json& l : j["lines_of_source"]) {
    most = std::max(most, l["instructions_per_wave"].get<double>());
    all += l["instructions_per_wave"].get<double>();
  }
  EXPECT_GT(most, 0.3 * all);
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
