// See hoist_elementwise.h.
#include "fuse/hoist_elementwise.h"

#include <algorithm>
#include <optional>

#include "fuse/layout_queries.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

using Substitution = std::vector<std::pair<Expr, Expr>>;

bool is_window(const Value* v) {
  const auto* l = v->producer ? v->producer->as<LoopOp>() : nullptr;
  return l && v->rank() >= 3 && reduces_windows(l->body);
}

// Inverts the indices `at` of the loop's load of v: the loop's variables such that it loads v[own]. Each variable must
// be an index, or several consecutive indices flattened. Otherwise empty.
std::optional<Substitution> inverse(const LoopOp& l, const Value& v, const Exprs& at, const Exprs& own) {
  Substitution to;
  for (const Expr& var : l.vars) {
    if (is_const(var)) continue;
    std::size_t first = at.size(), last = 0;
    for (std::size_t k = 0; k < at.size(); ++k)
      if (mentions(at[k], var)) first = std::min(first, k), last = k;
    if (first == at.size()) {
      if (!is_const(var->args[0], 1)) return {};
      to.emplace_back(var, Expr(0));
      continue;
    }
    const auto part = [&](const Exprs& of) {
      return Exprs(of.begin() + static_cast<std::ptrdiff_t>(first), of.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    };
    const Exprs dims = part(v.shape), parts = idx::delinearize(var, dims);
    if (!idx::provably_equal(idx::product(dims), var->args[0])) return {};
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (!same(parts[k], at[first + k])) return {};
    to.emplace_back(var, idx::linearize(part(own), dims));
  }
  return to;
}

// Whether an expression computes something, rather than moving elements.
bool computes(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op != Op::kLoad && x->op != Op::kSelect && is_float(x->dtype); });
  return found;
}

class Hoister {
 public:
  explicit Hoister(Graph& g) : g_(g), uses_(uses_of(g)), required_(required_values(g)), constants_(constant_nodes(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      if (auto* l = n.as<LoopOp>(); l && !l->body->has_reduce && !constants_.count(&n)) loop(n, *l);
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  void loop(Node& n, LoopOp& l) {
    const Expr read = window(l);
    if (!read || !computes(l.body)) return;
    auto* v = const_cast<Value*>(read->value);
    const Exprs own = vars_of(v->shape);
    const auto to = inverse(l, *v, read->args, own);
    if (!to) return;
    const Expr moved = substitute(l.body, *to);
    bool ok = true, in_order = true;
    visit(moved, [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      if (x->value == v)
        for (std::size_t k = 0; k < own.size(); ++k) ok = ok && idx::provably_equal(x->args[k], own[k]);
    });
    for (std::size_t k = 0; k < read->args.size(); ++k)
      in_order = in_order && l.vars.size() == own.size() && same(read->args[k], l.vars[k]);
    if (!ok || in_order) return;
    g_.origin = n.origin;
    const Value* computed = g_.add_loop(own, moved);
    l.body = load(computed, computed->dtype, read->args);
    refresh_inputs(n);
  }

  // The only load of the result of a window that nothing else reads, if all other tensors have one dim at most.
  Expr window(const LoopOp& l) const {
    Expr found;
    bool ok = true;
    visit(l.body, [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      const auto readers = uses_.find(x->value);
      if (is_window(x->value) && readers != uses_.end() && readers->second.size() == 1 && !required_.count(x->value)) {
        ok = ok && (!found || same(found, x));
        found = x;
      } else {
        ok = ok && std::count_if(l.vars.begin(), l.vars.end(), [&](const Expr& v) { return mentions(x, v); }) <= 1;
      }
    });
    return ok ? found : Expr();
  }

  Graph& g_;
  const Uses uses_;
  const std::unordered_set<const Value*> required_;
  const std::unordered_set<const Node*> constants_;
};

}  // namespace

void hoist_elementwise(Graph& g, const FuseOptions&) { Hoister(g).run(); }

}  // namespace sardonyx
