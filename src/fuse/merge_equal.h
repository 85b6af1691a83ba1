// Common subexpressions: nodes that compute the same from the same become one.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Redirects uses of a node's outputs to those of an earlier node that computes the same: loops, products,
/// convolutions, attention, routines and views. Nodes left without use stay for remove_dead_nodes(). What nested graphs
/// use of this one is left alone.
void merge_equal_nodes(Graph& g);

}  // namespace sardonyx
