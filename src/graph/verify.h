// Checks that a graph is valid: what every pass may rely on and must preserve.
#pragma once
#include <string>
#include <unordered_set>

#include "graph/graph.h"

namespace sardonyx {

/// The first fault of a graph, as "node 12 'add1 (Add)': what is wrong", or "" if there is none. Checked are
/// - order: values and symbols are defined before use, and no removed node's value is used;
/// - uses: a node's inputs are what its expressions load;
/// - types: loads, bodies and outputs agree in element type;
/// - shapes: ranks, the extents of loop variables, constant indices that are not guarded by a select;
/// - variables: expressions contain only variables of their node and of reductions around them;
/// - structure: producers, output indices, contents, storage orders, numbers of inputs and outputs;
/// - nested graphs, by the same rules.
/// `fused`: loops that are part of a tile kernel; they may list as inputs what the kernel's epilogue loads in their
/// place. Outermost graphs only.
std::string verify(const Graph& g, const std::unordered_set<const Node*>& fused = {});

}  // namespace sardonyx
