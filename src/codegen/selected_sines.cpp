// See selected_sines.h.
#include "codegen/selected_sines.h"

#include <algorithm>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::size_t kFewest = 4;  // sides: fewer may be whole packs of elements each

// Values of which the first whose condition holds is selected, or the last.
struct Sides {
  Exprs conditions, values;
};

Sides sides_of(const Expr& e) {
  Sides s;
  Expr x = e;
  for (; x->op == Op::kSelect; x = x->args[2]) {
    s.conditions.push_back(x->args[0]);
    s.values.push_back(x->args[1]);
  }
  s.values.push_back(x);
  return s;
}

bool is_sine(const Expr& e) { return e->op == Op::kSin || e->op == Op::kCos; }
bool has_sine(const Expr& e) { return is_sine(e) || (e->op == Op::kCast && is_sine(e->args[0])); }

// The number of the selected value, where conditions compare an index with bounds at equal distances; else empty.
Expr number_of(const Exprs& conditions) {
  std::int64_t first = 0, second = 0, bound = 0;
  if (conditions.size() < 2) return {};
  for (std::size_t k = 0; k < conditions.size(); ++k) {
    const Expr& c = conditions[k];
    if (c->op != Op::kLt || c->args[0]->dtype != DType::kInt64 || !same(c->args[0], conditions[0]->args[0]) ||
        !is_const_int(c->args[1], bound))
      return {};
    if (k == 0) first = bound;
    if (k == 1) second = bound;
    if (bound != first + (second - first) * static_cast<std::int64_t>(k)) return {};
  }
  const std::int64_t step = second - first, last = static_cast<std::int64_t>(conditions.size());
  if (step <= 0) return {};
  return idx::min(idx::floordiv(idx::max(conditions[0]->args[0] - Expr(first - step), 0), step), last);
}

// Integers that follow a rule of their number; empty: there is none.
Expr by_number(const Expr& number, const Exprs& values) {
  Exprs steps;
  for (std::size_t k = 1; k < values.size(); ++k) {
    if (!is_const(values[k]) || values[k]->dtype != DType::kInt64) return {};
    steps.push_back(values[k] - values[k - 1]);
  }
  const auto all = [&](auto holds) {
    for (std::size_t k = 1; k < steps.size(); ++k)
      if (!holds(steps[k - 1], steps[k])) return false;
    return true;
  };
  if (all([](const Expr& a, const Expr& b) { return same(a, b); })) return values[0] + number * steps[0];
  if (all([](const Expr& a, const Expr& b) { return is_const(a + b, 0); }))
    return values[0] + idx::mod(number, 2) * steps[0];
  return {};
}

// The selected one of the values. With a number, a condition implies the next one.
Expr selected(const Exprs& conditions, const Exprs& values) {
  const Expr number = number_of(conditions);
  if (number)
    if (const Expr x = by_number(number, values)) return x;
  Expr x = values.back();
  for (std::size_t k = values.size() - 1; k-- > 0;) {
    if (same(values[k], x) || (number && k + 1 < conditions.size() && same(values[k], values[k + 1]))) continue;
    x = select(conditions[k], values[k], x);
  }
  return x;
}

// The same of expressions that differ in numbers only, as one expression with selected numbers; empty: they do not.
Expr merged(const Exprs& conditions, Exprs xs) {
  const Expr& first = xs[0];
  const auto all = [&](auto holds) { return std::all_of(xs.begin(), xs.end(), holds); };
  if (all([&](const Expr& x) { return same(x, first); })) return first;
  if (!all([&](const Expr& x) { return x->dtype == first->dtype && !x->has_reduce; })) return {};
  if (all([](const Expr& x) { return is_const(x); })) return selected(conditions, xs);
  if (first->dtype == DType::kInt64 && all([](const Expr& x) { return !x->has_load; })) {
    Exprs beyond;
    for (const Expr& x : xs) beyond.push_back(x - first);
    const bool offsets = std::all_of(beyond.begin(), beyond.end(), [](const Expr& x) { return is_const(x); });
    return offsets ? first + selected(conditions, beyond) : selected(conditions, xs);
  }
  const auto arguments = [&](std::size_t k) {
    Exprs of;
    for (const Expr& x : xs) of.push_back(x->args[k]);
    return merged(conditions, of);
  };
  if (all(is_sine)) {
    const Expr x = arguments(0);
    if (!x) return {};
    Exprs kinds;
    for (const Expr& e : xs) kinds.push_back(Expr(e->op == Op::kSin ? 1 : 0));
    if (std::all_of(kinds.begin(), kinds.end(), [&](const Expr& k) { return same(k, kinds[0]); }))
      return unary(first->op, x);
    return select(compare(Op::kEq, selected(conditions, kinds), 1), unary(Op::kSin, x), unary(Op::kCos, x));
  }
  // x is x * 1.
  const auto scaled = [](const Expr& x) { return x->op == Op::kMul && is_const(x->args[1]); };
  if (is_float(first->dtype) && std::any_of(xs.begin(), xs.end(), scaled)) {
    Exprs numbers, factors;
    for (const Expr& x : xs) {
      numbers.push_back(scaled(x) ? x->args[0] : x);
      factors.push_back(scaled(x) ? x->args[1] : constant(1, x->dtype));
    }
    const Expr x = merged(conditions, numbers);
    return x ? binary(Op::kMul, x, selected(conditions, factors)) : Expr();
  }
  if (!all([&](const Expr& x) { return x->op == first->op && x->i == first->i && x->value == first->value; }))
    return {};
  if (first->op != Op::kLoad && first->op != Op::kCast && first->op != Op::kAdd && first->op != Op::kMul) return {};
  if (!all([&](const Expr& x) { return x->args.size() == first->args.size(); })) return {};
  Exprs args;
  for (std::size_t k = 0; k < first->args.size(); ++k) {
    args.push_back(arguments(k));
    if (!args.back()) return {};
  }
  if (first->op == Op::kLoad) return load(first->value, first->dtype, args);
  if (first->op == Op::kCast) return cast(args[0], first->dtype, static_cast<int>(first->i));
  return binary(first->op, args[0], args[1]);
}

// The chain with its longest run of sines merged; empty: there is none.
Expr merged_chain(const Sides& s) {
  std::size_t begin = 0, best = 0, at = 0;
  for (std::size_t k = 0; k <= s.values.size(); ++k) {
    if (k < s.values.size() && has_sine(s.values[k])) continue;
    if (k - begin > best) best = k - begin, at = begin;
    begin = k + 1;
  }
  if (best < kFewest) return {};
  const std::size_t end = at + best;
  const auto from = [](const Exprs& x, std::size_t a, std::size_t b) {
    return Exprs(x.begin() + static_cast<std::ptrdiff_t>(a), x.begin() + static_cast<std::ptrdiff_t>(b));
  };
  Expr x = merged(from(s.conditions, at, end - 1), from(s.values, at, end));
  if (!x) return {};
  if (end < s.values.size()) {
    Expr any = s.conditions[at];
    for (std::size_t k = at + 1; k < end; ++k) any = logical_or(any, s.conditions[k]);
    x = select(any, x, selected(from(s.conditions, end, s.conditions.size()), from(s.values, end, s.values.size())));
  }
  for (std::size_t k = at; k-- > 0;) x = select(s.conditions[k], s.values[k], x);
  return x;
}

}  // namespace

Expr merge_selected_sines(const Expr& body, const Expr& inner) {
  return rewrite(body, [&](const Expr& x) {
    if (x->op != Op::kSelect || !is_float(x->dtype) || !uses_var(x->args[0], inner)) return Expr();
    return merged_chain(sides_of(x));
  });
}

}  // namespace sardonyx::codegen
