// The grid of a launch of a custom kernel, for the sizes of a run.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/run_state.h"

namespace sardonyx {

struct GridSizes {
  std::array<std::int64_t, 3> grid{}, block{};
  std::int64_t shared = 0;  ///< bytes
};

/// Throws Error(kInvalidArgument) for sizes that no device can launch.
inline GridSizes grid_sizes(const LaunchStep& l, const RunState& run) {
  constexpr std::int64_t kMostBlocks[] = {INT32_MAX, 65535, 65535}, kMostThreads = 1024, kMostShared = 1 << 20;
  GridSizes s;
  std::int64_t threads = 1;
  for (std::size_t k = 0; k < 3; ++k) {
    s.grid[k] = run.eval(l.grid[k]);
    s.block[k] = run.eval(l.block[k]);
    if (s.grid[k] < 0 || s.grid[k] > kMostBlocks[k])
      fail(ErrorKind::kInvalidArgument, "a custom operator's grid has {} blocks along {}; there are 0 to {}", s.grid[k],
           "xyz"[k], kMostBlocks[k]);
    if (s.block[k] < 1 || s.block[k] > kMostThreads)
      fail(ErrorKind::kInvalidArgument, "a custom operator's block has {} threads along {}; there are 1 to {}",
           s.block[k], "xyz"[k], kMostThreads);
    threads *= s.block[k];
  }
  if (threads > kMostThreads)
    fail(ErrorKind::kInvalidArgument, "a custom operator's block has {} threads; there are at most {}", threads,
         kMostThreads);
  s.shared = run.eval(l.shared);
  if (s.shared < 0 || s.shared > kMostShared)
    fail(ErrorKind::kInvalidArgument, "a custom operator uses {} bytes of shared memory; there are 0 to {}", s.shared,
         kMostShared);
  return s;
}

}  // namespace sardonyx
