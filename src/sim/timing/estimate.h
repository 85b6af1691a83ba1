// What the clock says of a launch.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/timing/caches.h"
#include "sim/timing/engine.h"
#include "sim/timing/occupancy.h"

namespace sardonyx::sim {
struct Launch;
namespace timing {

/// One instruction of the kernel, over all its executions in the sampled workgroups.
struct Instruction {
  std::uint64_t offset = 0;  ///< from the start of the code object
  std::string text, source;  ///< "v_add_f32_e32 v1, v2, v3", "file.cpp:12" or ""
  OpStats stats;
};

struct Estimate {
  std::string chip, product;  ///< "gfx942", "Instinct MI300X"
  std::uint64_t groups = 0;
  Occupancy occupancy;
  std::string_view poolName;  ///< "compute units", "workgroup processors"
  int dies = 1, pools = 1, activePools = 1;
  double cycles = 0;              ///< from the dispatch of the first workgroup to the end of the last
  double atomicCycles = 0;        ///< that the atomics on the line with the most need one after another
  double mhz = 0;                 ///< clock that these were taken to run at
  double microseconds = 0;        ///< cycles at that clock
  double launchMicroseconds = 0;  ///< what the launch itself adds in a stream

  // How it was found.
  std::uint64_t recordedGroups = 0,
                replayedGroups = 0;  ///< workgroups whose memory traffic, and instructions, were taken
  bool extrapolated = false;         ///< by the rate at which the sampled workgroups ended
  double sampledUnits = 1;           ///< share of each die's pools; caches were as much smaller
  HitCounts hits;

  // Of the pool that was replayed, as shares of its cycles; caches and memory as shares of the pool's bandwidth.
  double busy[kUnits] = {};
  double l2 = 0, mall = 0, memory = 0;
  double memoryBytesPerSecond = 0;        ///< of the whole device
  double issued = 0;                      ///< share of the waves' cycles in which they issued
  double lost[kCauses] = {};              ///< share of the waves' cycles, by cause
  std::uint64_t bankConflicts = 0;        ///< cycles of LDS, in the replayed workgroups
  std::vector<Instruction> instructions;  ///< in the order of the code
  std::vector<Segment> timeline;
  std::vector<WaveLife> lives;
  std::vector<Segment> picture;  ///< Result::picture
  WaveLife pictured = {};
  int simds = 4;
};

/// Estimates a launch whose recording is complete. `caches`: what earlier launches left in the device's.
Estimate estimate(Launch& launch, DeviceCaches& caches);

/// "the clock has no facts of gfx1030 ...", for a chip without a row in target/timing.h.
std::string noClock(std::string_view chip);

}  // namespace timing
}  // namespace sardonyx::sim
