// See narrow_stores.h.
#include "fuse/narrow_stores.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Each element of v is read where the loop stores it, and no other is.
bool reads_each_once(const LoopOp& l, const Expr& read, const Value* out) {
  return idx::provably_equal(read->value->elements(), out->elements()) &&
         std::ranges::all_of(l.vars, [&](const Expr& var) {
           return is_const(var->args[0], 1) ||
                  std::ranges::any_of(read->args, [&](const Expr& i) { return same(i, var); });
         });
}

}  // namespace

void narrow_stores(Graph& g) {
  const std::unordered_set<const Node*> constants = constant_nodes(g);
  const Uses uses = uses_of(g);
  std::unordered_set<const Value*> needed = required_values(g);
  for (Value* v : g.outputs) needed.insert(storage_of(v));
  for (const auto& n : g.nodes) {
    auto* to = n->as<LoopOp>();
    if (!to || to->body->op != Op::kCast || to->body->args[0]->op != Op::kLoad || constants.count(n.get())) continue;
    const Expr read = to->body->args[0];
    auto* v = const_cast<Value*>(read->value);
    auto* from = v->graph == &g && v->producer ? v->producer->as<LoopOp>() : nullptr;
    if (!from || needed.count(v) || !is_float(v->dtype) || !is_float(to->body->dtype) ||
        size_of(to->body->dtype) >= size_of(v->dtype) || uses.at(v).size() != 1 ||
        !reads_each_once(*to, read, n->outputs[0]))
      continue;
    from->body = cast(from->body, to->body->dtype, static_cast<int>(to->body->i));
    v->dtype = to->body->dtype;
    to->body = load(v, v->dtype, read->args);
  }
}

}  // namespace sardonyx
