#include "device/simulated_clock.h"

#include "device/driver.h"
#include "support/error.h"

namespace sardonyx {

void time_simulated_launches(SimulatedTiming mode) {
  const Driver& d = sim_driver();
  const char* settings = mode == SimulatedTiming::kOff   ? R"({"timing": "off", "timeline_segments": 0})"
                         : mode == SimulatedTiming::kAll ? R"({"timing": "all", "timeline_segments": 5000})"
                                                         : R"({"timing": "sample", "timeline_segments": 5000})";
  if (d.configure_simulator(settings) != 0) fail(ErrorKind::kDevice, "sim: {}", d.last_failure());
  if (mode != SimulatedTiming::kOff) d.forget_simulated();
}

SimulatedClock::~SimulatedClock() {
  try {
    time_simulated_launches(SimulatedTiming::kOff);
  } catch (const Error&) {
    return;  // the simulator was there at the start; a refusal to turn the clock off leaves nothing to be done
  }
}

std::string simulated_launches() { return sim_driver().simulated_launches(); }
std::string simulated_timeline() { return sim_driver().simulated_timeline(); }

}  // namespace sardonyx
