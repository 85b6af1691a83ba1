// A batched gemm as a loop over its first batch axis, for epilogues that oneDNN cannot fuse into the whole.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "host/tile_kernel.h"

namespace sardonyx::host {

/// How far each buffer moves, in bytes, from one index of the batch axis to the next; 0 where it is broadcast.
struct BatchStep {
  std::int64_t count = 1;
  std::int64_t src = 0, weights = 0, out = 0;
  std::vector<std::int64_t> operands;
};

/// Runs `inner` once for each index.
std::shared_ptr<const TileKernel> make_batch_loop_kernel(std::shared_ptr<const TileKernel> inner, BatchStep step);

}  // namespace sardonyx::host
