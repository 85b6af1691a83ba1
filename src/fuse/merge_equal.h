// Common subexpression elimination over nodes.
#pragma once
#include <unordered_set>

#include "graph/graph.h"

namespace sardonyx {

/// Redirects uses of a node's outputs to an earlier node that computes the same: loops, matmuls, convolutions, routines
/// and views. Nodes without uses are removed. Values that nested graphs use are left alone, and those in `kept`, which
/// something beside the graph reads.
void merge_equal_nodes(Graph& g, const std::unordered_set<const Value*>& kept = {});

}  // namespace sardonyx
