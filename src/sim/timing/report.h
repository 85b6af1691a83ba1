// Estimates as JSON, as text, and as a timeline for Perfetto.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/timing/estimate.h"

namespace sardonyx::sim::timing {

/// One launch of the process, in the order of execution.
struct TimedLaunch {
  std::string kernel;
  std::uint32_t grid[3], block[3];
  double start = 0;  ///< microseconds since the first launch, launches one after another
  std::shared_ptr<const Estimate> estimate;
};

/// Keys as docs/amd-clock.md lists them.
nlohmann::json toJson(const TimedLaunch& launch);
/// What limits the kernel, where its waves' cycles go, and the `lines` instructions that cost most.
std::string toText(const TimedLaunch& launch, int lines);
/// Chrome's trace format, which ui.perfetto.dev opens: launches one after another, and of each kernel's first launch
/// the waves of one pool, SIMD by SIMD: when they issue and what they wait for. A cycle is shown as a microsecond.
std::string toTimeline(const std::vector<TimedLaunch>& launches);

}  // namespace sardonyx::sim::timing
