// Recognises attention by what is computed, however the model spells it: a product whose left operand is a softmax of
// (scaled, masked) scores that another product made.
#include "fuse/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fuse/graph_util.h"

namespace sardonyx {
namespace {

Expr strip_casts(Expr e) {
  while (e->op == Op::kCast && is_float(e->dtype) && is_float(e->args[0]->dtype)) e = e->args[0];
  return e;
}

// e with every loop that makes scores (no reduction) put in place of its loads, down to loads of products' results.
Expr expand(const Expr& e, int depth = 0) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    const Node* p = x->value->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || l->body->has_reduce || depth > 6) return x;
    bool scores = false;  // only loops behind a product are scores; masks stay in memory
    for (const Value* v : loads_of(l->body))
      scores |=
          v->producer && (v->producer->as<MatMulOp>() || (v->producer->as<LoopOp>() && v->rank() == x->value->rank()));
    if (!scores) return x;
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < l->vars.size(); ++k) r.emplace_back(l->vars[k], x->args[k]);
    return expand(substitute(l->body, r), depth + 1);
  });
}

// The loop value that a load refers to, as its body at the load's indices; empty if it is none.
Expr body_at(const Expr& l) {
  const Node* p = l->op == Op::kLoad ? l->value->producer : nullptr;
  const auto* loop = p ? p->as<LoopOp>() : nullptr;
  if (!loop) return Expr();
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < loop->vars.size(); ++k) r.emplace_back(loop->vars[k], l->args[k]);
  return substitute(loop->body, r);
}

struct Scores {
  Expr key;                     // the variable of keys
  bool any_expression = false;  // limits, caps, sinks; see FuseOptions::attention_limits
  const MatMulOp* product = nullptr;
  Expr load;  // of the product's result
  double scale = 1;
  double softcap = 0;  // softcap * tanh(scale * product / softcap), if not 0
  Expr bias;           // added after that; empty for none
  Expr begin, end;     // keys outside count minus infinity; empty for none
};

bool has_product(const Expr& e, const Value* t) {
  if (!e->has_load) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kLoad && x->value == t; });
  return found;
}

bool mentions(const Expr& e, const Expr& var) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == var->i; });
  return found;
}

// What must hold all at once for e (or, negated, its opposite) to be true.
void conjuncts(const Expr& e, bool negated, Exprs& out) {
  if (e->op == Op::kNot) return conjuncts(e->args[0], !negated, out);
  if (e->op == (negated ? Op::kOr : Op::kAnd)) {
    for (const Expr& a : e->args) conjuncts(a, negated, out);
    return;
  }
  out.push_back(negated ? logical_not(e) : e);
}

// condition: begin <= key or key < end, for the limit that it is.
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

// Scores where `allowed` holds, `low` elsewhere: limits of the keys, and the rest as a bias.
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
  // A finite number is as good as minus infinity if some key is allowed.
  const bool infinite = low == -std::numeric_limits<double>::infinity();
  if (!infinite && (others || begin || !end || !idx::provably_nonnegative(idx::sub(end, 1), true))) {
    begin = end = Expr();
    others = allowed;
  }
  if (begin) s.begin = s.begin ? idx::max(s.begin, begin) : begin;
  if (end) s.end = s.end ? idx::min(s.end, end) : end;
  if (others)
    s.bias = select(others, s.bias ? s.bias : constant_float(0, DType::kFloat32), constant_float(low, DType::kFloat32));
}

// e = scale * product + bias
bool decompose(const Expr& e0, const Value* t, Scores& s) {
  const Expr e = strip_casts(e0);
  if (e->op == Op::kLoad && e->value == t) {
    s.load = e;
    return true;
  }
  auto number = [](const Expr& c, double& v) {
    const Expr x = strip_casts(c);
    if (!is_const(x) || !is_float(x->dtype)) return false;
    v = x->f;
    return true;
  };
  double c;
  if (e->op == Op::kSelect && !has_product(e->args[0], t)) {
    // A masked score: one side is so low that nothing added to it changes it, in float32.
    for (const int side : {1, 2}) {
      const auto k = static_cast<std::size_t>(side);
      if (!has_product(e->args[k], t) || !number(e->args[3 - k], c) || !(c <= -1e30)) continue;
      if (!decompose(e->args[k], t, s)) return false;
      if (s.any_expression) {
        mask(s, side == 1 ? e->args[0] : logical_not(e->args[0]), c);
        return true;
      }
      const Expr kept = s.bias ? s.bias : constant_float(0, DType::kFloat32),
                 masked = constant_float(c, DType::kFloat32);
      s.bias = side == 1 ? select(e->args[0], kept, masked) : select(e->args[0], masked, kept);
      return true;
    }
    return false;
  }
  if (e->op == Op::kTanh && s.any_expression) {
    if (!decompose(e->args[0], t, s) || s.bias || s.begin || s.end || s.softcap != 0) return false;
    s.softcap = 1;
    return true;
  }
  if (e->args.size() != 2) return false;
  const bool left = has_product(e->args[0], t), right = has_product(e->args[1], t);
  if (left == right) return false;
  const Expr &x = e->args[left ? 0 : 1], &y = e->args[left ? 1 : 0];
  auto scale_by = [&](double f) {
    if ((s.begin || s.end) && !(f > 0)) return false;
    s.scale *= f;
    s.softcap *= f;
    if (s.bias) s.bias = binary(Op::kMul, s.bias, constant_float(f, DType::kFloat32));
    return true;
  };
  switch (e->op) {
    case Op::kMul:
      if (!number(y, c) || !decompose(x, t, s)) return false;
      return scale_by(c);
    case Op::kDiv:
      if (!left || !number(y, c) || !decompose(x, t, s)) return false;
      return scale_by(1 / c);
    case Op::kAdd: {
      if (!decompose(x, t, s)) return false;
      const Expr add = cast(y, DType::kFloat32);
      s.bias = s.bias ? binary(Op::kAdd, s.bias, add) : add;
      return true;
    }
    default:
      return false;
  }
}

struct Softmax {
  Expr scores;  // what is normalised, over vars of the body and `key`
  Expr sink;    // a further score that counts in the sum only
  bool zero_empty = false;
};

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

// Follows a softmax from the loop that divides.
bool match_softmax(const Expr& body, const Expr& key, bool any_expression, Softmax& found) {
  Expr& scores = found.scores;
  const Expr e = strip_casts(body);
  if (e->op != Op::kDiv) return false;
  const Expr top = strip_casts(e->args[0]), bottom = strip_casts(e->args[1]);
  if (top->op != Op::kExp || bottom->op != Op::kLoad) return false;
  const Expr shifted = strip_casts(top->args[0]);
  if (shifted->op != Op::kSub) return false;
  const Expr max_load = strip_casts(shifted->args[1]);
  if (max_load->op != Op::kLoad) return false;
  scores = shifted->args[0];
  // The same scores must be under the maximum and the sum.
  const Expr whole_max = body_at(max_load), whole_sum = body_at(bottom);
  if (!whole_max || !whole_sum) return false;
  Expr max_body, sum_body, floor, more;
  if (!reduction_and(whole_max, max_body, floor) || !reduction_and(whole_sum, sum_body, more) || !floor != !more)
    return false;
  if (floor) {
    if (!any_expression || whole_max->op != Op::kMax) return false;
    if (whole_sum->op == Op::kMax) {  // the largest element counts 1: only where there is none is the sum smaller
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
  if (!idx::provably_equal(max_body->vars[0]->args[0], key->args[0]) ||
      !idx::provably_equal(sum_body->vars[0]->args[0], key->args[0]))
    return false;
  const Expr under_max = substitute(max_body->args[0], {{max_body->vars[0], key}});
  const Expr under_sum = substitute(sum_body->args[0], {{sum_body->vars[0], key}});
  return same(expand(under_max), expand(scores)) && same(expand(under_sum), expand(top));
}

// A load of a view, or of a loop that only moves elements, as a load of what those read.
Expr through_movement(Expr x) {
  for (int depth = 0; depth < 16 && x->op == Op::kLoad; ++depth) {
    const Node* p = x->value->producer;
    if (p && p->as<ViewOp>()) {
      const Value* source = p->inputs[0];
      x = load(source, x->dtype, idx::delinearize(idx::linearize(x->args, x->value->shape), source->shape));
    } else if (const auto* l = p ? p->as<LoopOp>() : nullptr; l && l->body->op == Op::kLoad) {
      x = body_at(x);
    } else {
      break;
    }
  }
  return x;
}

// Whether rows (over `row`) of elements (over `element`) lie in memory at a distance and contiguous.
bool contiguous_rows(const Expr& x, const Expr& row, const Expr& element) {
  if (x->op != Op::kLoad || !x->value->storage_order.empty()) return false;
  Expr factor, rest, left;
  return idx::split_affine(idx::linearize(x->args, x->value->shape), element, factor, rest) && is_const(factor, 1) &&
         idx::split_affine(rest, row, factor, left) && !mentions(left, row) && !mentions(left, element) &&
         !left->has_load;
}

// A load of a tensor that is another one times a constant, as a load of that one; `factor` is multiplied by the
// constant.
Expr through_scale(const Expr& x, double& factor) {
  if (x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<LoopOp>()) return x;
  Expr e = body_at(x);
  double c = 1;
  while (is_float(e->dtype)) {
    if (e->op == Op::kCast) {
      e = e->args[0];
    } else if (e->op == Op::kMul && (is_const(e->args[0]) || is_const(e->args[1]))) {
      const bool first = is_const(e->args[0]);
      c *= e->args[first ? 0 : 1]->f;
      e = e->args[first ? 1 : 0];
    } else {
      break;
    }
  }
  if (e->op != Op::kLoad || e->dtype != x->dtype || !(c > 0)) return x;
  factor *= c;
  return e;
}

// Operands are read where they are if their rows can be read whole there. Of q and k a constant factor is split off.
Expr operand(const Expr& x, const Expr& row, const Expr& element, double* factor = nullptr) {
  Expr y = through_movement(x);
  double c = 1;
  if (factor) y = through_movement(through_scale(y, c));
  if (!contiguous_rows(y, row, element)) return x;
  if (factor) *factor *= c;
  return y;
}

// By what a variable of constant extent is divided wherever e mentions it: heads that share what e is. 1: by nothing.
std::int64_t shared_by(const Expr& e, const Expr& variable) {
  std::int64_t divisor = 0, extent = 0;
  bool one = is_const_int(variable->args[0], extent);
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kFloorDiv || !same(x->args[0], variable) || !is_const(x->args[1])) return;
    one &= divisor == 0 || divisor == x->args[1]->i;
    divisor = x->args[1]->i;
  });
  if (!one || divisor < 2 || extent % divisor != 0) return 1;
  const Expr rest = rewrite(e, [&](const Expr& x) -> Expr {
    return x->op == Op::kFloorDiv && same(x->args[0], variable) ? Expr(0) : Expr();
  });
  return mentions(rest, variable) ? 1 : divisor;
}

// Whether an expression may be evaluated for every score.
bool cheap(const Expr& e) {
  int nodes = 0, loads = 0, heavy = 0;
  visit(e, [&](const Expr& x) {
    ++nodes;
    loads += x->op == Op::kLoad;
    heavy += (x->op >= Op::kExp && x->op <= Op::kSigmoid) || x->op == Op::kPow || x->op == Op::kRandom;
  });
  return !e->has_reduce && nodes <= 120 && loads <= 4 && heavy == 0;
}

// Loads of `from` become loads of `to`, which has the same elements.
void redirect(Graph& g, const Value* from, Value* to) {
  for (const auto& n : g.nodes) {
    if (std::find(n->inputs.begin(), n->inputs.end(), from) == n->inputs.end()) continue;
    const auto renew = [&](const Expr& e) {
      return rewrite(e, [&](const Expr& x) -> Expr {
        if (!x->has_load) return x;
        if (x->op != Op::kLoad || x->value != from) return Expr();
        return load(to, x->dtype, idx::delinearize(idx::linearize(x->args, from->shape), to->shape));
      });
    };
    if (auto* l = n->as<LoopOp>())
      l->body = renew(l->body);
    else if (auto* m = n->as<MatMulOp>())
      m->a = renew(m->a), m->b = renew(m->b);
    else
      continue;
    refresh_inputs(*n);
  }
}

}  // namespace

void find_attention(Graph& g, const FuseOptions& options) {
  const auto required = required_values(g);
  const Uses uses = uses_of(g);
  const bool any = options.attention_expressions || options.attention_limits;
  bool found = false, added_loops = false;
  for (std::size_t at = 0; at < g.nodes.size(); ++at) {
    Node* n = g.nodes[at].get();
    const auto* m = n->as<MatMulOp>();
    if (!m || m->vars.size() < 2 || m->vars.size() > (any ? 5 : 4) || m->a->op != Op::kLoad || m->b->op != Op::kLoad)
      continue;
    Value* weights = const_cast<Value*>(m->a->value);
    auto used = uses.find(weights);
    if (required.count(weights) || used == uses.end() || used->second.size() != 1) continue;
    const Expr body = body_at(m->a);
    Softmax softmax;
    if (!body || !match_softmax(body, m->k, any, softmax)) continue;
    const Expr scores = expand(softmax.scores);
    // The product that made the scores: the one load of a product's result.
    Scores s;
    s.key = m->k;
    s.any_expression = any;
    for (const Value* v : loads_of(scores))
      if (v->producer && v->producer->as<MatMulOp>() && v->rank() == static_cast<int>(m->vars.size())) {
        if (s.product)
          s.product = nullptr;
        else
          s.product = v->producer->as<MatMulOp>();
        if (!s.product) break;
        s.load = Expr();
        if (!decompose(scores, v, s)) s.product = nullptr;
      }
    if (!s.product || !s.load) continue;
    // Loads of the scores must be at [batch..., query, key].
    const std::size_t r = m->vars.size();
    bool aligned = same(s.load->args[r - 1], m->k);
    for (std::size_t k = 0; k + 1 < r; ++k)
      aligned &=
          same(s.load->args[k], m->vars[k]) || (is_const(s.load->args[k], 0) && is_const(m->vars[k]->args[0], 1));
    if (!aligned) continue;
    AttentionOp a;
    const Expr b = r >= 4 ? m->vars[0] : loop_var(1);
    const Expr group = r == 5 ? m->vars[2]->args[0] : Expr(1);
    const Expr h = r == 5 ? loop_var(m->vars[1]->args[0] * group) : r >= 3 ? m->vars[r - 3] : loop_var(1);
    const Expr d = loop_var(s.product->k->args[0]);
    a.vars = {b, h, m->vars[r - 2], m->k, d, m->vars[r - 1]};
    std::vector<std::pair<Expr, Expr>> sub = {{s.product->k, d}, {s.product->vars[r - 1], m->k}};
    for (std::size_t k = 0; k + 1 < r; ++k) sub.emplace_back(s.product->vars[k], m->vars[k]);
    a.q = substitute(s.product->a, sub);
    a.k = substitute(s.product->b, sub);
    a.v = m->b;
    a.scale = constant_float(s.scale, DType::kFloat32);
    a.softcap = s.softcap;
    a.begin = s.begin;
    a.end = s.end;
    a.sink = softmax.sink;
    a.zero_empty = softmax.zero_empty;
    if (r == 5)  // groups of heads
      for (Expr* e : {&a.q, &a.k, &a.v, &s.bias, &a.begin, &a.end, &a.sink})
        if (*e) *e = substitute(*e, {{m->vars[1], idx::floordiv(h, group)}, {m->vars[2], idx::mod(h, group)}});
    if (any) {
      double factor = s.scale;
      a.q = operand(a.q, a.vars[2], a.vars[4], &factor);
      a.k = operand(a.k, a.vars[3], a.vars[4], &factor);
      a.scale = constant_float(factor, DType::kFloat32);
      a.v = operand(a.v, a.vars[3], a.vars[5]);
    }
    // An expression as a tensor in memory over some of the variables, of which one may count groups of `group`.
    const auto in_memory_over = [&](const Expr& e, const std::vector<std::size_t>& over, const Expr& grouped_by,
                                    std::int64_t group) {
      Exprs vars, at_vars;
      std::vector<std::pair<Expr, Expr>> own;
      for (const std::size_t k : over) {
        const Expr& v = a.vars[k];
        const bool moves = mentions(e, v);
        const std::int64_t divisor = grouped_by && same(v, grouped_by) ? group : 1;
        const Expr extent = idx::floordiv(v->args[0], divisor), index = idx::floordiv(v, divisor);
        vars.push_back(loop_var(moves ? extent : Expr(1)));
        at_vars.push_back(moves ? index : Expr(0));
        own.emplace_back(v, moves ? vars.back() * divisor : Expr(0));
      }
      g.origin = n->origin;
      const std::size_t count = g.nodes.size();
      Value* value = g.add_loop(vars, substitute(e, own));
      added_loops = true;
      g.origin.clear();
      const auto added = static_cast<std::ptrdiff_t>(g.nodes.size() - count);
      std::rotate(g.nodes.begin() + static_cast<std::ptrdiff_t>(at), g.nodes.end() - added, g.nodes.end());
      at += static_cast<std::size_t>(added);
      n = g.nodes[at].get();
      return load(value, value->dtype, at_vars);
    };
    // Over the first `dims` variables: computed once, over the dims that it varies in, instead of for every score.
    const auto in_memory = [&](const Expr& e, std::size_t dims) {
      if (e->op == Op::kLoad) return e;
      const std::vector<std::size_t> all{0, 1, 2, 3};
      return in_memory_over(e, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(dims)}, Expr(), 1);
    };
    // Keys that a loop makes for this product alone (rotated ones), element by element or once for each query head, are
    // made row by row and once for all heads that share them.
    if (options.attention_limits && !options.attention_expressions && a.k->op == Op::kLoad) {
      const auto keys = uses.find(a.k->value);
      const Expr made = body_at(a.k);
      if (made && !made->has_reduce && made->op != Op::kLoad && !required.count(a.k->value) && keys != uses.end() &&
          keys->second.size() == 1) {
        const std::int64_t group = shared_by(made, h);
        if (group > 1 || !contiguous_rows(a.k, a.vars[3], a.vars[4]))
          a.k = in_memory_over(made, {0, 1, 3, 4}, h, group);
      }
    }
    if (s.bias) {
      a.bias = options.attention_expressions && cheap(s.bias) ? s.bias : in_memory(s.bias, 4);
      a.has_bias = true;
    }
    if (!options.attention_expressions)
      for (Expr* e : {&a.begin, &a.end, &a.sink})
        if (*e) *e = in_memory(*e, 3);
    Node candidate;
    candidate.op = a;
    candidate.origin = n->origin;
    candidate.outputs = n->outputs;
    Value grouped = *n->outputs[0];
    if (r == 5) {
      grouped.shape = {b->args[0], h->args[0], n->outputs[0]->shape[3], n->outputs[0]->shape[4]};
      candidate.outputs = {&grouped};
    }
    refresh_inputs(candidate);
    if (!options.accepts_tile || !options.accepts_tile(candidate)) continue;
    found = true;
    if (r == 5) {  // a node with heads in one dim; what was here becomes a view of its result
      g.origin = n->origin;
      Value* out = g.add_node(std::move(a), candidate.inputs, {{grouped.dtype, grouped.shape}})->outputs[0];
      g.origin.clear();
      std::rotate(g.nodes.begin() + static_cast<std::ptrdiff_t>(at), g.nodes.end() - 1, g.nodes.end());
      n = g.nodes[++at].get();
      n->op = ViewOp{};
      n->inputs = {out};
      redirect(g, n->outputs[0], out);
      continue;
    }
    n->op = std::move(a);
    refresh_inputs(*n);
  }
  // Also what was made for attention that the device refuses.
  if (found || added_loops) remove_dead_nodes(g);
}

}  // namespace sardonyx
