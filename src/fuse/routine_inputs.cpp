// See routine_inputs.h. The routine is the only user of such a loop, so that no path from one to the other leads
// through another kernel: the two can always be one step.
#include "fuse/routine_inputs.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// How often each value is read in memory: by nodes, also as a view, and as a result of the graph.
std::unordered_map<const Value*, int> reads_of(const Graph& g) {
  std::unordered_map<const Value*, int> reads;
  for (const auto& n : g.nodes) {
    if (n->as<ViewOp>()) continue;
    for (const Value* v : n->inputs) ++reads[storage_of(v)];
  }
  for (const Value* v : g.outputs) ++reads[storage_of(v)];
  return reads;
}

}  // namespace

RoutineInputs find_routine_inputs(Graph& g, const std::unordered_set<const Node*>& taken, const FuseOptions& options) {
  RoutineInputs found;
  if (options.disabled || !options.computes_input) return found;
  std::unordered_map<const Value*, int> reads = reads_of(g);
  const std::unordered_set<const Node*> constants = constant_nodes(g);
  for (const auto& n : g.nodes) {
    if (!n->as<RoutineOp>() || taken.count(n.get())) continue;
    RoutineInputs::Routine r;
    r.step.node = n.get();
    for (std::size_t k = 0; k < n->inputs.size(); ++k) {
      Value* v = storage_of(n->inputs[k]);
      Node* loop = v->producer;
      const auto* l = loop ? loop->as<LoopOp>() : nullptr;
      if (!l || v->graph != &g || taken.count(loop) || constants.count(loop) || !v->storage_order.empty()) continue;
      std::string why;
      const bool takes = options.computes_input(*n, k, *loop, why), fill = !l->body->has_load && !l->body->has_reduce;
      if (takes && !fill && reads.at(v) > 1) why = "others read it too";
      if (!why.empty())
        remark(options, "groups", loop->origin,
               [&] { return fmt::format("not computed by '{}', which reads it: {}", n->origin, why); });
      if (!takes || !why.empty()) continue;
      if (!fill)
        r.nodes.push_back(loop);
      else if (--reads.at(v) == 0)
        found.unread.insert(loop);
      r.step.computed.push_back({k, Stage{v, l->vars, l->vars, l->body}});
    }
    if (r.step.computed.empty()) continue;
    r.nodes.push_back(n.get());
    found.routines.push_back(std::move(r));
  }
  return found;
}

}  // namespace sardonyx
