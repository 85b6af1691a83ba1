// Tilings of kernels/stream.h: products of one row on Hopper whose weights are constants.
#pragma once
#include <cstdint>
#include <optional>

#include "codegen/kernel_family.h"

namespace sardonyx::codegen {

/// A product: the bits of its weights, of which those of 4 or 8 have one scale for `of_scale` times 16 bytes; whether
/// it is of float16 (not bfloat16).
struct StreamProduct {
  int bits = 16;
  bool half = true;
  int of_scale = 0;
  std::int64_t columns = 0, depth = 0;
  bool scales_follow = false;  ///< a column's scales lie right behind those of the column before it
};

/// For one row, on a chip with TMA. Empty where columns are no whole pieces of stages, the row leaves no room for
/// weights, or a kernel that has no ring buffer reads the weights as fast.
std::optional<KernelCandidate> stream_candidate(const Chip& chip, const StreamProduct& product);

}  // namespace sardonyx::codegen
