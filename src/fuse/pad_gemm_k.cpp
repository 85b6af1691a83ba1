// See pad_gemm_k.h.
#include "fuse/pad_gemm_k.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "fuse/reduction_digits.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;     // 16-bit elements of a 16-byte load
constexpr std::int64_t kLeastSum = 16;  // terms: shorter sums are mostly the padding
constexpr std::int64_t kLeastLines =
    32;  // rows and columns: with fewer, an operand is read about as often as a copy would

// The dim of the operand that K runs along and no other; empty if it is read in another way.
std::optional<std::size_t> dim_of_k(const Expr& operand, const Expr& k) {
  if (operand->op != Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype) || operand->has_reduce)
    return {};
  std::optional<std::size_t> at;
  for (std::size_t d = 0; d < operand->args.size(); ++d) {
    if (!mentions(operand->args[d], k)) continue;
    if (at || !same(operand->args[d], k)) return {};
    at = d;
  }
  return at && idx::provably_equal(operand->value->shape[*at], k->args[0]) ? at : std::nullopt;
}

Exprs lines_of(const MatMulOp& m, const Expr& operand) {
  Exprs out;
  std::copy_if(m.vars.begin(), m.vars.end(), std::back_inserter(out),
               [&](const Expr& v) { return mentions(operand, v); });
  return out;
}

// Whether the operand is a tensor of 16-bit floats, each of which it has once.
bool may_be_gathered(const MatMulOp& m, const Expr& operand) {
  if (operand->op != Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype) || operand->has_reduce)
    return false;
  Expr elements = m.k->args[0];
  for (const Expr& v : lines_of(m, operand)) elements = elements * v->args[0];
  return idx::provably_equal(elements, idx::product(operand->value->shape));
}

class Padder {
 public:
  Padder(Graph& g, const FuseOptions& options)
      : g_(g), options_(options), constants_(constant_nodes(g)), uses_(uses_of(g)) {
    for (Value* v : g.outputs) outputs_.insert(storage_of(v));
    for (const Value* v : required_values(g)) outputs_.insert(storage_of(v));
  }

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t i = 0; i < count; ++i) {
      Node& n = *g_.nodes[i];
      if (auto* m = n.as<MatMulOp>(); m && !constants_.count(&n)) product(n, *m);
    }
    g_.origin.clear();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  void product(Node& n, MatMulOp& m) {
    std::int64_t terms = 0, lines = 0;
    if (!is_const_int(m.k->args[0], terms) || terms < kLeastSum || terms % kVector == 0) return;
    const auto reject = [&](const char* why) {
      remark(options_, "pad_gemm_k", n.origin, [&] { return std::string(why); }, {{"k", std::to_string(terms)}});
    };
    for (std::size_t d = m.vars.size() - 2; d < m.vars.size(); ++d)
      if (is_const_int(m.vars[d]->args[0], lines) && lines < kLeastLines)
        return reject("it has too few rows or columns");
    const auto a = dim_of_k(m.a, m.k), b = dim_of_k(m.b, m.k);
    if ((!a && !may_be_gathered(m, m.a)) || (!b && !may_be_gathered(m, m.b)))
      return reject("an operand is computed, repeated, or not of 16-bit floats");
    const Expr k = loop_var(Expr((terms + kVector - 1) / kVector * kVector));
    g_.origin = n.origin;
    m.a = a ? padded(m.a, *a, k) : gathered(m, m.a, k);
    m.b = b ? padded(m.b, *b, k) : gathered(m, m.b, k);
    m.k = k;
    refresh_inputs(n);
  }

  // The operand with k in place of its index along `dim`, and zeros from the end of that dim on.
  Expr padded(const Expr& operand, std::size_t dim, const Expr& k) {
    auto* v = const_cast<Value*>(operand->value);
    Value*& copy = copies_[{v, dim}];
    if (!copy) copy = copy_of(v, dim, k->args[0]);
    Exprs at = operand->args;
    at[dim] = k;
    return load(copy, copy->dtype, at);
  }

  // The operand's lines and K as a matrix of their own: K runs along several dims of its tensor (the heads of attention
  // and their elements).
  Expr gathered(const MatMulOp& m, const Expr& operand, const Expr& k) {
    Exprs at = lines_of(m, operand), vars;
    for (const Expr& v : at) vars.push_back(loop_var(v->args[0]));
    vars.push_back(loop_var(k->args[0]));
    std::vector<std::pair<Expr, Expr>> to = {{m.k, vars.back()}};
    for (std::size_t d = 0; d < at.size(); ++d) to.emplace_back(at[d], vars[d]);
    const Expr inside = compare(Op::kLt, vars.back(), m.k->args[0]);
    const Value* out = g_.add_loop(vars, select(inside, substitute(operand, to), constant_float(0, operand->dtype)));
    at.push_back(k);
    return load(out, out->dtype, at);
  }

  Value* copy_of(Value* v, std::size_t dim, const Expr& extent) {
    Exprs vars = vars_of(v->shape);
    vars[dim] = loop_var(extent);
    Expr body = load(v, v->dtype, vars);
    const Node* p = v->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (l && v->graph == &g_ && !l->body->has_reduce && !constants_.count(p) && !outputs_.count(v) &&
        uses_.at(v).size() == 1) {
      std::vector<std::pair<Expr, Expr>> to;
      for (std::size_t d = 0; d < vars.size(); ++d) to.emplace_back(l->vars[d], vars[d]);
      body = substitute(l->body, to);
      g_.origin = join_origins(p->origin, g_.origin);
    }
    const bool constant = p && constants_.count(p) > 0;
    const Expr inside = compare(Op::kLt, vars[dim], v->shape[dim]);
    Value* out = g_.add_loop(vars, select(inside, body, constant_float(0, v->dtype)));
    if (!constant) out->storage_order = order_of(body, vars);
    return out;
  }

  // The dim along which `body` reads contiguous memory becomes the innermost: a GEMM reads either order in vectors.
  static std::vector<int> order_of(const Expr& body, const Exprs& vars) {
    std::size_t best = vars.size() - 1;
    int most = unit_loads(body, vars[best], vars);
    for (std::size_t d = 0; d + 1 < vars.size(); ++d)
      if (const int n = unit_loads(body, vars[d], vars); n > most) best = d, most = n;
    if (best + 1 == vars.size()) return {};
    std::vector<int> order;
    for (std::size_t d = 0; d < vars.size(); ++d)
      if (d != best) order.push_back(static_cast<int>(d));
    order.push_back(static_cast<int>(best));
    return order;
  }

  Graph& g_;
  const FuseOptions& options_;
  const std::unordered_set<const Node*> constants_;
  const Uses uses_;
  std::unordered_set<const Value*> outputs_;
  std::map<std::pair<const Value*, std::size_t>, Value*> copies_;
};

}  // namespace

void pad_gemm_k(Graph& g, const FuseOptions& options) { Padder(g, options).run(); }

}  // namespace sardonyx
