// The clock of one pool of SIMDs (a compute unit of CDNA, a workgroup processor of RDNA): replays the traces of
// workgroups and finds in which cycle each instruction issues.
//
// A wave issues in order. Its next instruction may issue when its operands are there, its waits are fulfilled and its
// unit is free; of the waves of a SIMD that want the same unit the one of highest priority goes first, then the oldest.
// The units of a SIMD take instructions of different waves side by side. Queues of the shared units (LDS, L1, and the
// pool's share of L2, Infinity Cache and memory) serve in order, each at its rate.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/timing/caches.h"
#include "sim/timing/ops.h"
#include "sim/timing/record.h"

namespace sardonyx::sim::timing {

/// The pool's share of what the device has, in bytes and cycles of the shader clock.
struct Shares {
  double l2 = 64, mall = 16, memory = 8;                        ///< bytes a cycle; mall 0: there is none
  double array = 0;                                             ///< of the shader array's cache; 0: there is none
  int l2Latency = 250, mallLatency = 500, memoryLatency = 800;  ///< issue to use
  int arrayLatency = 0;
  double fabricShare = 1, memoryShare = 1;  ///< HitCounts: lines moved for each request
};

struct Setup {
  const TimingFacts* facts = nullptr;
  Gen gen = Gen::kGfx9;
  int waveSize = 64;
  int simds = 4, simdsPerGroup = 4;
  int residentGroups = 1;
  std::uint64_t l1Bytes = 16384;
  Shares shares;
  std::size_t distinctGroups = 1;  ///< traces; when they repeat, they stand for other workgroups
  double groupInterval = 0;        ///< cycles between workgroups that the dispatcher gives this pool
  std::size_t timelineLimit = 0;
};

/// What happened to one static instruction.
struct OpStats {
  std::uint64_t count = 0, cycles = 0, conflicts = 0;
  std::uint64_t lost[kCauses] = {};  ///< wave-cycles before it issued
};

struct Segment {  ///< of a wave's life, for the timeline
  std::int64_t begin, end;
  std::int32_t wave;         ///< number since the start
  std::int16_t simd, cause;  ///< cause -1: it issued; otherwise Cause
  std::uint32_t slot;
};

struct WaveLife {
  std::int64_t begin, end;
  int simd;
  std::uint32_t group, wave;
};

struct Result {
  std::int64_t cycles = 0;
  std::vector<std::int64_t> groupEnds;  ///< in order of completion
  std::uint64_t instructions = 0;
  std::uint64_t waveCycles = 0;  ///< lives of all waves, summed
  std::uint64_t lost[kCauses] = {};
  double busy[kUnits] = {};  ///< cycles, summed over SIMDs; LDS and L1 over their ports
  double l2Bytes = 0, mallBytes = 0, memoryBytes = 0, l1Lines = 0, l1Hits = 0;
  std::uint64_t ldsConflicts = 0;
  std::vector<OpStats> ops;  ///< by op
  std::vector<Segment> timeline;
  std::vector<WaveLife> lives;
  std::vector<Segment> picture;  ///< what one wave waited for; it is pictured.wave
  WaveLife pictured = {};
};

/// Replays `order` (indices into `groups`, in the order in which this pool gets them). `opOfSlot` maps a trace's slots
/// to `ops`.
Result replay(const Setup& setup, const std::vector<const GroupTrace*>& groups, const std::vector<Op>& ops,
              const std::vector<std::uint32_t>& opOfSlot);

}  // namespace sardonyx::sim::timing
