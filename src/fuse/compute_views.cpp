// See compute_views.h.
#include "fuse/compute_views.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {

int quotients(const Expr& e) {
  int n = 0;
  visit(e, [&](const Expr& x) { n += x->op == Op::kFloorDiv || x->op == Op::kMod; });
  return n;
}

int quotients(const Exprs& index) {
  int n = 0;
  for (const Expr& i : index) n += quotients(i);
  return n;
}

// The index into `source` of the element `index` of its view v. The index lies within v's shape, but that may follow
// only from a condition around the load (a window that reaches outside of an image), so divisions remain that cannot
// be simplified. They can be for a variable of the dim's extent, which stands in for the index here.
Exprs viewed_index(const Exprs& index, const Value& v, const Value& source) {
  Exprs direct = idx::delinearize(idx::linearize(index, v.shape), source.shape);
  if (quotients(direct) == 0) return direct;
  Exprs stand_ins;
  std::vector<std::pair<Expr, Expr>> to;
  for (std::size_t k = 0; k < index.size(); ++k) {
    stand_ins.push_back(loop_var(v.shape[k]));
    to.emplace_back(stand_ins.back(), index[k]);
  }
  Exprs within = idx::delinearize(idx::linearize(stand_ins, v.shape), source.shape);
  for (Expr& e : within) e = substitute(e, to);
  return quotients(within) < quotients(direct) ? within : direct;
}

// The body of `l`, which computes `source`, over `vars` of a view of it.
Expr viewed_body(const LoopOp& l, const Value& source, const Value& view, const Exprs& vars) {
  const Exprs at = idx::delinearize(idx::linearize(vars, view.shape), source.shape);
  std::vector<std::pair<Expr, Expr>> to;
  for (std::size_t k = 0; k < at.size(); ++k) to.emplace_back(l.vars[k], at[k]);
  return substitute(l.body, to);
}

Expr with_loads_through_views(const Expr& body) {
  return rewrite(body, [](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    return x->op == Op::kLoad ? through_views(x) : Expr();
  });
}

}  // namespace

Expr through_views(const Expr& e) {
  const Value* v = e->value;
  Exprs i = e->args;
  while (v->producer && v->producer->as<ViewOp>()) {
    const Value* source = v->producer->inputs[0];
    i = viewed_index(i, *v, *source);
    v = source;
  }
  return v == e->value ? e : load(v, e->dtype, i);
}

void compute_view(Node& view) {
  const Value& source = *view.inputs[0];
  const Node& producer = *source.producer;
  const Exprs vars = vars_of(view.outputs[0]->shape);
  Expr body = viewed_body(*producer.as<LoopOp>(), source, *view.outputs[0], vars);
  view.origin = join_origins(producer.origin, view.origin);
  view.op = LoopOp{vars, std::move(body)};
  refresh_inputs(view);
}

void compute_views(Graph& g, const FuseOptions&) {
  const Uses uses = uses_of(g);
  const auto required = required_values(g);
  const auto constants = constant_nodes(g);
  for (const auto& n : g.nodes) {
    if (!n->as<ViewOp>()) continue;
    const Value *source = n->inputs[0], *view = n->outputs[0];
    const Node* p = source->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || l->body->has_reduce || source->graph != &g || constants.count(p) || uses.at(source).size() != 1 ||
        source->dtype != view->dtype || required.count(source))
      continue;
    const int before = quotients(with_loads_through_views(l->body));
    if (before == 0) continue;
    const Expr after = with_loads_through_views(viewed_body(*l, *source, *view, vars_of(view->shape)));
    if (quotients(after) < before) compute_view(*n);
  }
  remove_dead_nodes(g);
}

}  // namespace sardonyx
