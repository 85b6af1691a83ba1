// How fast kernels execute: wave-instructions a second by kind of work, on all cores, with the default checks. Printed,
// and held to a floor far below what an idle machine reaches, so that only a real loss fails it. Matrix instructions:
// isa/speed_test.cpp.
#include <chrono>
#include <cstdio>

#include "harness.h"

namespace {

class Speed : public SimTest {
 protected:
  std::string options() const override {
    return std::string(", \"check_waits\": true, \"check_races\": true, \"check_global_races\": ") +
           (everything_ ? "true" : "false") + ", \"check_uninitialized\": " + (everything_ ? "true" : "false");
  }
  static std::uint64_t number(const std::string& text, const std::string& key) {
    std::size_t at = text.find("\"" + key + "\":");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + key.size() + 3));
  }
  /// Launches once to count and once to time; returns wave-instructions a second.
  template <class... Args>
  void measure(const char* kernel, double floor, Args... args) {
    ASSERT_EQ(sardonyxSimConfigure("{\"summary\": true}"), 0);
    sardonyxSimResetSummary();
    HIP_OK(launch(kernel, {16}, {256}, args...));
    std::string summary = sardonyxSimSummary();
    double instructions = 0;
    for (const char* kind : {"scalar", "vector", "matrix", "scalar_memory", "memory", "lds", "wait", "branch", "other"})
      instructions += static_cast<double>(number(summary, kind));
    ASSERT_EQ(sardonyxSimConfigure("{\"summary\": false}"), 0);
    auto start = std::chrono::steady_clock::now();
    HIP_OK(launch(kernel, {16}, {256}, args...));
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-8s %-20s %-12s %7.2f million wave-instructions a second\n", GetParam().chip, kernel,
                everything_ ? "all checks" : "default", instructions / seconds / 1e6);
    EXPECT_GT(instructions / seconds, floor);
  }
  bool everything_ = false;
};
INSTANTIATE_TEST_SUITE_P(Some, Speed, testing::Values(Target{"gfx942", 2}, Target{"gfx1100", 2}), targetName);

TEST_P(Speed, ByKindOfWork) {
  load("speed");
  Buffer<std::uint32_t> in(std::vector<std::uint32_t>(4096)), out(4096);
  measure("vectorArithmetic", 10'000, reinterpret_cast<float*>(out.get()), 500u);
  measure("sharedMemory", 10'000, out.get(), 100u);
  measure("globalMemory", 10'000, in.get(), out.get(), 200u);
  everything_ = true;
  ASSERT_EQ(sardonyxSimConfigure(("{\"chips\": [\"" + std::string(GetParam().chip) + "\"]" + options() + "}").c_str()),
            0);
  measure("vectorArithmetic", 10'000, reinterpret_cast<float*>(out.get()), 100u);
}

}  // namespace
