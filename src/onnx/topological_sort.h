// The order in which nodes can run.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "onnx/load.h"

namespace sardonyx::onnx {

/// Sorts `nodes` so that each comes after those whose outputs it reads; keeps the given order where it can (nodes that
/// are sorted already stay as they are). captures[i]: names that the nested graphs of nodes[i] read from outside
/// themselves. Kahn's algorithm, always taking the earliest ready node. Throws Error(kInvalidModel) with the nodes on a
/// cycle.
void sort_topologically(std::vector<Node>& nodes, const std::vector<std::vector<std::string>>& captures);

}  // namespace sardonyx::onnx
