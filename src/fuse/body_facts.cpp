// See body_facts.h.
#include "fuse/body_facts.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {

int cost_of(const Expr& x) {
  if (x->op == Op::kConst || x->op == Op::kVar || x->op == Op::kSym || x->op == Op::kLoad || x->op == Op::kSelect)
    return 0;
  const bool logical =
      (x->op >= Op::kEq && x->op <= Op::kGe) || x->op == Op::kAnd || x->op == Op::kOr || x->op == Op::kNot;
  if (!x->has_load && (logical || x->dtype == DType::kInt64)) return 0;
  const bool function = x->op >= Op::kExp && x->op <= Op::kSigmoid && x->op != Op::kReciprocal && x->op != Op::kSqrt;
  return function || x->op == Op::kPow || x->op == Op::kRandom ? 10 : 1;
}

BodyFacts facts_of(const Expr& e) {
  BodyFacts f;
  visit(e, [&](const Expr& x) {
    const int cost = cost_of(x);
    ++f.nodes;
    f.loads += x->op == Op::kLoad;
    f.cost += cost;
    if (cost > 0 && x->dtype != DType::kInt64) f.movement = false;
  });
  return f;
}

Expr splat_of(const Value* v) {
  if (!v->content || v->content->empty()) return Expr();
  for (const Expr& e : *v->content)
    if (!is_const(e) || !same(e, v->content->front())) return Expr();
  return v->content->front();
}

Expr known_element(const Value& v, const Exprs& index) {
  if (!v.content || v.content->empty()) return Expr();
  std::int64_t at = 0;
  for (std::size_t k = 0; k < index.size(); ++k) {
    std::int64_t c, d;
    if (!is_const_int(index[k], c) || !is_const_int(v.shape[k], d) || c < 0 || c >= d) return Expr();
    at = at * d + c;
  }
  return (*v.content)[static_cast<std::size_t>(at)];
}

bool reads_one_part(const LoopOp& l, const Exprs& at) {
  if (std::none_of(at.begin(), at.end(), [](const Expr& i) { return is_const(i); })) return false;
  std::vector<std::pair<Expr, Expr>> to;
  for (std::size_t k = 0; k < at.size(); ++k) to.emplace_back(l.vars[k], at[k]);
  return facts_of(substitute(l.body, to)).loads <= 1;
}

bool expands_constant(const LoopOp& l, const BodyFacts& f, const Value& v) {
  if (!(f.movement && f.loads == 1)) return false;
  std::int64_t small = 0, large = 0;
  const Expr es = loads_of(l.body)[0]->elements(), el = v.elements();
  return is_const_int(es, small) && is_const_int(el, large) && small < large;
}

}  // namespace sardonyx
