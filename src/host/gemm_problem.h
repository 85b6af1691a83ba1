// A GemmDesc with its axes merged: the fewest axes that mean the same, so that few kernels serve many models.
#pragma once
#include <cstdint>
#include <vector>

#include "host/gemm.h"

namespace sardonyx::host {

struct GemmProblem {
  /// Batch extents of a, b and the output, all of one rank; a's and b's are 1 where they are broadcast.
  std::vector<std::int64_t> batch_a, batch_b, batch;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;
  /// Extents of each operand of desc.post that has one: batch..., m or 1, n or 1.
  std::vector<std::vector<std::int64_t>> operands;
};

/// Checks that the extents of `desc` fit each other and merges neighbouring axes that every tensor walks alike; batch
/// axes merge into m when b has none of them, so that [B, S, K] * [K, N] is one product of B * S rows.
GemmProblem simplify(const GemmDesc& desc);

}  // namespace sardonyx::host
