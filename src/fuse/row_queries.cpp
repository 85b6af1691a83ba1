// See row_queries.h.
#include "fuse/row_queries.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {

bool has_inner(const Node& loop, const std::vector<int>& outer_at) {
  const auto* l = loop.as<LoopOp>();
  for (std::size_t k = 0; k < l->vars.size(); ++k)
    if (outer_at[k] < 0 && !is_const(l->vars[k]->args[0], 1)) return true;
  return false;
}

std::vector<std::int64_t> row_lengths(const Node& loop, const std::vector<int>& outer_at) {
  const auto* l = loop.as<LoopOp>();
  std::vector<std::int64_t> found;
  const auto add = [&](const Expr& length) {
    std::int64_t known = 0;
    found.push_back(is_const_int(length, known) ? known : 0);
  };
  Expr row = 1;
  for (std::size_t k = 0; k < l->vars.size(); ++k)
    if (outer_at[k] < 0) row = row * l->vars[k]->args[0];
  if (!is_const(row, 1)) add(row);
  visit(l->body, [&](const Expr& x) {
    if (x->op != Op::kReduce) return;
    Expr terms = 1;
    for (const Expr& v : x->vars) terms = terms * v->args[0];
    add(terms);
  });
  return found;
}

bool most_terms(const Node& loop, std::int64_t& longest) {
  bool known = true;
  visit(loop.as<LoopOp>()->body, [&](const Expr& x) {
    if (x->op != Op::kReduce) return;
    Expr terms = 1;
    std::int64_t count = 0;
    for (const Expr& v : x->vars) terms = terms * v->args[0];
    known &= is_const_int(terms, count);
    longest = std::max(longest, count);
  });
  return known;
}

Exprs innermost_of(const Node& loop) {
  const auto& vars = loop.as<LoopOp>()->vars;
  const std::vector<int>& order = loop.outputs[0]->storage_order;
  for (std::size_t k = vars.size(); k-- > 0;) {
    const Expr& v = vars[order.empty() ? k : static_cast<std::size_t>(order[k])];
    if (!is_const(v->args[0], 1)) return {v};
  }
  return {};
}

int innermost_outer(const Node& loop, const std::vector<int>& outer_at) {
  const auto& vars = loop.as<LoopOp>()->vars;
  const std::vector<int>& order = loop.outputs[0]->storage_order;
  for (std::size_t k = vars.size(); k-- > 0;) {
    const std::size_t d = order.empty() ? k : static_cast<std::size_t>(order[k]);
    if (!is_const(vars[d]->args[0], 1)) return outer_at[d];
  }
  return -1;
}

}  // namespace sardonyx
