// Internal to fuse/: kernels that compute several values row by row (softmax, normalisation).
#pragma once
#include <unordered_set>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx {

struct RowKernel {
  LoopKernel kernel;
  std::vector<Node*> nodes;
};

/// Groups each reduction with the loops before and after it that work on the same rows: softmax, normalisation,
/// residual additions. `taken`: nodes that are part of other kernels.
std::vector<RowKernel> find_row_kernels(Graph& g, const std::unordered_set<const Node*>& taken,
                                        const FuseOptions& options);

}  // namespace sardonyx
