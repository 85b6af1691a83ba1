// See choice.h.
#include "program/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMostTried = 1 << 20;  // largest value of a symbol that is tried when tilings are compared

constexpr std::int64_t kFewRows = 16, kMostFewRows = 64;

bool possible(const Candidate& c, const ProblemSizes& s, const SymbolValues& symbols) {
  if (c.applies && evaluate(c.applies, symbols) == 0) return false;
  return c.tiling.empty() || can_compute(c.tiling.front(), s.batches, s.m, s.n);
}

double cost_of(const Candidate& c, const ProblemSizes& s, const SymbolValues& symbols, int units) {
  const double cost = c.tiling.empty() ? static_cast<double>(evaluate(c.cost, symbols))
                                       : tiling_cost(c.tiling.front(), s.batches, s.m, s.n, s.k, units);
  // Programs are read from untrusted files: NaN must not break sorting.
  return std::isnan(cost) ? std::numeric_limits<double>::infinity() : cost;
}

template <typename F>
void for_expressions(const Choice& choice, const F& f) {
  for (const Expr* e : {&choice.batches, &choice.m, &choice.n, &choice.k}) f(*e);
  for (const Candidate& c : choice.candidates)
    for (const Expr* e : {&c.applies, &c.cost})
      if (*e) f(*e);
}

}  // namespace

bool evaluable(const Expr& e, const SymbolValues& symbols) {
  bool known = true;
  if (e->has_sym)
    visit(e, [&](const Expr& x) { known = known && (x->op != Op::kSym || symbols.has(static_cast<int>(x->i))); });
  return known;
}

ProblemSizes sizes_of(const Choice& c, const SymbolValues& symbols) {
  return {evaluate(c.batches, symbols), evaluate(c.m, symbols), evaluate(c.n, symbols), evaluate(c.k, symbols)};
}

bool decidable(const Choice& choice, const SymbolValues& symbols) {
  bool known = true;
  for_expressions(choice, [&](const Expr& e) { known = known && evaluable(e, symbols); });
  return known;
}

std::size_t index_of(const Choice& choice, std::string_view name) {
  const auto at = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                               [&](const Candidate& c) { return c.name == name; });
  return static_cast<std::size_t>(at - choice.candidates.begin());
}

std::vector<std::size_t> by_cost(const Choice& choice, const SymbolValues& symbols, int units) {
  const ProblemSizes s = sizes_of(choice, symbols);
  std::vector<std::size_t> order;
  std::vector<double> costs;
  for (std::size_t k = 0; k < choice.candidates.size(); ++k) {
    const Candidate& c = choice.candidates[k];
    const bool can = possible(c, s, symbols);
    costs.push_back(can ? cost_of(c, s, symbols, units) : 0);
    if (can) order.push_back(k);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] < costs[b]; });
  return order;
}

std::size_t chosen_candidate(const Choice& choice, const SymbolValues& symbols, int units,
                             const std::vector<std::string>& names) {
  const ProblemSizes s = sizes_of(choice, symbols);
  for (const TunedSize& t : choice.tuned) {
    if (t.sizes != s) continue;
    // The library may not be installed, or in another version, so there may be no candidate of this name.
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), t.candidate) - names.begin());
    if (at == names.size() || (at < choice.candidates.size() && !possible(choice.candidates[at], s, symbols))) continue;
    return at;
  }
  const std::vector<std::size_t> order = by_cost(choice, symbols, units);
  check(!order.empty(), "no candidate for '{}' computes {} x {} x {} x {}", choice.problem, s.batches, s.m, s.n, s.k);
  return order.front();
}

std::size_t chosen_candidate(const Choice& choice, const SymbolValues& symbols, int units) {
  return chosen_candidate(choice, symbols, units, names_of(choice));
}

std::vector<std::string> names_of(const Choice& choice) {
  std::vector<std::string> names;
  for (const Candidate& c : choice.candidates) names.push_back(c.name);
  return names;
}

bool may_be(const Choice& c, const ProblemSizes& sizes) {
  const auto allows = [](const Expr& e, std::int64_t size) {
    std::int64_t known = 0;
    return !is_const_int(e, known) || known == size;
  };
  return allows(c.batches, sizes.batches) && allows(c.m, sizes.m) && allows(c.n, sizes.n) && allows(c.k, sizes.k);
}

namespace {

/// What the candidates cost for sizes that a run can have; infinity: not possible.
using Costs = std::vector<double>;

/// Sizes that are tried: all symbols alike, as powers of two. M is often a product of sizes, of which all but one are 1
/// while decoding: where kernels for few rows go far (those of packed weights), every power of two is tried for one
/// symbol, and counts if such a kernel is taken.
std::vector<Costs> tried_costs(const Choice& choice, int units) {
  std::vector<Costs> all;
  // False for sizes that overflow 64 bits.
  const auto add = [&](const SymbolValues& symbols, bool few_rows_only) {
    try {
      const ProblemSizes s = sizes_of(choice, symbols);
      Costs costs;
      for (const Candidate& c : choice.candidates)
        costs.push_back(possible(c, s, symbols) ? cost_of(c, s, symbols, units)
                                                : std::numeric_limits<double>::infinity());
      // Ranks, which are negative, are not times.
      const double least = *std::min_element(costs.begin(), costs.end());
      if (!std::isinf(least) && !(few_rows_only && least > 0)) all.push_back(std::move(costs));
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::set<int> symbols_used;
  for_expressions(choice, [&](const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x->op == Op::kSym) symbols_used.insert(static_cast<int>(x->i));
    });
  });
  for (std::int64_t size = 1; size <= kMostTried; size *= 2) {
    SymbolValues symbols;
    for (const int k : symbols_used) symbols.set(k, size);
    if (!add(symbols, false)) break;
  }
  const bool far = std::any_of(choice.candidates.begin(), choice.candidates.end(), [](const Candidate& c) {
    return !c.tiling.empty() && c.tiling.front().few_rows && c.tiling.front().rows > kFewRows;
  });
  for (const int one : symbols_used)
    for (std::int64_t size = 2; far && size <= kMostFewRows; size *= 2) {
      SymbolValues symbols;
      for (const int k : symbols_used) symbols.set(k, k == one ? size : 1);
      if (!add(symbols, true)) break;
    }
  return all;
}

}  // namespace

std::vector<bool> taken_by_rule(const Choice& choice, int units) {
  std::vector<bool> taken;
  bool tilings = false;
  for (const Candidate& c : choice.candidates) {
    taken.push_back(c.tiling.empty() && (!is_const(c.cost) || is_const(c.cost, 0)));
    tilings = tilings || !c.tiling.empty();
  }
  if (!tilings) return taken;
  for (const Costs& c : tried_costs(choice, units))
    taken[static_cast<std::size_t>(std::min_element(c.begin(), c.end()) - c.begin())] = true;
  return taken;
}

}  // namespace sardonyx
