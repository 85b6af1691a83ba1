// See gated_gemm.h.
#include "fuse/gated_gemm.h"

#include <algorithm>
#include <map>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

class Pairing {
 public:
  Pairing(Graph& g, const FuseOptions& options)
      : g_(g),
        options_(options),
        uses_(uses_of(g)),
        constants_(constant_nodes(g)),
        outputs_(g.outputs.begin(), g.outputs.end()) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      if (n.as<LoopOp>() && !constants_.count(&n)) try_loop(n);
    }
    g_.origin.clear();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  bool constant(const Value* v) const { return v->producer && v->graph == &g_ && constants_.count(v->producer) > 0; }

  void reject(const Node& n, const char* why) const {
    remark(options_, "gated_gemm", n.origin, [&] { return std::string(why); });
  }

  void try_loop(Node& n) {
    const auto* l = n.as<LoopOp>();
    std::int64_t width = 0;
    if (l->body->has_reduce || l->vars.empty() || !is_const_int(l->vars.back()->args[0], width)) return;
    // The GEMMs that the loop reads, and the offset between the column that it reads and the one that it writes.
    std::vector<Value*> products;
    std::vector<std::int64_t> shifts;
    bool plain = true;
    visit(l->body, [&](const Expr& e) {
      if (e->op != Op::kLoad) return;
      auto* v = const_cast<Value*>(e->value);
      if (!v->producer || v->graph != &g_ || !v->producer->as<MatMulOp>() || constants_.count(v->producer)) return;
      const auto users = uses_.find(v);
      if (outputs_.count(v) || users == uses_.end() || users->second.size() != 1 || e->args.size() != l->vars.size())
        return;
      bool here = true;
      for (std::size_t d = 0; d + 1 < l->vars.size(); ++d)
        here &= same(e->args[d], l->vars[d]) || (is_const(e->args[d], 0) && is_const(l->vars[d]->args[0], 1));
      std::int64_t shift = 0;
      if (!here || !is_const_int(e->args.back() - l->vars.back(), shift)) {
        plain = false;
        return;
      }
      for (std::size_t k = 0; k < products.size(); ++k)
        if (products[k] == v && shifts[k] == shift) return;
      products.push_back(v);
      shifts.push_back(shift);
    });
    if (products.size() != 2) return;
    if (!plain) return reject(n, "it reads the products at other positions than it writes");
    for (std::size_t d = 0; d + 1 < l->vars.size(); ++d)
      if (!idx::provably_equal(l->vars[d]->args[0], products[0]->shape[d]))
        return reject(n, "it broadcasts the products");
    Value* first = products[0];
    const Value* second = products[1];
    const auto& m = *first->producer->as<MatMulOp>();
    Value* paired = nullptr;
    if (first == second) {
      if (std::min(shifts[0], shifts[1]) != 0 || std::max(shifts[0], shifts[1]) != width ||
          !is_const(first->shape.back(), 2 * width))
        return reject(n, "it does not read the two halves of the product's columns");
      if (shifts[0] != 0) std::swap(shifts[0], shifts[1]);
      paired = product(first, n, columns_of(m.b, m.vars.back(), m.b, m.vars.back(), width, width));
    } else {
      const auto& o = *second->producer->as<MatMulOp>();
      if (shifts[0] != 0 || shifts[1] != 0 || first->dtype != second->dtype || !is_const(first->shape.back(), width) ||
          first->shape.size() != second->shape.size() || !same(m.k->args[0], o.k->args[0]))
        return reject(n, "the two products differ in shape or type");
      std::vector<std::pair<Expr, Expr>> r = {{o.k, m.k}};
      for (std::size_t d = 0; d < m.vars.size(); ++d) {
        if (!same(m.vars[d]->args[0], o.vars[d]->args[0])) return reject(n, "the two products differ in shape or type");
        r.emplace_back(o.vars[d], m.vars[d]);
      }
      if (!same(m.a, substitute(o.a, r))) return reject(n, "the two products have different left operands");
      paired = product(first, n, columns_of(m.b, m.vars.back(), substitute(o.b, r), m.vars.back(), width, 0));
      if (paired) paired->producer->origin = join_origins(first->producer->origin, second->producer->origin);
    }
    if (!paired) return reject(n, "the right operands are not constants of one form");
    const bool halves = first == second;
    auto* loop = n.as<LoopOp>();
    loop->body = rewrite(loop->body, [&](const Expr& e) -> Expr {
      if (!e->has_load) return e;
      if (e->op != Op::kLoad || (e->value != first && e->value != second)) return Expr();
      const bool odd = halves ? !same(e->args.back(), loop->vars.back()) : e->value == second;
      Exprs i = e->args;
      i.back() = loop->vars.back() * Expr(2) + Expr(odd ? 1 : 0);
      return load(paired, e->dtype, i);
    });
    refresh_inputs(n);
  }

  // The GEMM whose columns `b` has, over a variable of twice `width`; null if impossible.
  Value* product(Value* old, const Node& user, const std::pair<Expr, Expr>& b) {
    if (!b.first) return nullptr;
    g_.origin = join_origins(old->producer->origin, user.origin);
    MatMulOp m = *old->producer->as<MatMulOp>();
    Exprs shape = old->shape;
    shape.back() = b.second->args[0];
    m.vars.back() = b.second;
    m.b = b.first;
    Node* node = g_.add_node(m, old->producer->inputs, {{old->dtype, shape}});
    node->origin = old->producer->origin;
    refresh_inputs(*node);
    return node->outputs[0];
  }

  // One expression over a new variable of columns: b at even columns, `other` at odd ones, with constants interleaved
  // accordingly. `apart`: offset of the odd columns if both are the same b, otherwise 0.
  std::pair<Expr, Expr> columns_of(const Expr& b, const Expr& col, const Expr& other, const Expr& other_col,
                                   std::int64_t width, std::int64_t apart) {
    if (!same(col, other_col)) return {};
    const Expr both = loop_var(Expr(2 * width));
    bool ok = true;
    const Expr merged = merge(b, other, col, both, width, apart, ok);
    if (!ok) return {};
    return {merged, both};
  }

  Expr merge(const Expr& a, const Expr& b, const Expr& col, const Expr& both, std::int64_t width, std::int64_t apart,
             bool& ok) {
    const auto uses_col = [&](const Expr& e) {
      bool found = false;
      visit(e, [&](const Expr& x) { found |= x->op == Op::kVar && x->i == col->i; });
      return found;
    };
    if (!uses_col(a) && same(a, b)) return a;
    if (a->op != b->op || a->dtype != b->dtype || a->i != b->i || a->args.size() != b->args.size() || a->has_reduce) {
      ok = false;
      return a;
    }
    if (a->op == Op::kLoad) {
      // One index is the column, the others do not depend on it.
      std::size_t at = a->args.size();
      for (std::size_t d = 0; d < a->args.size(); ++d) {
        if (same(a->args[d], col) && same(b->args[d], col) && at == a->args.size())
          at = d;
        else if (uses_col(a->args[d]) || !same(a->args[d], b->args[d]))
          ok = false;
      }
      const auto *u = a->value, *v = b->value;
      ok = ok && at < a->args.size() && constant(u) && constant(v) && u->shape.size() == v->shape.size() &&
           is_const(u->shape[at], apart ? 2 * width : width);
      for (std::size_t d = 0; ok && d < u->shape.size(); ++d) ok = same(u->shape[d], v->shape[d]);
      if (!ok) return a;
      Exprs i = a->args;
      i[at] = both;
      return load(side_by_side(u, v, at, width, apart), a->dtype, i);
    }
    if (a->args.empty()) {
      ok = ok && same(a, b) && !uses_col(a);
      return a;
    }
    Exprs args;
    for (std::size_t k = 0; k < a->args.size() && ok; ++k)
      args.push_back(merge(a->args[k], b->args[k], col, both, width, apart, ok));
    if (!ok) return a;
    switch (a->op) {
      case Op::kCast:
        return cast(args[0], a->dtype, static_cast<int>(a->i));
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kBitAnd:
      case Op::kShr:
        if (a->dtype != DType::kInt64) return binary(a->op, args[0], args[1]);
        [[fallthrough]];
      default:
        ok = false;
        return a;
    }
  }

  Value* side_by_side(const Value* u, const Value* v, std::size_t dim, std::int64_t width, std::int64_t apart) {
    Value*& copy = copies_[{u->id, v->id, dim}];
    if (copy) return copy;
    Exprs shape = u->shape, vars;
    shape[dim] = Expr(2 * width);
    for (const Expr& d : shape) vars.push_back(loop_var(d));
    const Expr odd = idx::mod(vars[dim], 2);
    Exprs even_at = vars, odd_at = vars;
    even_at[dim] = idx::floordiv(vars[dim], 2);
    odd_at[dim] = even_at[dim] + Expr(apart);
    copy = g_.add_loop(vars, select(compare(Op::kEq, odd, 0), load(u, u->dtype, even_at), load(v, v->dtype, odd_at)));
    return copy;
  }

  Graph& g_;
  const FuseOptions& options_;
  Uses uses_;
  std::unordered_set<const Node*> constants_;
  std::unordered_set<const Value*> outputs_;
  std::map<std::tuple<int, int, std::size_t>, Value*> copies_;
};

}  // namespace

void gated_gemm(Graph& g, const FuseOptions& options) { Pairing(g, options).run(); }

}  // namespace sardonyx
