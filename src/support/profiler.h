// Ranges with names that a profiler shows beside the work that they contain: roctx for AMD's profilers (rocprofv3,
// rocprof), NVTX for NVIDIA's (Nsight Systems, Nsight Compute). Nothing is linked: where no profiler listens, a range
// costs a comparison.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Looks once in a process for a profiler that listens. AMD's have loaded their libraries into the process before it
/// starts. NVIDIA's name theirs in a variable of the environment, whose value is `nvtx_injection` (empty: none).
void listen_to_profilers(const std::string& nvtx_injection);
/// Whether one was found.
bool profiler_listens();

/// A range of the calling thread, from the constructor to the destructor. Ranges of a thread are nested.
class ProfilerRange {
 public:
  explicit ProfilerRange(std::string_view name) : open_(profiler_listens()) {
    if (open_) begin(name);
  }
  ~ProfilerRange() {
    if (open_) end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  static void begin(std::string_view name);
  static void end();
  bool open_;
};

}  // namespace sardonyx
