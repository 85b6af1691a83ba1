// A GemmDesc with its axes merged to the fewest possible, so that few kernels serve many models.
#pragma once
#include <cstdint>
#include <vector>

#include "host/gemm.h"

namespace sardonyx::host {

struct GemmProblem {
  /// Batch extents of a, b and the output, all of the same rank; 1 where a or b is broadcast.
  std::vector<std::int64_t> batch_a, batch_b, batch;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;
  /// Extents of the operand of each step of desc.post that has one: batch..., m or 1, n or 1.
  std::vector<std::vector<std::int64_t>> operands;
};

/// Checks that the extents of `desc` are consistent, and merges neighbouring axes that all tensors have, or lack, in
/// common. Batch axes merge into m if b has none of them, so that [B, S, K] * [K, N] is one GEMM of B * S rows.
GemmProblem simplify(const GemmDesc& desc);

}  // namespace sardonyx::host
