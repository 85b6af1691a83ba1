// Which workgroups of a launch the clock looks at, and what they left: the clock's part of running a launch.
//
// Of a launch that fills the device more than twice only two rounds of workgroups are recorded (a round is what is
// resident at a time): the first warms the caches, the second is measured. Of a long one only the same share of every
// die's pools is, so that traces stay below a budget; caches are then as much smaller (estimate.cpp). Workgroups may
// have different amounts of work (under a causal mask, those that start first have the most keys). So some of the whole
// launch are executed too, to compare the number of their instructions with those of the second round.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/exec/wave.h"
#include "sim/timing/caches.h"
#include "sim/timing/occupancy.h"

namespace sardonyx::sim {
struct Launch;
namespace timing {

class Recording {
 public:
  /// `executeAll`: workgroups that are not recorded are executed too, and matrix arithmetic is not left out.
  Recording(const Launch& launch, const TimingFacts& facts, bool executeAll);
  /// Workgroups to execute, and which is the n-th; may give kSkip.
  static constexpr std::uint64_t kSkip = ~std::uint64_t{0};
  std::uint64_t count() const { return executeAll_ ? groups_ : samples_.size() + recordedCount_; }
  std::uint64_t at(std::uint64_t n) const;
  /// Lets the waves of a workgroup be recorded if the clock wants it.
  void attach(Workgroup& group);
  /// Takes the traces of a workgroup that has ended.
  void collect(Workgroup& group);

  const TimingFacts& facts() const { return facts_; }
  const Occupancy& occupancy() const { return occupancy_; }
  const Placement& placement() const { return place_; }
  std::uint64_t groups() const { return groups_; }
  /// Workgroups of a round of the whole device.
  std::uint64_t round() const { return place_.pools() * static_cast<unsigned>(occupancy_.groups); }
  /// Rounds that are recorded, and whether these are all workgroups.
  std::uint64_t rounds() const { return rounds_; }
  bool complete() const { return rounds_ * round() >= groups_; }
  /// Pools of each die whose workgroups were recorded.
  int units() const { return units_.load(); }
  /// Pools of die 0 whose workgroups are recorded instruction by instruction.
  bool detailed(std::uint64_t index) const;
  int secondDetailedUnit() const { return place_.unitsPerDie / 2; }
  /// Instructions of an average workgroup of the launch, by the sampled ones; 0 where none were sampled, or the number
  /// depends on which workgroups were executed before (they use atomics).
  double averageExecuted() const;
  /// Traces of the pools below units(), in the order of the grid.
  std::vector<GroupTrace*> traces();

 private:
  bool wanted(std::uint64_t index) const;
  bool sampled(std::uint64_t index) const;
  void collectSample(const Workgroup& group);
  int unitAt(int number) const;  ///< in the order of execution
  const TimingFacts& facts_;
  Gen gen_;
  bool executeAll_;
  std::uint64_t groups_, rounds_ = 1, recordedCount_ = 0;
  Occupancy occupancy_;
  Placement place_;
  std::atomic<int> units_;
  std::mutex mutex_;  ///< guards what follows
  std::vector<std::unique_ptr<GroupTrace>> traces_;
  std::uint64_t executed_ = 0, lines_ = 0;
  std::vector<std::uint64_t> samples_;  ///< workgroups, of the whole launch; empty if complete()
  std::atomic<std::uint64_t> sampledExecuted_ = 0;
  std::uint64_t sampledCount_ = 0;
  bool sampledAtomics_ = false;
};

}  // namespace timing
}  // namespace sardonyx::sim
