// Where the temporaries of a block lie in one arena.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace sardonyx {

/// Where temporaries lie in the arena for given values of the symbols.
struct ArenaPlan {
  std::vector<std::pair<int, std::size_t>> offsets;  ///< buffer, offset in bytes
  std::size_t total = 0;                             ///< bytes
  std::size_t live = 0;                              ///< the most bytes that are needed at a time: no arena is smaller
  /// Temporaries whose size is known only in the course of a run; they are allocated when they are written.
  int unplanned = 0;
};

/// A buffer's life: written first in step `first`, read last in step `last`.
struct Lifetime {
  int buffer = 0;
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Offsets (multiples of `alignment`) in lifetimes' order so that buffers that live at the same time don't overlap;
/// returns the arena's size. Greedy by size: each buffer, largest first, goes to the smallest gap between those already
/// placed that live at the same time (the "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep
/// Neural Net Inference", 2020). Where that takes 2 % more than most_alive(), other orders are tried: by bytes times
/// steps, by steps, by first step, and what ended highest first, as often as that is quick; where it still takes 10 %
/// more, small changes of the best order that leave less beyond that.
std::size_t plan_memory(const std::vector<Lifetime>& lifetimes, std::vector<std::size_t>& offsets,
                        std::size_t alignment = 64);

/// The most bytes that live at a time: no arena could be smaller.
std::size_t most_alive(const std::vector<Lifetime>& lifetimes);

}  // namespace sardonyx
