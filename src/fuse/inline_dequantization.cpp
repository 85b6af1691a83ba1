// See inline_dequantization.h.
#include "fuse/inline_dequantization.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxNodes = 80;  // of a body that is evaluated for each element that is read

Expr inlined(const Expr& e, Node& user) {
  if (e->op != Op::kLoad || !e->value->producer || e->value->graph != user.outputs[0]->graph) return e;
  const Node& p = *e->value->producer;
  if (!is_dequantization(p)) return e;
  const auto* l = p.as<LoopOp>();
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < e->args.size(); ++k) r.emplace_back(l->vars[k], e->args[k]);
  user.origin = join_origins(p.origin, user.origin);
  return substitute(l->body, r);
}

}  // namespace

bool is_dequantization(const Node& n) {
  const auto* l = n.as<LoopOp>();
  if (!l || l->body->has_reduce || !is_float(n.outputs[0]->dtype)) return false;
  std::size_t nodes = 0;
  visit(l->body, [&](const Expr&) { ++nodes; });
  std::int64_t out = 0, in = 0;
  if (nodes > kMaxNodes || !is_const_int(n.outputs[0]->elements(), out)) return false;
  for (const Value* v : loads_of(l->body)) {
    std::int64_t count = 0;
    if (!is_const_int(v->elements(), count)) return false;
    in += count * static_cast<std::int64_t>(size_of(v->dtype));
  }
  return in > 0 && out * static_cast<std::int64_t>(size_of(n.outputs[0]->dtype)) * 10 > in * 15;
}

void inline_dequantization(Graph& g) {
  for (const auto& n : g.nodes) {
    auto* m = n->as<MatMulOp>();
    if (!m) continue;
    m->a = inlined(m->a, *n);
    m->b = inlined(m->b, *n);
    refresh_inputs(*n);
  }
  remove_dead_nodes(g);
}

}  // namespace sardonyx
