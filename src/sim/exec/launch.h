// One kernel launch: what to run, and how it ended.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/exec/config.h"
#include "sim/exec/wave.h"
#include "sim/object/code_object.h"

namespace sardonyx::sim {

class GlobalShadow;
namespace timing {
class Recording;
struct DeviceCaches;
struct Estimate;
}  // namespace timing

struct Launch {
  Launch();
  ~Launch();
  const Kernel* kernel = nullptr;
  const Chip* chip = nullptr;
  const Config* config = nullptr;
  int device = 0;
  std::uint32_t grid[3] = {1, 1, 1};   ///< workgroups
  std::uint32_t block[3] = {1, 1, 1};  ///< work-items of a full workgroup
  std::uint32_t total[3] = {};         ///< work-items; 0: grid * block. Otherwise the last workgroups may be partial
  std::uint32_t ldsBytes = 0;          ///< static and dynamic
  std::uint32_t privateBytes = 0;      ///< scratch of one lane
  std::uint64_t kernarg = 0, dispatchPacket = 0, queue = 0;  ///< device addresses
  std::uint64_t dispatchId = 0;

  std::atomic<std::uint64_t> nextGroup{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;  ///< guards what follows
  std::string message;
  std::vector<std::uint64_t> counts;  ///< executed wave-instructions by Category, when the summary is on
  Traffic traffic;
  std::atomic<std::uint64_t> executed{0};
  std::unique_ptr<GlobalShadow> shadow;          ///< when races in global memory are checked
  std::unique_ptr<timing::Recording> recording;  ///< when the clock runs

  std::uint64_t groups() const { return static_cast<std::uint64_t>(grid[0]) * grid[1] * grid[2]; }
  /// Records the first failure.
  void failWith(std::string text);
};

/// What a caller asks for; checked here against the chip and the kernel.
struct LaunchRequest {
  const Kernel* kernel = nullptr;
  const Chip* chip = nullptr;
  int device = 0;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t total[3] = {};
  std::uint32_t dynamicLds = 0;
  const void* arguments = nullptr;  ///< the explicit part of the kernarg segment
  std::size_t argumentBytes = 0;
  timing::DeviceCaches* caches = nullptr;  ///< of the device, for the clock
};

/// What a launch reports besides its results.
struct LaunchCounts {
  std::vector<std::uint64_t> byCategory;  ///< executed wave-instructions by Category, when the summary is on
  Traffic traffic;
  std::shared_ptr<timing::Estimate> estimate;  ///< when the clock runs and the launch succeeded
  bool refused = false;                        ///< the launch did not start: its shape or arguments do not fit
};

/// Runs a launch to its end on the pool of host threads. Returns "" or why it failed. Thread-safe.
std::string runLaunch(const LaunchRequest& request, const Config& config, LaunchCounts* counts = nullptr);

/// Fills the kernarg segment: explicit bytes, then the hidden arguments that the metadata lists.
void fillKernarg(const LaunchRequest& request, const Launch& launch, std::uint8_t* segment);

}  // namespace sardonyx::sim
