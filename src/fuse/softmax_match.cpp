#include "fuse/softmax_match.h"

#include <cmath>
#include <limits>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

Expr strip_casts(Expr e) {
  while (e->op == Op::kCast && is_float(e->dtype) && is_float(e->args[0]->dtype)) e = e->args[0];
  return e;
}

bool reads_gemm(const Expr& e, const Value* t) {
  if (!e->has_load) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kLoad && x->value == t; });
  return found;
}

// The conditions that must all hold for e (or, negated, its opposite) to be true.
void conjuncts(const Expr& e, bool negated, Exprs& out) {
  if (e->op == Op::kNot) return conjuncts(e->args[0], !negated, out);
  if (e->op == (negated ? Op::kOr : Op::kAnd)) {
    for (const Expr& a : e->args) conjuncts(a, negated, out);
    return;
  }
  // |x| <= y, of a window on both sides, holds if both x <= y and -x <= y do.
  const Op small = negated ? Op::kGt : Op::kLe, smaller = negated ? Op::kGe : Op::kLt;
  if ((e->op == small || e->op == smaller) && e->args[0]->op == Op::kAbs && e->args[0]->dtype == DType::kInt64) {
    const Op keeps = e->op == small ? Op::kLe : Op::kLt;
    const Expr& x = e->args[0]->args[0];
    out.push_back(compare(keeps, x, e->args[1]));
    out.push_back(compare(keeps, idx::sub(0, x), e->args[1]));
    return;
  }
  out.push_back(negated ? logical_not(e) : e);
}

// Matches begin <= key or key < end; sets the one that it is.
bool as_limit(const Expr& condition, const Expr& key, Expr& begin, Expr& end) {
  const bool negated = condition->op == Op::kNot;
  const Expr e = negated ? condition->args[0] : condition;
  if (e->op < Op::kLt || e->op > Op::kGe || e->args[0]->dtype != DType::kInt64) return false;
  // As x < 0 or x <= 0.
  const bool greater = (e->op == Op::kGt || e->op == Op::kGe) != negated;
  const bool strict = (e->op == Op::kLt || e->op == Op::kGt) != negated;
  const Expr x = greater ? idx::sub(e->args[1], e->args[0]) : idx::sub(e->args[0], e->args[1]);
  Expr factor, rest;
  if (!idx::split_affine(x, key, factor, rest) || mentions(rest, key)) return false;
  if (is_const(factor, 1))  // key + rest <= 0
    end = strict ? idx::sub(0, rest) : idx::sub(1, rest);
  else if (is_const(factor, -1))  // rest <= key
    begin = strict ? rest + 1 : rest;
  else
    return false;
  return true;
}

// Whether begin <= key < end holds for some key below `count`, for all queries.
bool allows_a_key(const Expr& begin, const Expr& end, const Expr& count) {
  const auto positive = [](const Expr& e) { return idx::provably_nonnegative(idx::sub(e, 1), true); };
  if (end && !positive(end)) return false;
  return !begin || (positive(idx::sub(count, begin)) && (!end || positive(idx::sub(end, begin))));
}

// Applies a mask (scores where `allowed` holds, `low` elsewhere): as limits of the keys, the rest as a bias.
void mask(Scores& s, const Expr& allowed, double low) {
  Exprs all;
  conjuncts(allowed, false, all);
  Expr begin, end, others;
  for (const Expr& c : all) {
    Expr first, last;
    if (as_limit(c, s.key, first, last)) {
      if (first) begin = begin ? idx::max(begin, first) : first;
      if (last) end = end ? idx::min(end, last) : last;
    } else {
      others = others ? logical_and(others, c) : c;
    }
  }
  // A finite number is equivalent to minus infinity if at least one key is allowed.
  const bool infinite = low == -std::numeric_limits<double>::infinity();
  if (!infinite && (others || !allows_a_key(begin, end, s.key->args[0]))) {
    begin = end = Expr();
    others = allowed;
  }
  if (begin) s.begin = s.begin ? idx::max(s.begin, begin) : begin;
  if (end) s.end = s.end ? idx::min(s.end, end) : end;
  if (others)
    s.bias = select(others, s.bias ? s.bias : constant_float(0, DType::kFloat32), constant_float(low, DType::kFloat32));
}

// The value of a floating-point constant.
bool number(const Expr& e, double& v) {
  const Expr x = strip_casts(e);
  if (!is_const(x) || !is_float(x->dtype)) return false;
  v = x->f;
  return true;
}

// Whether e is a constant so low that nothing added to it changes it in its type. `v` gets the lowest float32 for the
// lowest float16, which float32's becomes in graphs of 16 bits.
bool masks(const Expr& e, double& v) {
  if (!number(e, v)) return false;
  if (strip_casts(e)->dtype == DType::kFloat16 && v <= -65504)
    v = std::isinf(v) ? v : double{std::numeric_limits<float>::lowest()};
  return v <= -1e30;
}

// Applies a mask that is added to the scores: 0 where a key is allowed, and where it is not a number so low that, in
// float32, no score added to it changes it. False if it says nothing about the range of keys: then it is a bias.
bool mask_added(Scores& s, const Expr& added) {
  Expr e = strip_casts(added);
  if (e->op == Op::kLoad) {
    e = body_at(e);
    if (!e || e->has_load) return false;
    e = strip_casts(e);
  }
  if (e->op != Op::kSelect) return false;
  double kept = 0, low = 0;
  const bool first = number(e->args[1], kept) && kept == 0;
  if (!first && !(number(e->args[2], kept) && kept == 0)) return false;
  if (!number(e->args[first ? 2 : 1], low) || !(low <= -1e30)) return false;
  const bool finite = !std::isinf(low);
  // Scores that something else made as low would again be equal to the masked ones.
  if (finite && (s.bias || s.begin || s.end)) return false;
  Scores limited = s;
  mask(limited, first ? e->args[0] : logical_not(e->args[0]), low);
  if (!limited.begin && !limited.end) return false;
  s = limited;
  if (finite) s.finite_mask = cast(e, DType::kFloat32);
  return true;
}

// Whether v has as many elements as the scores x, possibly with other dims of extent 1, or as many dims (a mask that is
// broadcast, or divided into windows).
bool as_large(const Value& v, const Value& x) {
  return v.rank() == x.rank() || idx::provably_equal(v.elements(), x.elements());
}

Expr expand(const Expr& e, int depth) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    const Node* p = x->value->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || l->body->has_reduce || depth > 6) return x;
    bool scores = false;  // computed from a matmul, unlike masks
    for (const Value* v : loads_of(l->body))
      scores |= v->producer && (v->producer->as<MatMulOp>() || (v->producer->as<LoopOp>() && as_large(*v, *x->value)));
    if (!scores) return x;
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < l->vars.size(); ++k) r.emplace_back(l->vars[k], x->args[k]);
    return expand(substitute(l->body, r), depth + 1);
  });
}

bool decompose_masked(const Expr& e, const Value* t, Scores& s);

// Strips select(isnan(softmax), 0, softmax), with which exporters make queries whose keys are all masked give zeros;
// `e` itself if it has another form. Scores that are NaN for another reason stay NaN.
Expr without_guard(const Expr& e) {
  if (e->op != Op::kSelect || e->args[0]->op != Op::kIsNaN) return e;
  double zero = 1;
  const Expr tested = strip_casts(e->args[0]->args[0]), kept = strip_casts(e->args[2]);
  if (!number(e->args[1], zero) || zero != 0 || !same(tested, kept)) return e;
  return kept->op == Op::kLoad ? body_at(kept) : kept;
}

// e = reduction, or (op)(reduction, other).
bool reduction_and(const Expr& e, Expr& reduction, Expr& other) {
  other = Expr();
  reduction = e;
  if (e->op == Op::kReduce) return true;
  if (e->args.size() != 2) return false;
  const bool first = e->args[0]->op == Op::kReduce;
  reduction = e->args[first ? 0 : 1];
  other = e->args[first ? 1 : 0];
  return reduction->op == Op::kReduce;
}

}  // namespace

Expr body_at(const Expr& l) {
  const Node* p = l->op == Op::kLoad ? l->value->producer : nullptr;
  const auto* loop = p ? p->as<LoopOp>() : nullptr;
  if (!loop) return Expr();
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < loop->vars.size(); ++k) r.emplace_back(loop->vars[k], l->args[k]);
  return substitute(loop->body, r);
}

Expr expand_scores(const Expr& e) { return expand(e, 0); }

namespace {

// Multiplies scores by what is the same for all keys of a query, as normalised queries and keys are.
bool scale_queries(Scores& s, const Expr& by) {
  if (!s.any_expression || s.begin || s.end || s.softcap != 0 || mentions(by, s.key) || by->has_reduce) return false;
  s.factor = s.factor ? binary(Op::kMul, s.factor, cast(by, DType::kFloat32)) : cast(by, DType::kFloat32);
  if (s.bias) s.bias = binary(Op::kMul, s.bias, cast(by, DType::kFloat32));
  return true;
}

}  // namespace

bool decompose(const Expr& e0, const Value* t, Scores& s) {
  const Expr e = strip_casts(e0);
  if (e->op == Op::kLoad && e->value == t) {
    s.load = e;
    return true;
  }
  double c;
  if (e->op == Op::kSelect && !reads_gemm(e->args[0], t)) return decompose_masked(e, t, s);
  if (e->op == Op::kTanh && s.any_expression) {
    if (!decompose(e->args[0], t, s) || s.bias || s.begin || s.end || s.softcap != 0) return false;
    s.softcap = 1;
    return true;
  }
  if (e->args.size() != 2) return false;
  const bool left = reads_gemm(e->args[0], t), right = reads_gemm(e->args[1], t);
  if (left == right) return false;
  const Expr &x = e->args[left ? 0 : 1], &y = e->args[left ? 1 : 0];
  auto scale_by = [&](double f) {
    if ((s.begin || s.end) && !(f > 0)) return false;
    s.scale *= f;
    s.softcap *= f;
    for (Expr* e : {&s.bias, &s.finite_mask})
      if (*e) *e = binary(Op::kMul, *e, constant_float(f, DType::kFloat32));
    return true;
  };
  switch (e->op) {
    case Op::kMul:
      if (!decompose(x, t, s)) return false;
      return number(y, c) ? scale_by(c) : scale_queries(s, y);
    case Op::kDiv:
      if (!left || !number(y, c) || !decompose(x, t, s)) return false;
      return scale_by(1 / c);
    case Op::kAdd: {
      if (!decompose(x, t, s)) return false;
      if (number(y, c) && c == 0) return true;  // a mask that masks nothing
      if (s.any_expression && mask_added(s, y)) return true;
      if (s.finite_mask) {
        s.bias = s.finite_mask;
        s.begin = s.end = s.finite_mask = Expr();
      }
      const Expr add = cast(y, DType::kFloat32);
      s.bias = s.bias ? binary(Op::kAdd, s.bias, add) : add;
      return true;
    }
    default:
      return false;
  }
}

namespace {

// A masked score: one side of the select is so low that nothing added to it changes it.
bool decompose_masked(const Expr& e, const Value* t, Scores& s) {
  double c;
  for (const int side : {1, 2}) {
    const auto k = static_cast<std::size_t>(side);
    if (!reads_gemm(e->args[k], t) || !masks(e->args[3 - k], c)) continue;
    if (!decompose(e->args[k], t, s)) return false;
    if (s.any_expression) {
      mask(s, side == 1 ? e->args[0] : logical_not(e->args[0]), c);
      return true;
    }
    const Expr kept = s.bias ? s.bias : constant_float(0, DType::kFloat32), masked = constant_float(c, DType::kFloat32);
    s.bias = side == 1 ? select(e->args[0], kept, masked) : select(e->args[0], masked, kept);
    return true;
  }
  return false;
}

// e without casts, with the bodies of loops in place of loads of them.
Expr opened(Expr e) {
  for (int depth = 0; depth < 6; ++depth) {
    e = strip_casts(e);
    const Expr body = body_at(e);
    if (!body || body->has_reduce) break;
    e = body;
  }
  return e;
}

// softmax(s - c) = softmax(s), if c is the same for all keys (often their maximum), and is subtracted from a sink too.
void add_what_is_subtracted(const Expr& key, SoftmaxMatch& found) {
  const Expr e = opened(found.scores);
  if (e->op != Op::kSub || mentions(e->args[1], key)) return;
  if (found.sink) {
    const Expr sink = strip_casts(found.sink);
    if (sink->op != Op::kSub || !same(strip_casts(sink->args[1]), strip_casts(e->args[1]))) return;
    found.sink = cast(sink->args[0], DType::kFloat32);
  }
  found.scores = e->args[0];
}

// Scores with a further column for a sink that a loop stores (the pass peel_reductions leaves those of other loops),
// which are reduced over `column`, less what is the same for all of them.
struct Columns {
  Expr scores, sink, less;
};

// Matches select(column < count, scores, sink) - less.
bool match_columns(const Expr& e, const Expr& column, const Expr& count, Columns& found) {
  Expr joined = opened(e);
  if (joined->op == Op::kSub && !mentions(joined->args[1], column)) {
    found.less = strip_casts(joined->args[1]);
    joined = opened(joined->args[0]);
  }
  if (joined->op != Op::kSelect) return false;
  const Expr& c = joined->args[0];
  if (c->op != Op::kLt || !same(c->args[0], column) || !idx::provably_equal(c->args[1], count)) return false;
  found.scores = joined->args[1];
  found.sink = joined->args[2];
  return !mentions(found.sink, column) && !found.sink->has_reduce;
}

bool same_or_none(const Expr& a, const Expr& b) { return a && b ? same(a, b) : !a && !b; }

// The maximum and the sum over the scores of all keys and a sink in a further column. found.scores, those of the
// result, lose what is subtracted from all columns, which changes nothing.
bool with_sink(const Expr& max_body, const Expr& sum_body, const Expr& key, const Expr& max_load, SoftmaxMatch& found) {
  const Expr &r = max_body->vars[0], &t = sum_body->vars[0], count = key->args[0];
  if (!idx::provably_equal(r->args[0], count + 1) || !idx::provably_equal(t->args[0], count + 1)) return false;
  const Expr exponential = strip_casts(sum_body->args[0]);
  if (exponential->op != Op::kExp) return false;
  const Expr shifted = strip_casts(exponential->args[0]);
  if (shifted->op != Op::kSub || !same(strip_casts(shifted->args[1]), max_load)) return false;
  Columns in_max, in_sum;
  if (!match_columns(max_body->args[0], r, count, in_max) || !match_columns(shifted->args[0], t, count, in_sum))
    return false;
  Expr own = found.scores;
  if (in_max.less) {
    own = opened(own);
    if (own->op != Op::kSub || !same(strip_casts(own->args[1]), in_max.less)) return false;
    own = own->args[0];
  }
  const auto as_key = [&](const Expr& e, const Expr& column) { return expand(substitute(e, {{column, key}}), 0); };
  const Expr scores = strip_casts(as_key(in_max.scores, r));
  if (!same(scores, strip_casts(as_key(in_sum.scores, t))) || !same(scores, strip_casts(expand(own, 0))) ||
      !same(strip_casts(in_max.sink), strip_casts(in_sum.sink)) || !same_or_none(in_max.less, in_sum.less))
    return false;
  found.scores = own;
  found.sink = cast(in_max.sink, DType::kFloat32);
  return true;
}

}  // namespace

bool match_softmax(const Expr& body, const Expr& key, bool any_expression, SoftmaxMatch& found) {
  Expr& scores = found.scores;
  const Expr guarded = strip_casts(body), inner = any_expression ? without_guard(guarded) : guarded;
  if (!inner) return false;
  if (any_expression && guarded->op == Op::kSelect) found.zero_empty = true;
  const Expr e = strip_casts(inner);
  if (e->op != Op::kDiv) return false;
  const Expr top = strip_casts(e->args[0]), bottom = strip_casts(e->args[1]);
  if (top->op != Op::kExp || bottom->op != Op::kLoad) return false;
  const Expr shifted = strip_casts(top->args[0]);
  if (shifted->op != Op::kSub) return false;
  const Expr max_load = strip_casts(shifted->args[1]);
  if (max_load->op != Op::kLoad) return false;
  scores = shifted->args[0];
  // The maximum and the sum must be over the same scores.
  const Expr whole_max = body_at(max_load), whole_sum = body_at(bottom);
  if (!whole_max || !whole_sum) return false;
  Expr max_body, sum_body, floor, more;
  if (!reduction_and(whole_max, max_body, floor) || !reduction_and(whole_sum, sum_body, more) || !floor != !more)
    return false;
  if (floor) {
    if (!any_expression || whole_max->op != Op::kMax) return false;
    if (whole_sum->op == Op::kMax) {  // the largest element contributes 1, so the sum is smaller only if there is none
      if (!is_const(more) || more->f != 1 || !is_const(floor) || !(floor->f <= -1e30) || std::isinf(floor->f))
        return false;
      found.zero_empty = true;
    } else {
      if (whole_sum->op != Op::kAdd || more->op != Op::kExp || more->args[0]->op != Op::kSub ||
          !same(more->args[0]->args[0], floor) || !same(strip_casts(more->args[0]->args[1]), max_load))
        return false;
      found.sink = floor;
    }
  }
  if (max_body->op != Op::kReduce || sum_body->op != Op::kReduce || max_body->vars.size() != 1 ||
      sum_body->vars.size() != 1)
    return false;
  if (static_cast<ReduceKind>(max_body->i) != ReduceKind::kMax ||
      static_cast<ReduceKind>(sum_body->i) != ReduceKind::kSum)
    return false;
  if (any_expression && !floor && with_sink(max_body, sum_body, key, max_load, found)) return true;
  if (!idx::provably_equal(max_body->vars[0]->args[0], key->args[0]) ||
      !idx::provably_equal(sum_body->vars[0]->args[0], key->args[0]))
    return false;
  const Expr under_max = substitute(max_body->args[0], {{max_body->vars[0], key}});
  const Expr under_sum = substitute(sum_body->args[0], {{sum_body->vars[0], key}});
  if (!same(expand(under_max, 0), expand(scores, 0)) || !same(expand(under_sum, 0), expand(top, 0))) return false;
  if (!floor || found.sink) add_what_is_subtracted(key, found);
  return true;
}

}  // namespace sardonyx
