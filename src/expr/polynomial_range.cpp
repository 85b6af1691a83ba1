// What ranges of variables and symbols prove about polynomials; see polynomial.h.
#include <algorithm>
#include <unordered_map>

#include "expr/polynomial.h"

namespace sardonyx::polynomial {
namespace {

// An upper bound of `a`; empty if none is known.
Expr upper_bound(const Expr& a, int depth);

bool atom_nonnegative(const Expr& a, int depth) {
  switch (a->op) {
    case Op::kVar:
      return true;
    case Op::kSym:
      return a->f == 0;
    case Op::kMod:
      return true;  // by contract the divisor is positive
    case Op::kFloorDiv:
      return depth > 0 && idx::provably_nonnegative(a->args[0], true);
    case Op::kMax:
      return idx::provably_nonnegative(a->args[0], true) || idx::provably_nonnegative(a->args[1], true);
    case Op::kMin:
      return idx::provably_nonnegative(a->args[0], true) && idx::provably_nonnegative(a->args[1], true);
    case Op::kMul:
      return idx::provably_nonnegative(a->args[0], true) && idx::provably_nonnegative(a->args[1], true);
    case Op::kSelect:
      return idx::provably_nonnegative(a->args[1], true) && idx::provably_nonnegative(a->args[2], true);
    default:
      return false;
  }
}

// x // c <= upper bound of x // c, with the bound taken term by term. Nested quotients ask for the same bounds many
// times, so bounds are memoised.
Expr quotient_bound(const Expr& a, int depth) {
  constexpr std::size_t kMost = 4096;  // bounds that are kept, so that long-lived threads do not collect memory
  thread_local std::unordered_map<Expr, Expr, ExprHash, ExprSame> known[4];
  auto& memo = known[std::clamp(depth, 0, 3)];
  if (const auto it = memo.find(a); it != memo.end()) return it->second;
  Poly r;
  Expr bound;
  bool bounded = true;
  for (const Term& t : to_poly(a->args[0])) {
    if (t.atoms.empty()) {
      r = add(r, {t});
      continue;
    }
    if (t.c < 0) {
      bounded = false;
      break;
    }
    Poly x = constant_poly(t.c);
    for (const Expr& atom : t.atoms) {
      const Expr u = upper_bound(atom, depth - 1);
      x = mul(x, to_poly(u ? u : atom));
    }
    r = add(r, x);
  }
  if (bounded) bound = idx::floordiv(from_poly(r), a->args[1]);
  if (memo.size() >= kMost) memo.clear();
  memo.emplace(a, bound);
  return bound;
}

Expr upper_bound(const Expr& a, int depth) {
  switch (a->op) {
    case Op::kVar:
      return idx::sub(a->args[0], 1);
    case Op::kMod:
      return idx::sub(a->args[1], 1);
    case Op::kMin:
      return is_const(a->args[1]) ? a->args[1] : a->args[0];
    case Op::kFloorDiv:
      if (is_const(a->args[1]) && a->args[1]->i > 0 && depth > 0) return quotient_bound(a, depth);
      return Expr();
    default:
      return Expr();
  }
}

// Variables of symbolic extent and those beside them; more would take long.
constexpr std::size_t kMostVars = 3;

// The variables that are factors of terms; empty if one is a factor twice, if there are too many, or if the extents of
// all are numbers, for which bounds term by term are as good.
Exprs linear_vars(const Poly& p) {
  Exprs vars;
  bool symbolic = false;
  for (const Term& t : p)
    for (std::size_t k = 0; k < t.atoms.size(); ++k) {
      const Expr& a = t.atoms[k];
      if (a->op != Op::kVar) continue;
      if (k > 0 && same(t.atoms[k - 1], a)) return {};
      if (std::any_of(vars.begin(), vars.end(), [&](const Expr& v) { return same(v, a); })) continue;
      vars.push_back(a);
      symbolic |= !is_const(a->args[0]);
    }
  return symbolic && vars.size() <= kMostVars ? vars : Exprs();
}

Poly with_value(const Poly& p, const Expr& var, const Poly& value) {
  Poly out;
  for (const Term& t : p) {
    Poly x = constant_poly(t.c);
    for (const Expr& a : t.atoms) x = mul(x, same(a, var) ? value : to_poly(a));
    out.insert(out.end(), x.begin(), x.end());
  }
  normalize(out);
  return out;
}

// Whether p, without variables, is at least 0 where the loops over `vars` run at all: their extents are at least 1.
bool nonnegative_in_loops(const Poly& p, const Exprs& vars) {
  if (nonnegative(p, true, 3)) return true;
  for (const Expr& v : vars) {
    const Poly extent = to_poly(v->args[0]);
    if (extent.empty() || extent[0].atoms.empty() || extent[0].c <= 0) continue;
    for (const Term& t : p) {  // p = k (extent - 1) + what is left
      const std::int64_t k = t.c / extent[0].c;
      if (k <= 0 || order_atoms(t.atoms, extent[0].atoms) != 0) continue;
      if (nonnegative(add(add(p, extent, -k), constant_poly(k)), true, 3)) return true;
    }
  }
  return false;
}

// Whether p is at least 0 for all values of `vars` from number `at` on. In each of them it is linear, so that it is
// least at an end of the range. (Of an index of a tensor whose extent is a difference, such as the windows of a signal,
// the bounds of single terms say nothing.)
bool nonnegative_at_ends(const Poly& p, const Exprs& vars, std::size_t at) {
  if (p.size() > kMaxTerms) return false;
  if (at == vars.size()) return nonnegative_in_loops(p, vars);
  const Expr& v = vars[at];
  const Poly last = add(to_poly(v->args[0]), constant_poly(-1));
  return nonnegative_at_ends(with_value(p, v, {}), vars, at + 1) &&
         nonnegative_at_ends(with_value(p, v, last), vars, at + 1);
}

}  // namespace

bool nonnegative(Poly p, bool dims_positive, int depth) {
  // Positive terms: drop factors that can be 0. Negative terms: replace factors by their upper bounds.
  for (int round = 0; round < 6; ++round) {
    bool changed = false;
    Poly next;
    for (const Term& t : p) {
      bool all_nonnegative = true;
      for (const Expr& a : t.atoms) all_nonnegative &= atom_nonnegative(a, depth);
      if (!t.atoms.empty() && !all_nonnegative) return false;
      std::size_t replace = t.atoms.size();
      for (std::size_t k = 0; k < t.atoms.size(); ++k)
        if (t.atoms[k]->op == Op::kVar || t.atoms[k]->op == Op::kMod || t.atoms[k]->op == Op::kMin ||
            (t.c < 0 && t.atoms[k]->op == Op::kFloorDiv)) {
          replace = k;
          break;
        }
      if (replace == t.atoms.size()) {
        next.push_back(t);
        continue;
      }
      if (t.c > 0) {
        changed = true;  // the term is at least 0
        continue;
      }
      const Expr u = upper_bound(t.atoms[replace], depth);
      if (!u) {
        next.push_back(t);
        continue;
      }
      changed = true;
      Poly x = constant_poly(t.c);
      for (std::size_t k = 0; k < t.atoms.size(); ++k) x = mul(x, to_poly(k == replace ? u : t.atoms[k]));
      next.insert(next.end(), x.begin(), x.end());
    }
    normalize(next);
    p = std::move(next);
    if (!changed) break;
    if (p.size() > kMaxTerms) return false;
  }
  if (dims_positive) {  // s -> 1 + s
    Poly shifted;
    for (const Term& t : p) {
      Poly x = constant_poly(t.c);
      for (const Expr& a : t.atoms) {
        Poly atom = {{{a}, 1}};
        if (a->op == Op::kSym && a->f == 0) atom.push_back({{}, 1});
        x = mul(x, atom);
      }
      shifted.insert(shifted.end(), x.begin(), x.end());
    }
    normalize(shifted);
    p = std::move(shifted);
  }
  for (const Term& t : p)
    if (t.c < 0) return false;
  return true;
}

bool in_range(const Poly& p, const Expr& b) {  // 0 <= p < b
  const Poly left = add(add(to_poly(b), p, -1), constant_poly(-1));
  if (nonnegative(p, true, 3) && nonnegative(left, true, 3)) return true;
  const Exprs vars = linear_vars(p);
  return !vars.empty() && nonnegative_at_ends(p, vars, 0) && nonnegative_at_ends(left, vars, 0);
}

}  // namespace sardonyx::polynomial
