// Internal to fuse/: matrix products with the same left operand become one.
#pragma once
#include "fuse/schedule.h"
#include "graph/graph.h"

namespace sardonyx {

/// Products of one tensor with several constant matrices (the query, key and value projections of attention, gate and
/// up of a gated feed-forward) become one product with the matrices side by side; the results become slices of its
/// output. Constant biases that are added to each are merged too.
void merge_matmuls(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
