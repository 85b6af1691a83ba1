// See separate_windows.h.
#include "fuse/separate_windows.h"

#include <algorithm>
#include <optional>

#include "fuse/windows.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kLeastSaved = 2;  // a window has so many times the terms of its two reductions

bool mentions_any(const Expr& e, const Exprs& vars) {
  return std::any_of(vars.begin(), vars.end(), [&](const Expr& v) { return mentions(e, v); });
}

void conjuncts(const Expr& e, Exprs& out) {
  if (e->op != Op::kAnd) return out.push_back(e);
  conjuncts(e->args[0], out);
  conjuncts(e->args[1], out);
}

// A reduction of f(element) over a window, outside of which elements count as a known value.
struct SlidingWindow {
  Expr element;      // the load
  Expr value;        // f(element)
  Expr outside;      // empty if all windows are inside
  Exprs conditions;  // that an element is inside
};

std::optional<SlidingWindow> sliding_window(const Expr& r) {
  SlidingWindow w;
  w.value = r->args[0];
  if (w.value->op == Op::kSelect) {
    conjuncts(w.value->args[0], w.conditions);
    w.outside = w.value->args[2];
    w.value = w.value->args[1];
    if (!is_const(w.outside)) return {};
  }
  int loads = 0;
  bool plain = true;
  visit(w.value, [&](const Expr& e) {
    if (e->op == Op::kLoad) {
      ++loads;
      w.element = e;
    }
    plain &= e->op != Op::kReduce && e->op != Op::kRandom;
  });
  if (loads != 1 || !plain) return {};
  // f depends on nothing but the element.
  const Expr f = rewrite(w.value, [&](const Expr& e) { return same(e, w.element) ? constant(0, e->dtype) : Expr(); });
  if (f->has_var || f->has_sym || w.element->args.empty()) return {};
  for (const Expr& c : w.conditions)
    if (c->has_load) return {};
  return w;
}

class Separator {
 public:
  Separator(Graph& g, const FuseOptions& options) : g_(g), least_(options.separate_windows) {}

  // `r` over windows of one dim less, of results along the last dim of the window; empty if r stays as it is.
  Expr separate(const Expr& r, const Exprs& vars) {
    const auto kind = static_cast<ReduceKind>(r->i);
    if (kind != ReduceKind::kMax && kind != ReduceKind::kMin && kind != ReduceKind::kSum) return {};
    std::int64_t terms = 1, n = 0;
    for (const Expr& v : r->vars) {
      if (!is_const_int(v->args[0], n) || n < 1) return {};
      terms *= n;
    }
    if (r->vars.size() < 2 || terms < least_ || terms > kMostTaps) return {};
    const std::optional<SlidingWindow> w = sliding_window(r);
    if (!w) return {};
    // The dim along which the first loop reduces, and the variable of the results along it.
    const Expr tap = r->vars.back();
    const Exprs others(r->vars.begin(), r->vars.end() - 1);
    const Exprs& at = w->element->args;
    const auto dim = std::find_if(at.begin(), at.end(), [&](const Expr& e) { return mentions(e, tap); });
    if (dim == at.end() || mentions_any(*dim, others)) return {};
    const auto result = std::find_if(vars.begin(), vars.end(), [&](const Expr& v) { return mentions(*dim, v); });
    if (result == vars.end()) return {};
    const std::size_t d = static_cast<std::size_t>(dim - at.begin());
    for (const Expr& v : vars)
      if (!same(v, *result) && mentions(*dim, v)) return {};
    for (std::size_t k = 0; k < at.size(); ++k)
      if (k != d && (mentions(at[k], tap) || mentions(at[k], *result) || at[k]->has_load)) return {};
    Exprs first, second;
    for (const Expr& c : w->conditions) {
      const bool along = mentions(c, tap) || mentions(c, *result);
      if (along && (mentions_any(c, others) || mentions_others(c, vars, *result))) return {};
      (along ? first : second).push_back(c);
    }
    if (!pays(*w, r, tap, d, vars)) return {};
    return of_parts(r, *w, d, *result, first, second);
  }

 private:
  static bool mentions_others(const Expr& e, const Exprs& vars, const Expr& but) {
    return std::any_of(vars.begin(), vars.end(), [&](const Expr& v) { return !same(v, but) && mentions(e, v); });
  }

  // Whether the windows overlap enough. Strides along the other dims make the first loop compute what nothing reads, or
  // more results than there are.
  static bool pays(const SlidingWindow& w, const Expr& r, const Expr& tap, std::size_t d, const Exprs& vars) {
    const auto terms = [](const Expr& v) { return static_cast<double>(v->args[0]->i); };
    double rest = 1, more = 1;  // results of the first loop for each result
    Expr step, other;
    for (const Expr& v : r->vars)
      if (!same(v, tap)) rest *= terms(v);
    for (std::size_t k = 0; k < w.element->args.size(); ++k) {
      const Expr& at = w.element->args[k];
      if (k == d || !mentions_any(at, r->vars)) continue;
      const auto v = std::find_if(vars.begin(), vars.end(), [&](const Expr& x) { return mentions(at, x); });
      std::int64_t n = 0, outputs = 0, inputs = 0;
      if (v == vars.end()) return false;
      if (is_const_int((*v)->args[0], outputs) && is_const_int(w.element->value->shape[k], inputs) && outputs > 0)
        more *= static_cast<double>(inputs) / static_cast<double>(outputs);
      else if (idx::split_affine(at, *v, step, other) && is_const_int(step, n) && n > 0)
        more *= static_cast<double>(n);
      else
        return false;
    }
    return rest * terms(tap) >= static_cast<double>(kLeastSaved) * (rest + more * terms(tap));
  }

  Expr of_parts(const Expr& r, const SlidingWindow& w, std::size_t d, const Expr& result, const Exprs& first,
                const Exprs& second) {
    const auto kind = static_cast<ReduceKind>(r->i);
    const Expr tap = r->vars.back(), x = w.element;
    const auto within = [&](const Exprs& conditions, const Expr& value) {
      if (conditions.empty()) return value;
      Expr all = conditions[0];
      for (std::size_t k = 1; k < conditions.size(); ++k) all = logical_and(all, conditions[k]);
      return select(all, value, w.outside);
    };
    Exprs outer;
    for (const Expr& size : x->value->shape) outer.push_back(loop_var(size));
    const Expr along = outer[d] = loop_var(result->args[0]), k = loop_var(tap->args[0]);
    Exprs at = outer;
    const std::vector<std::pair<Expr, Expr>> replace = {{result, along}, {tap, k}};
    at[d] = substitute(x->args[d], replace);
    const Expr element = load(x->value, x->dtype, at);
    const Expr value = rewrite(w.value, [&](const Expr& e) { return same(e, x) ? element : Expr(); });
    Exprs inside;
    for (const Expr& c : first) inside.push_back(substitute(c, replace));
    Expr part = reduce(kind, {k}, within(inside, value));
    // The extreme of elements, or of padding, is one of them.
    Expr bare = w.value;
    while (bare->op == Op::kCast && is_float(bare->dtype) && is_float(bare->args[0]->dtype)) bare = bare->args[0];
    const bool exact = kind != ReduceKind::kSum && same(bare, x) && is_float(x->dtype) &&
                       size_of(x->dtype) <= size_of(r->dtype) && size_of(x->dtype) >= 2;
    if (exact) part = cast(part, x->dtype);
    const Value* parts = g_.add_loop(outer, part);
    Exprs of_part = x->args;
    of_part[d] = result;
    const Exprs others(r->vars.begin(), r->vars.end() - 1);
    return reduce(kind, others, within(second, cast(load(parts, parts->dtype, of_part), r->dtype)));
  }

  Graph& g_;
  const std::int64_t least_;
};

}  // namespace

void separate_windows(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  std::vector<Node*> nodes;
  for (const auto& n : g.nodes)
    if (n->as<LoopOp>() && n->as<LoopOp>()->body->has_reduce && !constants.count(n.get())) nodes.push_back(n.get());
  bool changed = false;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    Node* n = nodes[k];
    const Exprs vars = n->as<LoopOp>()->vars;
    g.origin = n->origin;
    bool separated = true;
    while (separated) {
      separated = false;
      const Expr body = rewrite(n->as<LoopOp>()->body, [&](const Expr& e) -> Expr {
        if (!e->has_reduce) return e;
        if (e->op != Op::kReduce) return Expr();
        const Expr y = Separator(g, options).separate(e, vars);
        separated |= static_cast<bool>(y);
        return y ? y : e;
      });
      if (separated) n->as<LoopOp>()->body = body;
      changed |= separated;
    }
    g.origin.clear();
    refresh_inputs(*n);
  }
  if (changed) sort_nodes(g);
}

}  // namespace sardonyx
