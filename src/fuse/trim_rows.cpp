// See trim_rows.h.
#include "fuse/trim_rows.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// The row that every load of v in `users` reads; empty if they differ, or if it is known only at run time.
Expr only_row(const Value* v, const std::vector<Node*>& users, std::size_t dim) {
  Expr row;
  for (const Node* n : users) {
    const auto* l = n->as<LoopOp>();
    if (!l) return Expr();
    bool ok = true;
    std::vector<std::pair<Expr, Expr>> first;  // variables of dims that are at most 1
    for (const Expr& var : l->vars)
      if (idx::provably_nonnegative(idx::sub(1, var->args[0]), true)) first.emplace_back(var, Expr(0));
    visit(l->body, [&](const Expr& x) {
      if (x->op != Op::kLoad || x->value != v) return;
      const Expr at = substitute(x->args[dim], first);
      if (at->has_var || at->has_load || (row && !same(row, at)))
        ok = false;
      else
        row = at;
    });
    if (!ok) return Expr();
  }
  return row;
}

}  // namespace

void trim_rows(Graph& g, const FuseOptions& options) {
  const auto required = required_values(g);
  const Uses uses = uses_of(g);
  for (const auto& n : g.nodes) {
    auto* m = n->as<MatMulOp>();
    if (!m || m->vars.size() < 2) continue;
    Value* v = n->outputs[0];
    const std::size_t dim = m->vars.size() - 2;
    const auto users = uses.find(v);
    if (is_const(v->shape[dim], 1) || users == uses.end()) continue;
    const bool whole = required.count(v) || std::find(g.outputs.begin(), g.outputs.end(), v) != g.outputs.end();
    const Expr row = whole ? Expr() : only_row(v, users->second, dim);
    if (!row) {
      if (std::any_of(users->second.begin(), users->second.end(),
                      [&](Node* user) { return static_cast<bool>(only_row(v, {user}, dim)); }))
        remark(options, "trim_rows", n->origin, [&] {
          return std::string(whole ? "all rows are computed: its result is an output, or a routine reads it"
                                   : "all rows are computed: its readers need different ones");
        });
      continue;
    }
    for (Node* user : users->second) {
      auto* l = user->as<LoopOp>();
      l->body = rewrite(l->body, [&](const Expr& x) -> Expr {
        if (!x->has_load) return x;
        if (x->op != Op::kLoad || x->value != v) return Expr();
        Exprs at = x->args;
        at[dim] = 0;
        return load(v, x->dtype, at);
      });
    }
    m->a = substitute(m->a, {{m->vars[dim], row}});
    v->shape[dim] = idx::min(1, v->shape[dim]);  // without rows none is computed
    m->vars[dim] = loop_var(v->shape[dim]);
    refresh_inputs(*n);
  }
}

}  // namespace sardonyx
