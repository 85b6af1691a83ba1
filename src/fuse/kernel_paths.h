// Internal to fuse/: whether nodes can share a kernel without a kernel that depends on itself.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// Kernels that have been formed of a graph's nodes so far, and paths between them.
class KernelPaths {
 public:
  explicit KernelPaths(const Graph& g);

  /// The node's place in the graph.
  int position(const Node* n) const { return position_.at(n); }

  /// All of a kernel's results are there when it ends, and none before: paths lead from each of its inputs to each of
  /// its results.
  void add(const std::vector<Node*>& kernel);

  /// True if a path leads from one of these nodes to another through a node that is not one of them. A kernel of these
  /// nodes would then depend on itself.
  bool leave_and_return(const std::vector<const Node*>& nodes) const;

 private:
  struct Kernel {
    std::vector<Node*> nodes;
    int first, last;
  };

  const Graph& g_;
  std::unordered_map<const Node*, int> position_;
  std::unordered_map<const Node*, std::size_t> kernel_of_;
  std::vector<Kernel> kernels_;
};

}  // namespace sardonyx
