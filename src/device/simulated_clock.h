// The clock of the simulated AMD GPUs (docs/amd-clock.md), for this process.
#pragma once
#include <string>

namespace sardonyx {

enum class SimulatedTiming {
  kOff,
  kAll,     ///< every workgroup is executed
  kSample,  ///< only what the estimate needs: results are wrong
};
/// Whether launches are timed from now on (Gpu::estimated_seconds). Forgets earlier estimates. Throws Error(kDevice) if
/// there is no simulator.
void time_simulated_launches(SimulatedTiming mode);
/// The same for the life of an object.
class SimulatedClock {
 public:
  explicit SimulatedClock(SimulatedTiming mode) { time_simulated_launches(mode); }
  ~SimulatedClock();
  SimulatedClock(const SimulatedClock&) = delete;
  SimulatedClock& operator=(const SimulatedClock&) = delete;
};
/// Estimates of all launches since then, as JSON with the keys of docs/amd-clock.md.
std::string simulated_launches();
/// The same as a timeline for ui.perfetto.dev.
std::string simulated_timeline();

}  // namespace sardonyx
