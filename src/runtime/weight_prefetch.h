// Which weights the host's kernels prefetch for later steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sardonyx {

/// The weights of a plan's steps in execution order, and how far they have been prefetched. Small layers are bound by
/// reading their weights, while layers with much arithmetic leave the memory idle; those prefetch for later ones
/// (MobileNet takes 0.9 of the time). For one run at a time.
class WeightPrefetch {
 public:
  /// Bytes that may be prefetched ahead of their use: part of the L2 caches.
  static constexpr std::int64_t kWindow = 2 << 20;

  /// Adds a step that reads weights, after those that were added before; returns its number.
  int add() {
    weights_.emplace_back();
    return static_cast<int>(weights_.size()) - 1;
  }
  /// Called when the step runs: what it should prefetch, at most `bytes`; neighbours in memory are returned together.
  std::span<const char> take(int step, std::int64_t bytes);
  /// Records where the step found its weights.
  void set(int step, std::span<const char> weights) { weights_[static_cast<std::size_t>(step)] = weights; }

 private:
  std::vector<std::span<const char>> weights_;  ///< empty before a step's first run
  std::size_t current_ = 0;                     ///< the step that runs
  std::size_t next_ = 0, offset_ = 0;           ///< the first byte not prefetched yet
};

}  // namespace sardonyx
