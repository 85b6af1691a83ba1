// What the simulator simulates, and how strict it is. Set through sardonyxSimConfigure (api/sim_control.h); never read
// from the environment here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sardonyx::sim {

/// Whether launches are timed, and what of them is executed.
enum class Timing : std::uint8_t {
  kOff,
  kAll,     ///< every workgroup: results are right
  kSample,  ///< only what the estimate needs, without matrix arithmetic: results are not
};

struct Config {
  std::vector<std::string> chips = {"gfx942"};         ///< one device each
  int threads = 0;                                     ///< host threads that run workgroups; 0: one per core
  std::uint64_t maxInstructionsPerWave = 200'000'000;  ///< a wave that runs longer fails its launch as endless
  bool checkWaits = true;                              ///< results used before the wait that covers them
  bool checkRaces = true;           ///< conflicting accesses of two waves to LDS with no barrier or atomic between them
  bool checkGlobalRaces = false;    ///< the same for global memory, within and between workgroups
  bool checkUninitialized = false;  ///< reads of registers, LDS and memory never written
  bool preloadArguments = true;     ///< as firmware does that puts a kernel's first arguments into scalar registers
  bool summary = false;             ///< count instructions by kind for each kernel
  Timing timing = Timing::kOff;
  std::size_t timingRepeats = 0;         ///< sampled launches that differ in addresses alone; 0: every one is simulated
  double mhz = 0;                        ///< shader clock of estimates; 0: the product's, as its power allows
  std::size_t timelineSegments = 0;      ///< of waves that estimates keep for timelines
  bool printTiming = false;              ///< estimates, on standard error when the process ends
  std::string timingFile, timelineFile;  ///< estimates as JSON, and as a timeline for Perfetto, when the process ends
  bool printSummary = false;             ///< on standard error when the process ends
  bool printFailures = false;            ///< why a launch failed, on standard error
  std::string traceKernel;               ///< kernel whose wave is traced; empty: none
  std::uint64_t traceWorkgroup = 0;      ///< linear workgroup index
  int traceWave = 0;                     ///< wave within the workgroup
  std::string traceFile;                 ///< where to; empty: standard error
};

}  // namespace sardonyx::sim
