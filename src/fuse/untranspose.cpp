// See untranspose.h.
#include "fuse/untranspose.h"

#include <algorithm>
#include <unordered_map>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

/// For each dim of a GEMM's result, the loop's variable that indexes it.
using Order = std::vector<std::size_t>;

// The order in which the loop reads the results of GEMMs whose only reader it is; empty if there are none, if orders
// differ, or if it is the loop's own order.
Order order_of(const LoopOp& l, const Uses& uses) {
  Order order;
  bool ok = true;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<MatMulOp>()) return;
    const auto readers = uses.find(x->value);
    ok &= x->args.size() == l.vars.size() && readers != uses.end() && readers->second.size() == 1;
    Order here;
    for (const Expr& a : x->args) {
      const auto at = std::find_if(l.vars.begin(), l.vars.end(), [&](const Expr& v) { return same(v, a); });
      ok &= at != l.vars.end();
      here.push_back(static_cast<std::size_t>(at - l.vars.begin()));
    }
    ok &= order.empty() || order == here;
    order = std::move(here);
  });
  if (!ok || order.empty() || std::is_sorted(order.begin(), order.end())) return {};
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? order : Order();
}

template <class T>
std::vector<T> permuted(const std::vector<T>& of, const Order& order) {
  std::vector<T> out;
  for (const std::size_t k : order) out.push_back(of[k]);
  return out;
}

Expr reindexed(const Expr& e, const std::unordered_map<const Value*, Order>& orders) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    Exprs args;
    for (const Expr& a : x->args) args.push_back(reindexed(a, orders));
    const auto it = orders.find(x->value);
    return load(x->value, x->dtype, it == orders.end() ? std::move(args) : permuted(args, it->second));
  });
}

}  // namespace

void untranspose(Graph& g) {
  const auto required = required_values(g);
  const auto constants = constant_nodes(g);
  const Uses uses = uses_of(g);
  std::unordered_map<const Value*, Order> orders;
  for (const auto& n : g.nodes) {
    auto* l = n->as<LoopOp>();
    if (!l || l->body->has_reduce || constants.count(n.get())) continue;
    Value* v = n->outputs[0];
    const auto readers = uses.find(v);
    if (required.count(v) || v->content || readers == uses.end() ||
        !std::all_of(readers->second.begin(), readers->second.end(), [](const Node* r) { return r->as<LoopOp>(); }))
      continue;
    const Order order = order_of(*l, uses);
    if (order.empty()) continue;
    l->vars = permuted(l->vars, order);
    v->shape = permuted(v->shape, order);
    orders[v] = order;
  }
  if (orders.empty()) return;
  for (const auto& n : g.nodes)
    if (auto* l = n->as<LoopOp>()) l->body = reindexed(l->body, orders);
}

}  // namespace sardonyx
