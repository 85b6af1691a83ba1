#include "fuse/kernel_paths.h"

#include <algorithm>
#include <climits>
#include <unordered_set>

namespace sardonyx {

KernelPaths::KernelPaths(const Graph& g) : g_(g) {
  for (const auto& n : g.nodes) position_[n.get()] = static_cast<int>(position_.size());
}

void KernelPaths::add(const std::vector<Node*>& kernel) {
  Kernel k{kernel, INT_MAX, 0};
  for (const Node* n : kernel) {
    kernel_of_[n] = kernels_.size();
    k.first = std::min(k.first, position(n));
    k.last = std::max(k.last, position(n));
  }
  kernels_.push_back(std::move(k));
}

bool KernelPaths::leave_and_return(const std::vector<const Node*>& nodes) const {
  const std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
  int first = INT_MAX;
  for (const Node* n : nodes) first = std::min(first, position(n));
  // Nothing before leads to the nodes. But to a kernel with parts on both sides of this place, whatever its first part
  // leads to, its last part leads to as well.
  for (bool moved = true; moved;) {
    moved = false;
    for (const Kernel& k : kernels_)
      if (k.last >= first && k.first < first) {
        first = k.first;
        moved = true;
      }
  }
  std::vector<const Node*> stack;
  std::unordered_set<const Node*> seen;
  bool returns = false;
  const auto push_inputs = [&](const Node* n, bool from_inside) {
    for (const Value* v : n->inputs) {
      const Node* p = v->graph == &g_ ? v->producer : nullptr;
      if (!p || position(p) < first) continue;
      if (inside.count(p))
        returns |= !from_inside;
      else if (seen.insert(p).second)
        stack.push_back(p);
    }
  };
  for (const Node* n : nodes) push_inputs(n, true);
  while (!stack.empty() && !returns) {
    const Node* n = stack.back();
    stack.pop_back();
    push_inputs(n, false);
    const auto kernel = kernel_of_.find(n);
    if (kernel == kernel_of_.end()) continue;
    for (const Node* other : kernels_[kernel->second].nodes)
      if (seen.insert(other).second) stack.push_back(other);
  }
  return returns;
}

}  // namespace sardonyx
