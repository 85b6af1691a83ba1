// Which weights the host's kernels prefetch for the steps after theirs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sardonyx {

/// The weights of a plan's steps in the order in which the steps run, and how far they have been prefetched. Small
/// layers read their weights in the time in which they multiply by them, while layers with much to multiply leave the
/// memory idle: those fetch what comes next (MobileNet: 0.9 of the time). For one run at a time.
class WeightPrefetch {
 public:
  /// What may be prefetched and not yet used: part of the second-level caches.
  static constexpr std::int64_t kWindow = 2 << 20;

  /// A step that reads weights, after those that were added before. Its number.
  int add() {
    weights_.emplace_back();
    return static_cast<int>(weights_.size()) - 1;
  }
  /// The step runs: what it should prefetch, of up to `room` bytes; neighbours in memory come as one.
  std::span<const char> take(int step, std::int64_t room);
  /// Where the step has found its weights.
  void set(int step, std::span<const char> weights) { weights_[static_cast<std::size_t>(step)] = weights; }

 private:
  std::vector<std::span<const char>> weights_;  ///< empty before a step's first run
  std::size_t current_ = 0;                     ///< the step that runs
  std::size_t next_ = 0, offset_ = 0;           ///< the first byte that is not prefetched
};

}  // namespace sardonyx
