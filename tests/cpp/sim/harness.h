// What every test of the simulated GPU uses: a chip and an optimisation level, buffers, and launches that report
// failures.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "hip/hip_runtime_api.h"
#include "sardonyx_sim.h"

struct Target {
  const char* chip;
  int level;            ///< of optimisation
  bool wave64 = false;  ///< on a chip whose waves have 32 lanes unless asked
};
inline void PrintTo(const Target& t, std::ostream* os) {
  *os << t.chip << " -O" << t.level << (t.wave64 ? " wave64" : "");
}
inline std::string targetName(const testing::TestParamInfo<Target>& info) {
  return std::string(info.param.chip) + (info.param.wave64 ? "_wave64" : "") + "_O" + std::to_string(info.param.level);
}
inline const Target kTargets[] = {{"gfx90a", 0},  {"gfx90a", 2},  {"gfx90a", 3},  {"gfx942", 0},  {"gfx942", 2},
                                  {"gfx942", 3},  {"gfx950", 0},  {"gfx950", 2},  {"gfx950", 3},  {"gfx1100", 0},
                                  {"gfx1100", 2}, {"gfx1100", 3}, {"gfx1201", 0}, {"gfx1201", 2}, {"gfx1201", 3},
                                  {"gfx1030", 0}, {"gfx1030", 2}, {"gfx1030", 3}, {"gfx1101", 2}, {"gfx1102", 2},
                                  {"gfx1103", 2}, {"gfx1150", 2}, {"gfx1151", 2}, {"gfx1200", 2}};

inline const Target kWave64Targets[] = {{"gfx1030", 0, true}, {"gfx1030", 2, true}, {"gfx1100", 0, true},
                                        {"gfx1100", 2, true}, {"gfx1201", 0, true}, {"gfx1201", 2, true}};

#define HIP_OK(call) ASSERT_EQ(call, hipSuccess) << #call << ": " << sardonyxSimLastFailure()

/// Device memory holding a vector.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t n) : n_(n) {
    EXPECT_EQ(hipMalloc(reinterpret_cast<void**>(&p_), n * sizeof(T)), hipSuccess);
  }
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size()) {
    EXPECT_EQ(hipMemcpy(p_, v.data(), n_ * sizeof(T), hipMemcpyHostToDevice), hipSuccess);
  }
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return p_; }
  void release() {
    if (p_) {
      EXPECT_EQ(hipFree(p_), hipSuccess);
    }
    p_ = nullptr;
  }
  std::vector<T> read() const {
    std::vector<T> v(n_);
    EXPECT_EQ(hipMemcpy(v.data(), p_, n_ * sizeof(T), hipMemcpyDeviceToHost), hipSuccess);
    return v;
  }

 private:
  T* p_ = nullptr;
  std::size_t n_;
};

/// A test on one chip with kernels of one optimisation level.
class SimTest : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    std::string json = std::string("{\"chips\": [\"") + GetParam().chip + "\"]" + options() + "}";
    ASSERT_EQ(sardonyxSimConfigure(json.c_str()), 0) << sardonyxSimLastFailure();
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
  }
  void TearDown() override {
    if (module_) {
      EXPECT_EQ(hipModuleUnload(module_), hipSuccess);
    }
  }
  /// More of the configuration: ", \"key\": value".
  virtual std::string options() const {
    return ", \"check_waits\": true, \"check_races\": true, \"check_global_races\": false, \"check_uninitialized\": "
           "false, "
           "\"max_instructions_per_wave\": 200000000";
  }

  void load(const std::string& stem) {
    std::string file = std::string(SIM_KERNELS) + "/" + stem + "." + GetParam().chip +
                       (GetParam().wave64 ? "w64" : "") + ".O" + std::to_string(GetParam().level) + ".co";
    ASSERT_EQ(hipModuleLoad(&module_, file.c_str()), hipSuccess) << file << ": " << sardonyxSimLastFailure();
  }
  template <class... Args>
  hipError_t launch(const char* name, dim3 grid, dim3 block, Args... args) {
    hipFunction_t f = nullptr;
    if (hipError_t e = hipModuleGetFunction(&f, module_, name); e != hipSuccess) return e;
    void* params[] = {&args..., nullptr};
    return hipModuleLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, nullptr, params, nullptr);
  }
  std::size_t waveSize() const {
    return GetParam().wave64 || std::string(GetParam().chip).substr(0, 4) == "gfx9" ? 64 : 32;
  }
  hipModule_t module_ = nullptr;
};
#define SIM_WAVE64_TESTS(Class) INSTANTIATE_TEST_SUITE_P(Wave64, Class, testing::ValuesIn(kWave64Targets), targetName)
#define SIM_TESTS(Class) INSTANTIATE_TEST_SUITE_P(All, Class, testing::ValuesIn(kTargets), targetName)

/// Numbers that repeat from run to run.
class Random {
 public:
  explicit Random(std::uint64_t seed) : s_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    s_ ^= s_ << 13, s_ ^= s_ >> 7, s_ ^= s_ << 17;
    return s_;
  }
  std::uint32_t u32() { return static_cast<std::uint32_t>(next() >> 16); }
  /// In [-range, range].
  double real(double range) { return (static_cast<double>(next() >> 11) * 0x1p-53 * 2 - 1) * range; }

 private:
  std::uint64_t s_;
};
