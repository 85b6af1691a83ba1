// The layout of a block's temporaries in one arena.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace sardonyx {

/// The layout for given values of the symbols.
struct ArenaPlan {
  std::vector<std::pair<int, std::size_t>> offsets;  ///< buffer, offset in bytes
  std::size_t total = 0;                             ///< bytes
  std::size_t live = 0;                              ///< maximum of bytes alive at a time; at most `total`
  /// Temporaries whose size is known only during a run; they are allocated when they are written.
  int unplanned = 0;
};

/// A buffer's lifetime: first written in step `first`, last read in step `last`.
struct Lifetime {
  int buffer = 0;
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Computes offsets (multiples of `alignment`) for lifetimes so that buffers that are alive at the same time don't
/// overlap; returns the arena's size. Greedy by size: each buffer, largest first, is placed in the smallest gap between
/// already placed ones that are alive at the same time ("greedy by size" in Pisarchyk and Lee, "Efficient Memory
/// Management for Deep Neural Net Inference", 2020). If the result exceeds most_alive() by 2 %, other orders are tried:
/// by bytes times steps, by steps, by first step, and repeatedly with the highest buffer moved to the front, within a
/// bound on time. If it still exceeds it by 10 %, random moves improve the best order.
std::size_t plan_memory(const std::vector<Lifetime>& lifetimes, std::vector<std::size_t>& offsets,
                        std::size_t alignment = 64);

/// The maximum of bytes alive at the same time: no arena can be smaller.
std::size_t most_alive(const std::vector<Lifetime>& lifetimes);

}  // namespace sardonyx
