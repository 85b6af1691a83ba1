// Internal to fuse/: kernels that compute several values row by row.
#pragma once
#include <unordered_set>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx {

struct RowGroup {
  LoopKernel kernel;
  std::vector<Node*> nodes;
};

/// Groups each reduction with the loops around it that work on the same rows: softmax, normalisation, their residual
/// additions.
std::vector<RowGroup> find_rows(Graph& g, const std::unordered_set<const Node*>& taken);

}  // namespace sardonyx
