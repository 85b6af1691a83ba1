#include "codegen/softmax_rows.h"

#include <algorithm>

#include "codegen/loop_analysis.h"

namespace sardonyx::codegen {
namespace {

constexpr double kLeastExponent = -87;        // exp of it is a normal number
constexpr std::int64_t kMostTerms = 1 << 12;  // 16 KB

bool is_reduction(const Expr& e, ReduceKind kind) {
  return e->op == Op::kReduce && static_cast<ReduceKind>(e->i) == kind;
}

/// The maximum over one variable that a stage computes, possibly beside a constant; or empty.
Expr maximum_of(const Expr& body) {
  if (is_reduction(body, ReduceKind::kMax)) return body->vars.size() == 1 ? body : Expr();
  if (body->op != Op::kMax) return {};
  for (std::size_t k = 0; k < 2; ++k)
    if (is_const(body->args[1 - k])) return maximum_of(body->args[k]);
  return {};
}

/// Variables that may stand for a place in a row.
Exprs row_vars(const Stage& stage, const Expr& body) {
  Exprs vars = stage.inner;
  visit(body, [&](const Expr& e) {
    if (e->op == Op::kReduce) vars.insert(vars.end(), e->vars.begin(), e->vars.end());
  });
  return vars;
}

Expr flushed(const Expr& argument) {
  const Expr least = constant_float(kLeastExponent, argument->dtype);
  const Expr kept = cast(compare(Op::kGe, argument, least), argument->dtype);  // 0 for NaN, times which it stays NaN
  return binary(Op::kMul, unary(Op::kExp, binary(Op::kMax, argument, least)), kept);
}

}  // namespace

void flush_small_exponentials(const std::vector<Stage>& stages, std::vector<Expr>& bodies) {
  for (std::size_t k = 1; k < stages.size(); ++k) {
    const Exprs vars = row_vars(stages[k], bodies[k]);
    const auto is_row_maximum = [&](const Expr& scores, const Expr& top) {
      if (top->op != Op::kLoad) return false;
      for (std::size_t j = 0; j < k; ++j) {
        if (stages[j].out != top->value || !stages[j].inner.empty()) continue;
        const Expr maximum = maximum_of(bodies[j]);
        return maximum && std::any_of(vars.begin(), vars.end(), [&](const Expr& v) {
                 return same(v->args[0], maximum->vars[0]->args[0]) &&
                        same(substitute(maximum->args[0], {{maximum->vars[0], v}}), scores);
               });
      }
      return false;
    };
    bodies[k] = rewrite(bodies[k], [&](const Expr& e) -> Expr {
      if (e->op != Op::kExp || e->dtype != DType::kFloat32 || e->args[0]->op != Op::kSub) return {};
      return is_row_maximum(e->args[0]->args[0], e->args[0]->args[1]) ? flushed(e->args[0]) : Expr();
    });
  }
}

std::optional<KeptTerms> find_kept_terms(const std::vector<Stage>& stages, const std::vector<Expr>& bodies,
                                         std::size_t stage) {
  if (!stages[stage].inner.empty()) return std::nullopt;
  Exprs sums;
  top_reductions(bodies[stage], sums);
  for (const Expr& sum : sums) {
    KeptTerms kept{.sum = sum};
    if (!is_reduction(sum, ReduceKind::kSum) || sum->vars.size() != 1 || sum->dtype != DType::kFloat32) continue;
    if (!is_const_int(sum->vars[0]->args[0], kept.count) || kept.count > kMostTerms) continue;
    bool exponential = false;
    visit(sum->args[0], [&](const Expr& e) { exponential |= e->op == Op::kExp; });
    if (!exponential) continue;
    for (kept.stage = stage + 1; kept.stage < stages.size(); ++kept.stage) {
      for (const Expr& v : stages[kept.stage].inner) {
        if (!same(v->args[0], sum->vars[0]->args[0])) continue;
        kept.var = v;
        kept.again = substitute(sum->args[0], {{sum->vars[0], v}});
        bool found = false;
        visit(bodies[kept.stage], [&](const Expr& e) { found |= same(e, kept.again); });
        if (found) return kept;
      }
    }
  }
  return std::nullopt;
}

}  // namespace sardonyx::codegen
