// Common subexpression elimination over nodes.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Redirects uses of a node's outputs to an earlier node that computes the same: loops, matmuls, convolutions, routines
/// and views. Nodes without uses are removed. Values that nested graphs use are left alone.
void merge_equal_nodes(Graph& g);

}  // namespace sardonyx
