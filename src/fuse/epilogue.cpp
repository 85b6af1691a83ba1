// A tile kernel takes up the loop behind it if that loop is the only user of its result, reads it at the very position
// it writes, and the device can evaluate it there.
#include "fuse/epilogue.h"

#include <algorithm>

#include "fuse/graph_util.h"

namespace sardonyx {
namespace {

// All loads of `t` in the body are at the loop's own position (the same row-major offset); with `pairs`, at the two
// that are twice that and the next.
bool reads_in_place(const LoopOp& l, const Value* t, const Value* out, bool pairs = false) {
  const Expr here = idx::linearize(l.vars, out->shape);
  bool ok = true, any = false;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    const Value* s = storage_of(const_cast<Value*>(x->value));
    if (s != t) return;
    any = true;
    const Expr at = idx::linearize(x->args, x->value->shape);
    if (pairs)
      ok &= idx::provably_equal(at, here * Expr(2)) || idx::provably_equal(at, here * Expr(2) + 1);
    else
      ok &= idx::provably_equal(at, here);
  });
  return ok && any;
}

}  // namespace

std::vector<Epilogue> find_epilogues(Graph& g, const FuseOptions& options) {
  std::vector<Epilogue> found;
  std::unordered_map<const Value*, std::vector<Node*>> users;  // by storage, views not counted
  for (const auto& n : g.nodes) {
    if (n->as<ViewOp>()) continue;
    for (Value* v : n->inputs) {
      auto& list = users[storage_of(v)];
      if (std::find(list.begin(), list.end(), n.get()) == list.end()) list.push_back(n.get());
    }
  }
  std::unordered_set<const Value*> outputs;
  for (Value* v : g.outputs) outputs.insert(storage_of(v));
  const auto constants = constant_nodes(g);
  std::unordered_set<const Node*> taken;  // a sum of two convolutions melts into one of them
  for (const auto& n : g.nodes) {
    if (!(n->as<MatMulOp>() || n->as<ConvOp>() || n->as<AttentionOp>()) || constants.count(n.get())) continue;
    Value* t = n->outputs[0];
    Epilogue e;
    e.kernel.node = n.get();
    e.kernel.out = t;
    for (const Expr& d : t->shape) e.kernel.vars.push_back(loop_var(d));
    Expr here = idx::linearize(e.kernel.vars, t->shape);
    Value* current = t;
    while (!outputs.count(current) && users[current].size() == 1) {
      Node* next = users[current][0];
      const auto* l = next->as<LoopOp>();
      if (!l || taken.count(next) || l->body->has_reduce) break;
      const Value* out = next->outputs[0];
      if (options.pair_products && n->as<MatMulOp>() && current == t && out->rank() == t->rank() &&
          idx::provably_equal(t->shape.back(), out->shape.back() * Expr(2)) &&
          idx::provably_equal(t->elements(), out->elements() * Expr(2)) && reads_in_place(*l, t, out, true)) {
        TileKernel pair = e.kernel;
        pair.pairs = true;
        pair.out = next->outputs[0];
        pair.vars = l->vars;
        pair.epilogue = l->body;
        if (!options.accepts_epilogue || !options.accepts_epilogue(pair)) break;
        e.kernel = pair;
        e.loops.push_back(next);
        taken.insert(next);
        current = pair.out;
        here = idx::linearize(pair.vars, current->shape);
        continue;
      }
      if (!idx::provably_equal(current->elements(), out->elements()) || !reads_in_place(*l, current, out)) break;
      // The loop's body in terms of the tile's own variables; the result so far in place of its loads.
      const Exprs at = idx::delinearize(here, next->outputs[0]->shape);
      std::vector<std::pair<Expr, Expr>> r;
      for (std::size_t k = 0; k < l->vars.size(); ++k) r.emplace_back(l->vars[k], at[k]);
      const Expr so_far = e.kernel.epilogue ? e.kernel.epilogue : load(t, t->dtype, e.kernel.vars);
      const Expr body = rewrite(substitute(l->body, r), [&](const Expr& x) -> Expr {
        if (!x->has_load) return x;
        if (x->op == Op::kLoad && storage_of(const_cast<Value*>(x->value)) == current) return so_far;
        return Expr();
      });
      TileKernel longer = e.kernel;
      longer.epilogue = body;
      longer.out = next->outputs[0];
      if (!options.accepts_epilogue || !options.accepts_epilogue(longer)) break;
      e.kernel = longer;
      e.loops.push_back(next);
      taken.insert(next);
      current = longer.out;
    }
    if (!e.loops.empty()) found.push_back(std::move(e));
  }
  return found;
}

}  // namespace sardonyx
