// See peel_reductions.h.
#include "fuse/peel_reductions.h"

#include <optional>
#include <vector>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// A condition r < end of a reduction's variable, where `end` is the same for all terms.
struct Bound {
  Expr condition, end;
};

// The bounds of r that select something in a reduction's body.
std::vector<Bound> bounds_of(const Expr& body, const Expr& r) {
  std::vector<Bound> found;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kSelect || x->args[0]->op != Op::kLt) return;
    const Expr &c = x->args[0], left = c->args[0];
    Expr factor, end;
    if (left->dtype != DType::kInt64 || left->has_load || c->args[1]->has_load) return;
    if (idx::split_affine(idx::sub(c->args[1], left), r, factor, end) && is_const(factor, -1) && !end->has_var)
      found.push_back({c, end});
  });
  return found;
}

// The body for terms for which the condition holds, or does not hold.
Expr where(const Expr& body, const Expr& condition, bool holds) {
  return rewrite(body, [&](const Expr& x) -> Expr {
    if (x->op != Op::kSelect || !same(x->args[0], condition)) return Expr();
    return where(x->args[holds ? 1 : 2], condition, holds);
  });
}

// `term`, `count` times, under a reduction of this kind; empty if that takes more than an operation.
Expr repeated(ReduceKind kind, const Expr& term, const Expr& count) {
  if (is_const(count, 1) || kind == ReduceKind::kMax || kind == ReduceKind::kMin) return term;
  if (kind != ReduceKind::kSum || !is_float(term->dtype)) return Expr();
  return binary(Op::kMul, term, cast(count, term->dtype));
}

std::optional<Op> operation_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return Op::kAdd;
    case ReduceKind::kProd:
      return Op::kMul;
    case ReduceKind::kMax:
      return Op::kMax;
    case ReduceKind::kMin:
      return Op::kMin;
    default:
      return {};
  }
}

// The reduction without the terms on one side of the bound; empty if those differ.
Expr without_side(const Expr& reduction, const Bound& bound, bool first) {
  const auto kind = static_cast<ReduceKind>(reduction->i);
  const Expr &r = reduction->vars[0], &body = reduction->args[0], rest = idx::sub(r->args[0], bound.end);
  // The equal terms must be there for all sizes: an extreme of others would count one that is not. The others may be
  // none.
  std::int64_t count = 0;
  if (!is_const_int(first ? bound.end : rest, count) || count < 1 ||
      !idx::provably_nonnegative(first ? rest : bound.end))
    return Expr();
  const Expr equal = where(body, bound.condition, first);
  if (mentions(equal, r)) return Expr();
  const Expr one = repeated(kind, equal, first ? bound.end : rest);
  if (!one) return Expr();
  const Expr left = loop_var(first ? rest : bound.end);
  const Expr others = substitute(where(body, bound.condition, !first), {{r, first ? left + bound.end : left}});
  return binary(*operation_of(kind), reduce(kind, {left}, others), one);
}

// Empty if the reduction stays.
Expr peeled(const Expr& e) {
  if (!operation_of(static_cast<ReduceKind>(e->i)) || e->vars.size() != 1 || e->args[0]->has_reduce) return Expr();
  for (const Bound& bound : bounds_of(e->args[0], e->vars[0]))
    for (const bool first : {false, true})
      if (const Expr y = without_side(e, bound, first)) return y;
  return Expr();
}

Expr peel(const Expr& e) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->op != Op::kReduce) return Expr();
    const Expr y = peeled(x);
    return y ? peel(y) : Expr();
  });
}

}  // namespace

void peel_reductions(Graph& g) {
  for (const auto& n : g.nodes) {
    auto* l = n->as<LoopOp>();
    if (!l || !l->body->has_reduce) continue;
    l->body = peel(l->body);
    refresh_inputs(*n);
  }
}

}  // namespace sardonyx
