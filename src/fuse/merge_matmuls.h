// Internal to fuse/: GEMMs with the same left operand become one.
#pragma once
#include "fuse/schedule.h"
#include "graph/graph.h"

namespace sardonyx {

/// GEMMs of one tensor with several constant matrices (the query, key and value projections of attention, gate and up
/// of a gated feed-forward layer) become one GEMM with the matrices concatenated along N; the results become slices of
/// its output. Constant biases that are added to each are merged too.
void merge_matmuls(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
