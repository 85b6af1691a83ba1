// Grouping: which nodes share a kernel.
#pragma once
#include <memory>
#include <vector>

#include "fuse/epilogues.h"
#include "fuse/schedule.h"

namespace sardonyx {

/// Nodes that form one step.
struct Group {
  std::vector<Node*> nodes;
  Step step;         ///< its `op`, `origin`, `reads` and `writes` are filled in
  int position = 0;  ///< of its last node in the graph; steps keep this order where dependencies allow
};

/// Divides the graph's nodes (constants and views excepted, which need no step) into groups: tile kernels with their
/// epilogues, row kernels (fuse/row_kernels.h), and single nodes. Fuses the graphs nested in IfOp and WhileOp.
std::vector<std::unique_ptr<Group>> group_nodes(Graph& g, std::vector<Epilogue>& epilogues, const FuseOptions& options);

/// Puts groups into an order in which all values and symbols are defined before use, and separates those that depend
/// only on constants. Throws Error(kInternal) if groups depend on each other in a cycle.
Schedule schedule_groups(Graph& g, std::vector<std::unique_ptr<Group>> groups);

}  // namespace sardonyx
