// The way of a pool's memory requests: its L1 caches, then its share of L2, Infinity Cache and memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/timing/engine.h"

namespace sardonyx::sim::timing {

class MemoryPath {
 public:
  explicit MemoryPath(const Setup& s);
  /// From when on the L1 of this SIMD takes another instruction.
  std::int64_t acceptsAt(int simd) const {
    const double below = std::max({arrayFree_, l2Free_, mallFree_, memoryFree_});
    return std::max(l1Free_[port(simd)] - kQueue, static_cast<std::int64_t>(below) - kMissQueue);
  }
  /// A vector memory instruction issued at `t`: when its data is there, or its stores are acknowledged.
  /// `repetition`: how often the trace was replayed before.
  std::int64_t vector(const WaveTrace& trace, const Access& a, std::uint32_t repetition, int simd, std::int64_t t);
  std::int64_t scalar(const WaveTrace& trace, const Access& a, std::int64_t t);
  std::int64_t lastStore() const { return lastStore_; }
  void report(Result& r) const;

 private:
  static constexpr std::int64_t kQueue = 64;  ///< cycles of work that may wait before an L1
  static constexpr std::int64_t kMissQueue =
      2000;  ///< and before the levels below: stores that nobody waits for pile up
  std::size_t port(int simd) const { return static_cast<std::size_t>(simd * s_.facts->l1_ports / s_.simds); }
  double below(const Line& line, double at, double bytes);

  const Setup& s_;
  std::vector<std::int64_t> l1Free_;
  std::vector<Cache> l1_;
  Cache scalar_;
  double arrayFree_ = 0, l2Free_ = 0, mallFree_ = 0, memoryFree_ = 0;
  std::int64_t lastStore_ = 0;
  double l2Bytes_ = 0, mallBytes_ = 0, memoryBytes_ = 0, lines_ = 0, hits_ = 0;
};

}  // namespace sardonyx::sim::timing
