// What nested graphs (bodies of IfOp and WhileOp) use of the graphs around them.
#include <unordered_set>

#include "graph/graph.h"

namespace sardonyx {
namespace {

bool defined_in(const Value* v, const Graph& g) {
  for (const Graph* at = v->graph; at; at = at->parent())
    if (at == &g) return true;
  return false;
}

}  // namespace

std::vector<Value*> captured_values(const Graph& nested) {
  std::vector<Value*> out;
  std::unordered_set<const Value*> seen;
  auto use = [&](Value* v) {
    if (!defined_in(v, nested) && seen.insert(v).second) out.push_back(v);
  };
  for (const auto& n : nested.nodes)
    for (Value* v : n->inputs) use(v);  // a nested IfOp or WhileOp lists what it captures among its inputs
  for (Value* v : nested.outputs) use(v);
  return out;
}

}  // namespace sardonyx
