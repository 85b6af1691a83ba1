// Caches of a device as the clock models them: which level serves each line that a workgroup asks for.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/isa/chip.h"
#include "sim/timing/record.h"

namespace sardonyx::sim::timing {

/// Set-associative, least recently used. Each line carries a stamp of the caller's.
class Cache {
 public:
  static constexpr int kWays = 16;
  Cache() = default;
  explicit Cache(std::uint64_t bytes);
  /// The stamp slot of the line; `hit` says whether it was there. The line is there afterwards.
  std::uint64_t& touch(std::uint64_t line, bool& hit);
  bool enabled() const { return !tags_.empty(); }
  void clear();
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(tags_.size()) << kLineBits; }

 private:
  std::size_t sets_ = 0;
  std::vector<std::uint64_t> tags_, stamps_, used_;
  std::uint64_t clock_ = 0;
};

/// Lines taken to be in the Infinity Cache, although the accesses that brought them were not recorded (residency.h).
struct Resident {
  std::uint64_t first = 0, end = 0;
  std::uint64_t since = 0;  ///< DeviceCaches::filled when they came
};

/// What outlives a launch: L2 of every die and the Infinity Cache.
struct DeviceCaches {
  DeviceCaches(int dies, std::uint64_t l2Bytes, std::uint64_t mallBytes);
  std::vector<Cache> l2;
  Cache mall;
  std::vector<Resident> resident;
  std::uint64_t filled = 0;  ///< bytes that the Infinity Cache ever took
  bool isResident(std::uint64_t line) const;
  std::uint64_t steps = 0;  ///< of all launches, for stamps
};

/// Which pool of SIMDs of which die a workgroup runs on: workgroups go to dies in turn, and in a die to its pools in
/// turn.
struct Placement {
  int dies = 1, unitsPerDie = 1;
  std::uint64_t pools() const { return static_cast<std::uint64_t>(dies) * static_cast<unsigned>(unitsPerDie); }
  int die(std::uint64_t position) const { return static_cast<int>(position % static_cast<unsigned>(dies)); }
  int unit(std::uint64_t position) const {
    return static_cast<int>(position / static_cast<unsigned>(dies) % static_cast<unsigned>(unitsPerDie));
  }
};

/// How often requests of workgroups waited for which level, over the whole window. Lines of 128 bytes.
struct HitCounts {
  std::uint64_t requests = 0, stores = 0;  ///< of the units' own caches
  std::uint64_t l1 = 0;                    ///< hits there
  std::uint64_t waits[kLevels] = {};       ///< by Level
  std::uint64_t fabricFills = 0;           ///< lines that an L2 got from below
  std::uint64_t memoryFills = 0;           ///< lines that memory gave
  std::uint64_t groups = 0;                ///< workgroups whose atomics are in `atomics`
  /// Atomics of waves on each line, and the most that one line got.
  std::unordered_map<std::uint64_t, std::uint64_t> atomics;
  std::uint64_t mostAtomics() const;
  /// Lines moved for each request that waits for them: less than one where workgroups ask for the same line at once.
  double fabricShare() const;
  double memoryShare() const;
};

/// The caches of a launch that end with it.
struct LaunchCaches {
  std::vector<Cache> l1;      ///< one a unit, by Placement
  std::vector<Cache> arrays;  ///< RDNA's L1, one a shader array; units belong to arrays in turn. Empty: there is none.
};

/// Runs the lines of workgroups that run at the same time through the caches, side by side as if all progressed at the
/// same rate, and writes into each line which level serves it. `own` is kept for the launch's next workgroups.
void serve(const std::vector<GroupTrace*>& groups, const Placement& placement, LaunchCaches& own, DeviceCaches& caches,
           HitCounts& counts);

}  // namespace sardonyx::sim::timing
