// Recognises attention by what is computed, however the model spells it: a product whose left operand is a softmax of
// (scaled, masked) scores that another product made.
#include "fuse/attention.h"

#include <algorithm>

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
  const MatMulOp* product = nullptr;
  Expr load;  // of the product's result
  double scale = 1;
  Expr bias;  // added after scaling; empty for none
};

bool has_product(const Expr& e, const Value* t) {
  if (!e->has_load) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kLoad && x->value == t; });
  return found;
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
      const Expr kept = s.bias ? s.bias : constant_float(0, DType::kFloat32),
                 masked = constant_float(c, DType::kFloat32);
      s.bias = side == 1 ? select(e->args[0], kept, masked) : select(e->args[0], masked, kept);
      return true;
    }
    return false;
  }
  if (e->args.size() != 2) return false;
  const bool left = has_product(e->args[0], t), right = has_product(e->args[1], t);
  if (left == right) return false;
  const Expr &x = e->args[left ? 0 : 1], &y = e->args[left ? 1 : 0];
  auto scale_by = [&](double f) {
    s.scale *= f;
    if (s.bias) s.bias = binary(Op::kMul, s.bias, constant_float(f, DType::kFloat32));
  };
  switch (e->op) {
    case Op::kMul:
      if (!number(y, c) || !decompose(x, t, s)) return false;
      scale_by(c);
      return true;
    case Op::kDiv:
      if (!left || !number(y, c) || !decompose(x, t, s)) return false;
      scale_by(1 / c);
      return true;
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

// Follows a softmax from the loop that divides. On success `scores` is what is normalised, over vars of that body and
// `key`.
bool match_softmax(const Expr& body, const Expr& key, Expr& scores) {
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
  const Expr max_body = body_at(max_load), sum_body = body_at(bottom);
  if (!max_body || !sum_body || max_body->op != Op::kReduce || sum_body->op != Op::kReduce ||
      max_body->vars.size() != 1 || sum_body->vars.size() != 1)
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

}  // namespace

void find_attention(Graph& g, const FuseOptions& options) {
  const auto required = required_values(g);
  const Uses uses = uses_of(g);
  bool found = false;
  for (std::size_t at = 0; at < g.nodes.size(); ++at) {
    Node* n = g.nodes[at].get();
    const auto* m = n->as<MatMulOp>();
    if (!m || m->vars.size() < 2 || m->vars.size() > 4 || m->a->op != Op::kLoad || m->b->op != Op::kLoad) continue;
    Value* weights = const_cast<Value*>(m->a->value);
    auto used = uses.find(weights);
    if (required.count(weights) || used == uses.end() || used->second.size() != 1) continue;
    const Expr body = body_at(m->a);
    Expr scores;
    if (!body || !match_softmax(body, m->k, scores)) continue;
    scores = expand(scores);
    // The product that made the scores: the one load of a product's result.
    Scores s;
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
    const Expr b = r == 4 ? m->vars[0] : loop_var(1), h = r >= 3 ? m->vars[r - 3] : loop_var(1);
    const Expr d = loop_var(s.product->k->args[0]);
    a.vars = {b, h, m->vars[r - 2], m->k, d, m->vars[r - 1]};
    std::vector<std::pair<Expr, Expr>> sub = {{s.product->k, d}, {s.product->vars[r - 1], m->k}};
    for (std::size_t k = 0; k + 1 < r; ++k) sub.emplace_back(s.product->vars[k], m->vars[k]);
    a.q = substitute(s.product->a, sub);
    a.k = substitute(s.product->b, sub);
    a.v = m->b;
    a.scale = constant_float(s.scale, DType::kFloat32);
    std::vector<Node*> added;
    if (s.bias) {
      Expr bias = s.bias;
      if (bias->op != Op::kLoad) {  // computed once, over the dims that it varies in, instead of for every head
        Exprs vars, at_vars;
        std::vector<std::pair<Expr, Expr>> own;
        for (std::size_t k = 0; k < 4; ++k) {
          const Expr& v = a.vars[k];
          bool moves = false;
          visit(bias, [&](const Expr& x) { moves |= x->op == Op::kVar && x->i == v->i; });
          vars.push_back(loop_var(moves ? v->args[0] : Expr(1)));
          at_vars.push_back(moves ? v : Expr(0));
          own.emplace_back(v, moves ? vars.back() : Expr(0));
        }
        g.origin = n->origin;
        Value* value = g.add_loop(vars, substitute(bias, own));
        g.origin.clear();
        bias = load(value, value->dtype, at_vars);
        std::rotate(g.nodes.begin() + static_cast<std::ptrdiff_t>(at), g.nodes.end() - 1, g.nodes.end());
        n = g.nodes[++at].get();
      }
      a.bias = bias;
      a.has_bias = true;
    }
    Node candidate;
    candidate.op = a;
    candidate.origin = n->origin;
    candidate.outputs = n->outputs;
    refresh_inputs(candidate);
    if (!options.accepts_tile || !options.accepts_tile(candidate)) continue;
    n->op = std::move(a);
    refresh_inputs(*n);
    found = true;
  }
  if (found) remove_dead_nodes(g);
}

}  // namespace sardonyx
