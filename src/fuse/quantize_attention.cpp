// See quantize_attention.h.
#include "fuse/quantize_attention.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "fuse/reorder.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// The load of attention's result, if the body reads one element of it; empty otherwise.
Expr load_of_attention(const LoopOp& l) {
  Expr found;
  bool ok = !l.body->has_reduce;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<AttentionOp>()) return;
    ok &= !found || same(x, found);
    found = x;
  });
  return ok && found && found->value->rank() == static_cast<int>(found->args.size()) ? found : Expr();
}

// The order of the value's dims in which the loop reads all of its elements, one after another; nothing if it does not.
std::optional<Order> order_of(const LoopOp& l, const Value& out, const Expr& x) {
  if (x->args.size() > 5 || !idx::provably_equal(out.elements(), x->value->elements())) return {};
  const Expr here = idx::linearize(l.vars, out.shape);
  Order order(x->args.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    if (idx::provably_equal(idx::linearize(permuted(x->args, order), permuted(x->value->shape, order)), here))
      return order;
  } while (std::next_permutation(order.begin(), order.end()));
  return {};
}

}  // namespace

void quantize_attention(Graph& g, const FuseOptions& options) {
  const auto required = required_values(g);
  const Uses uses = uses_of(g);
  const std::size_t count = g.nodes.size();
  bool changed = false;
  for (std::size_t k = 0; k < count; ++k) {
    Node& n = *g.nodes[k];
    auto* l = n.as<LoopOp>();
    const DType type = l ? n.outputs[0]->dtype : DType::kBool;
    if (!l || size_of(type) != 1 || type == DType::kBool) continue;
    const Expr x = load_of_attention(*l);
    auto* v = x ? const_cast<Value*>(x->value) : nullptr;
    if (!v || v->graph != &g || required.count(v) || uses.at(v).size() != 1) continue;
    const auto order = order_of(*l, *n.outputs[0], x);
    if (!order) {
      remark(options, "quantize_attention", n.origin,
             [] { return std::string("it reads attention's result in an order that is no transpose"); });
      continue;
    }
    if (std::is_sorted(order->begin(), order->end())) continue;  // an epilogue as it is
    g.origin = n.origin;
    const Exprs vars = vars_of(v->shape);
    const Exprs here =
        idx::delinearize(idx::linearize(permuted(vars, *order), permuted(v->shape, *order)), n.outputs[0]->shape);
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t d = 0; d < here.size(); ++d) to.emplace_back(l->vars[d], here[d]);
    const Expr body = substitute(
        rewrite(l->body, [&](const Expr& e) -> Expr { return same(e, x) ? load(v, v->dtype, vars) : Expr(); }), to);
    Value* bytes = g.add_loop(vars, body);
    // From the order of dims to the dim's place in it.
    Exprs moved = permuted(vars_of(v->shape), *order), at(moved.size());
    for (std::size_t d = 0; d < moved.size(); ++d) at[(*order)[d]] = moved[d];
    Value* transposed = g.add_loop(moved, load(bytes, type, at));
    n.op = ViewOp{};
    n.inputs = {transposed};
    changed = true;
  }
  g.origin.clear();
  if (changed) sort_nodes(g);
}

}  // namespace sardonyx
