// Tilings of kernels/stream.h: GEMMs of one row on Hopper with constant weights.
#pragma once
#include <cstdint>
#include <optional>

#include "codegen/kernel_family.h"

namespace sardonyx::codegen {

/// The GEMM: bits of its weights, of which those of 4 or 8 have one scale per `scale_vectors` vectors of 16 bytes;
/// whether it is in float16 (not bfloat16).
struct StreamGemm {
  int bits = 16;
  bool half = true;
  int scale_vectors = 0;
  std::int64_t columns = 0, depth = 0;
  bool scales_follow = false;  ///< the scales of consecutive columns are contiguous
};

/// For one row, on a chip with TMA. Empty if columns are not a whole number of stages, if the row leaves no shared
/// memory for weights, or if a kernel without a ring buffer reads the weights as fast.
std::optional<KernelCandidate> stream_candidate(const Chip& chip, const StreamGemm& product);

}  // namespace sardonyx::codegen
