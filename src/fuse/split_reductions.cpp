// See split_reductions.h.
#include "fuse/split_reductions.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kWorkgroups = 1024;   // that keep a card busy
constexpr std::int64_t kFewResults = 64;     // so few that it is worth two kernels whatever the length is
constexpr std::int64_t kLongRow = 65536;     // so long that it is worth them whatever the number of rows is
constexpr std::int64_t kLeastRow = 32768;    // shorter rows take one workgroup less time than another kernel costs
constexpr std::int64_t kLeastPart = 4096;    // elements of a row
constexpr std::int64_t kLeastColumn = 512;   // elements of a column, which up to 128 threads share
constexpr std::int64_t kColumnGroups = 264;  // workgroups that keep a card's memory busy
constexpr std::int64_t kGroupColumns = 16;   // columns of a workgroup, at least
constexpr std::int64_t kMultiple = 16;       // of elements in each part, so that all begin where a pack may
constexpr std::int64_t kPartsOfLongRow = 16;
constexpr std::int64_t kMostPartsOfArg = 64;  // comparing takes instructions, which more workgroups share
constexpr std::int64_t kMostPartsOfColumn = 256;
constexpr std::int64_t kTeamColumn = 6144;     // shorter ones are worth no second kernel
constexpr std::int64_t kMostTaps = 2048;       // of a window
constexpr std::int64_t kEnoughWindows = 4096;  // results of a window that are worth no second kernel

// Reductions of `e` that are always evaluated.
void certain_reductions(const Expr& e, Exprs& out) {
  if (!e->has_reduce) return;
  if (e->op == Op::kReduce) {
    if (std::none_of(out.begin(), out.end(), [&](const Expr& r) { return same(r, e); })) out.push_back(e);
    return;
  }
  if (e->op == Op::kSelect) return certain_reductions(e->args[0], out);
  for (const Expr& a : e->args) certain_reductions(a, out);
}

// How many loads that depend on any of `reduced` move by one element of a row-major tensor with `var`. (Others, such as
// of a mean in a sum of squares, are one element for all that is summed up.)
int unit_loads(const Expr& body, const Expr& var, const Exprs& reduced) {
  int n = 0;
  visit(body, [&](const Expr& x) {
    Expr c, rest;
    if (x->op == Op::kLoad &&
        std::any_of(reduced.begin(), reduced.end(), [&](const Expr& r) { return mentions(x, r); }) &&
        x->value->storage_order.empty() && idx::split_affine(idx::linearize(x->args, x->value->shape), var, c, rest) &&
        is_const(c, 1))
      ++n;
  });
  return n;
}

class Splitter {
 public:
  explicit Splitter(Graph& g) : g_(g) {}

  // The reduction of parts' results that is `r`, or empty if r stays as it is.
  Expr split(const Expr& r, const Exprs& vars) {
    const auto kind = static_cast<ReduceKind>(r->i);
    const bool arg = kind >= ReduceKind::kArgMin;
    if (r->args[0]->has_reduce || (arg && r->vars.size() != 1)) return {};
    Exprs kept, dims;
    for (const Expr& v : vars) {
      if (mentions(r, v)) kept.push_back(v);
    }
    for (const Expr& v : r->vars) {
      if (v->args[0]->has_var || v->args[0]->has_load) return {};
      dims.push_back(v->args[0]);
    }
    Expr results = 1;
    for (const Expr& v : kept) results = results * v->args[0];
    const Expr count = idx::product(dims);
    if (is_window(r, results, count)) return {};
    const bool columns = !kept.empty() && unit_loads(r->args[0], kept.back(), r->vars) > 0;
    std::int64_t parts = columns ? parts_of_columns(results, count) : parts_of_rows(results, count);
    // A part without elements would have no position to give.
    if (arg && parts > 1 && is_const(count) && !columns) parts = even_parts(count->i);
    if (parts < 2) return {};

    // One index through all that is summed over, in parts of equal length but for the last ones.
    const bool even = is_const(count) && count->i % (parts * kMultiple) == 0;
    const Expr length = idx::ceildiv(count, parts * kMultiple) * Expr(kMultiple);
    if (arg && !even) return {};
    const Expr part = loop_var(parts), begin = part * length;
    const Expr at = loop_var(even ? length : idx::min(length, count - begin));
    std::vector<std::pair<Expr, Expr>> replace;
    const Exprs index = idx::delinearize(begin + at, dims);
    for (std::size_t k = 0; k < dims.size(); ++k) replace.emplace_back(r->vars[k], index[k]);
    Exprs outer;
    for (const Expr& v : kept) {
      outer.push_back(loop_var(v->args[0]));
      replace.emplace_back(v, outer.back());
    }
    const Expr body = substitute(r->args[0], replace);
    if (!columns && unit_loads(body, at, {at}) == 0) return {};  // its indices are divisions: no gain
    outer.insert(columns ? outer.begin() : outer.end(), part);
    Value* partial = g_.add_loop(outer, arg ? begin + reduce(kind, {at}, body) : reduce(kind, {at}, body));
    const Expr k = loop_var(parts);
    Exprs own = kept;  // of a result
    kept.insert(columns ? kept.begin() : kept.end(), k);
    const Expr of_part = load(partial, partial->dtype, kept);
    if (!arg) return reduce(kind, {k}, of_part);
    // The best of the parts' best: first which part it is of.
    Exprs over;
    std::vector<std::pair<Expr, Expr>> fresh;
    for (const Expr& v : own) {
      over.push_back(loop_var(v->args[0]));
      fresh.emplace_back(v, over.back());
    }
    const Expr best = reduce(kind, {k}, substitute(r->args[0], {{r->vars[0], of_part}}));
    const Value* which = g_.add_loop(over, substitute(best, fresh));
    kept[columns ? 0 : kept.size() - 1] = load(which, which->dtype, own);
    return load(partial, partial->dtype, kept);
  }

 private:
  // Windows of enough results are short sums that read the same elements: splitting them only adds a kernel.
  static bool is_window(const Expr& r, const Expr& results, const Expr& count) {
    std::int64_t n = 0, terms = 0;
    return r->vars.size() > 1 && is_const_int(count, terms) && terms <= kMostTaps &&
           (!is_const_int(results, n) || n >= kEnoughWindows);
  }

  // Parts of equal length, if there is such a number.
  static std::int64_t even_parts(std::int64_t length) {
    std::int64_t parts = kMostPartsOfArg;
    while (parts > 1 && length % (parts * kMultiple) != 0) --parts;
    return parts;
  }

  static std::int64_t parts_of_rows(const Expr& results, const Expr& count) {
    std::int64_t n = 0, length = 0;
    const bool few = is_const_int(results, n), known = is_const_int(count, length);
    if (known) {
      const std::int64_t most = length / kLeastPart;
      if (few) return n > 0 && length >= kLeastRow ? std::min(kWorkgroups / n, most) : 0;
      return length >= kLongRow ? std::min(kPartsOfLongRow, most) : 0;
    }
    return few && n > 0 && n <= kFewResults ? kWorkgroups / n : 0;
  }

  static std::int64_t parts_of_columns(const Expr& results, const Expr& count) {
    std::int64_t n = 0, length = 0;
    if (!is_const_int(results, n) || n == 0) return 0;
    if (is_const_int(count, length) && length <= kTeamColumn) return 0;  // a team of threads reduces one in one kernel
    const std::int64_t groups = (n + kGroupColumns - 1) / kGroupColumns;
    const std::int64_t wanted = std::min(kMostPartsOfColumn, kColumnGroups / groups);
    return is_const_int(count, length) ? std::min(wanted, length / kLeastColumn) : wanted;
  }

  Graph& g_;
};

}  // namespace

void split_reductions(Graph& g) {
  const auto constants = constant_nodes(g);
  std::vector<Node*> nodes;
  for (const auto& n : g.nodes)
    if (n->as<LoopOp>() && n->as<LoopOp>()->body->has_reduce && !constants.count(n.get())) nodes.push_back(n.get());
  bool changed = false;
  for (Node* n : nodes) {
    auto* l = n->as<LoopOp>();
    Exprs reductions;
    certain_reductions(l->body, reductions);
    std::vector<std::pair<Expr, Expr>> done;
    g.origin = n->origin;
    for (const Expr& r : reductions)
      if (const Expr y = Splitter(g).split(r, l->vars)) done.emplace_back(r, y);
    g.origin.clear();
    if (done.empty()) continue;
    l = n->as<LoopOp>();
    l->body = rewrite(l->body, [&](const Expr& x) -> Expr {
      if (!x->has_reduce) return x;
      for (const auto& [from, to] : done)
        if (same(from, x)) return to;
      return Expr();
    });
    refresh_inputs(*n);
    changed = true;
  }
  if (changed) sort_nodes(g);
}

}  // namespace sardonyx
