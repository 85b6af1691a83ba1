// Internal to expr/: int64 expressions as polynomials over atoms. An atom is any expression that is not a sum, a
// difference or a product: a symbol, a loop variable, a quotient. Arithmetic wraps, as the expressions' own does.
#pragma once
#include <cstdint>
#include <vector>

#include "expr/expr.h"

namespace sardonyx::polynomial {

/// Products with more terms stay unexpanded.
inline constexpr std::size_t kMaxTerms = 64;

/// c times the product of `atoms`.
struct Term {
  Exprs atoms;  ///< sorted by order()
  std::int64_t c;
};
/// A sum of terms, sorted by their atoms. No term has the coefficient 0.
using Poly = std::vector<Term>;

/// Negative, 0 or positive: terms of higher degree come first, the constant last.
int order_atoms(const Exprs& a, const Exprs& b);
/// Sorts the terms and adds up those with the same atoms.
void normalize(Poly& p);
Poly constant_poly(std::int64_t c);
/// a + scale * b
Poly add(const Poly& a, const Poly& b, std::int64_t scale = 1);
Poly mul(const Poly& a, const Poly& b);
Poly to_poly(const Expr& e);
Expr from_poly(const Poly& p);

/// q = t / d, if every atom of d is in t and the coefficient of d divides that of t; false if not.
bool divide_term(const Term& t, const Term& d, Term& q);
/// p = q * b + r, where r keeps the terms that b does not divide.
void divide(const Poly& p, const Poly& b, Poly& q, Poly& r);
/// Replaces k (x // b) b + k (x % b) by k x: an index that was split and put together again.
void recombine(Poly& p);
/// The atoms that both terms have, with the greatest common divisor of their coefficients.
Term common_factor(const Term& a, const Term& b);

/// Whether p is proven to be at least 0, given the ranges of variables, remainders and minima. `dims_positive`: symbols
/// are at least 1, not only 0. `depth` bounds the recursion into quotients.
bool nonnegative(Poly p, bool dims_positive, int depth);
/// Whether 0 <= p < b is proven.
bool in_range(const Poly& p, const Expr& b);

}  // namespace sardonyx::polynomial
