// shrink_repeats(): see shrink_repeats.h.
#include "fuse/shrink_repeats.h"

#include <algorithm>
#include <unordered_map>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kFewMatrices = 3;  // equal products: fewer operations are not worth a launch of what reads them

using Repeated = std::unordered_map<const Value*, std::vector<bool>>;  // dims that became 1

// Whether the body can be evaluated even where the dim has no elements: otherwise a fixed index into a tensor that is
// empty too would be out of range.
bool reads_what_exists(const Expr& body) {
  bool safe = true;
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    for (std::size_t k = 0; k < x->args.size(); ++k) {
      std::int64_t size = 0;
      safe &= x->args[k]->has_var || (is_const_int(x->value->shape[k], size) && size > 0);
    }
  });
  return safe;
}

// Which of the variables none of the expressions mentions, of more than `few` values; none if they may read what does
// not exist.
std::vector<bool> repeats(const Exprs& vars, const Exprs& of, std::int64_t few) {
  std::vector<bool> dims(vars.size(), false);
  if (of.empty() || !std::ranges::all_of(of, reads_what_exists)) return dims;
  for (std::size_t k = 0; k < dims.size(); ++k) {
    std::int64_t size = 0;
    dims[k] = !is_const(vars[k]) && (!is_const_int(vars[k]->args[0], size) || size > few) &&
              std::ranges::none_of(of, [&](const Expr& e) { return mentions(e, vars[k]); });
  }
  return dims;
}

// Of a product of matrices that are no groups' (which read rows by number).
Exprs operands_of(const MatMulOp& m) { return m.end ? Exprs() : Exprs{m.a, m.b}; }

Expr reindexed(const Expr& e, const Repeated& repeated) {
  if (!e || !e->has_load) return e;
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    const auto it = repeated.find(x->value);
    Exprs args;
    for (std::size_t k = 0; k < x->args.size(); ++k)
      args.push_back(it != repeated.end() && it->second[k] ? Expr(0) : reindexed(x->args[k], repeated));
    return load(x->value, x->dtype, std::move(args));
  });
}

}  // namespace

void shrink_repeats(Graph& g) {
  const auto required = required_values(g);
  const Uses uses = uses_of(g);
  Repeated repeated;
  for (const auto& n : g.nodes) {
    auto* l = n->as<LoopOp>();
    auto* m = n->as<MatMulOp>();
    if (!l && !m) continue;
    Value* v = n->outputs[0];
    const auto readers = uses.find(v);
    if (required.count(v) || v->content || readers == uses.end()) continue;
    const bool by_expressions = std::all_of(readers->second.begin(), readers->second.end(), [](const Node* r) {
      return r->as<LoopOp>() || r->as<MatMulOp>() || r->as<AttentionOp>();
    });
    if (!by_expressions) continue;
    const std::vector<bool> dims = l ? repeats(l->vars, {l->body}, 0) : repeats(m->vars, operands_of(*m), kFewMatrices);
    for (std::size_t k = 0; k < dims.size(); ++k)
      if (dims[k]) (l ? l->vars : m->vars)[k] = loop_var(1), v->shape[k] = 1;
    if (std::find(dims.begin(), dims.end(), true) != dims.end()) repeated[v] = dims;
  }
  if (repeated.empty()) return;
  for (const auto& n : g.nodes) {
    if (auto* l = n->as<LoopOp>()) {
      l->body = reindexed(l->body, repeated);
    } else if (auto* m = n->as<MatMulOp>()) {
      for (Expr* e : {&m->a, &m->b, &m->owner, &m->end}) *e = reindexed(*e, repeated);
    } else if (auto* a = n->as<AttentionOp>()) {
      for (Expr* e : {&a->q, &a->k, &a->v, &a->k_scale, &a->v_scale, &a->bias, &a->begin, &a->end, &a->sink})
        *e = reindexed(*e, repeated);
    }
  }
}

}  // namespace sardonyx
