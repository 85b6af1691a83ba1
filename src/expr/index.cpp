// Index arithmetic: int64 expressions are computed as polynomials (polynomial.h), so that sums cancel and the divisions
// that reshapes make are simplified by the known ranges of variables.
#include <algorithm>
#include <numeric>

#include "expr/node.h"
#include "expr/polynomial.h"
#include "support/error.h"

namespace sardonyx {

namespace idx {

using namespace polynomial;  // its add and mul are called by their full names

Expr add(const Expr& a, const Expr& b) {
  if (is_const(a, 0)) return b;
  if (is_const(b, 0)) return a;
  Poly p = polynomial::add(to_poly(a), to_poly(b));
  recombine(p);
  return from_poly(p);
}

Expr sub(const Expr& a, const Expr& b) {
  if (is_const(b, 0)) return a;
  return from_poly(polynomial::add(to_poly(a), to_poly(b), -1));
}

Expr mul(const Expr& a, const Expr& b) {
  if (is_const(a, 1) || is_const(b, 0)) return b;
  if (is_const(b, 1) || is_const(a, 0)) return a;
  const Poly x = to_poly(a), y = to_poly(b);
  if (x.size() * y.size() > kMaxTerms) return make_node(Op::kMul, DType::kInt64, {a, b});
  return from_poly(polynomial::mul(x, y));
}

Expr floordiv(const Expr& a, const Expr& b) {
  if (is_const(b, 1)) return a;
  if (is_const(a) && is_const(b) && b->i > 0) {
    const std::int64_t q = a->i / b->i;
    return constant_int(a->i % b->i < 0 ? q - 1 : q);
  }
  if (is_const(b) && b->i <= 0) return make_node(Op::kFloorDiv, DType::kInt64, {a, b});
  const Poly p = to_poly(a), d = to_poly(b);
  if (d.empty()) return make_node(Op::kFloorDiv, DType::kInt64, {a, b});
  Poly q, r;
  divide(p, d, q, r);
  if (r.empty() || in_range(r, b)) return from_poly(q);
  // (D g + R) // (k g) = D // k when 0 <= R < g
  if (d.size() == 1) {
    for (const Term& t : r) {
      Term g = common_factor(t, d[0]);
      if (g.c == 1 && g.atoms.empty()) continue;
      Poly dq, dr;
      divide(r, {g}, dq, dr);
      Term k;
      if (!divide_term(d[0], g, k) || (k.c == 1 && k.atoms.empty())) continue;
      if (dr.empty() || in_range(dr, from_poly({g}))) {
        const Expr inner = floordiv(from_poly(dq), from_poly({k}));
        return add(from_poly(q), inner);
      }
    }
  }
  // (x // c) // d = x // (c d)
  const Expr rest = from_poly(r);
  if (rest->op == Op::kFloorDiv) {
    const Expr& c = rest->args[1];
    const bool fits = !is_const(c) || !is_const(b) || (c->i > 0 && c->i < (1LL << 31) && b->i < (1LL << 31));
    if (fits) return add(from_poly(q), floordiv(rest->args[0], mul(c, b)));
  }
  return add(from_poly(q), make_node(Op::kFloorDiv, DType::kInt64, {rest, b}));
}

Expr ceildiv(const Expr& a, const Expr& b) { return floordiv(sub(add(a, b), 1), b); }

Expr mod(const Expr& a, const Expr& b) {
  if (is_const(b, 1)) return 0;
  if (is_const(a) && is_const(b) && b->i > 0) {
    const std::int64_t m = a->i % b->i;
    return constant_int(m < 0 ? m + b->i : m);
  }
  if (is_const(b) && b->i <= 0) return make_node(Op::kMod, DType::kInt64, {a, b});
  const Poly d = to_poly(b);
  if (d.empty()) return make_node(Op::kMod, DType::kInt64, {a, b});
  Poly q, r;
  divide(to_poly(a), d, q, r);
  if (r.empty()) return 0;
  if (in_range(r, b)) return from_poly(r);
  if (d.size() == 1) {  // (D g + R) % (k g) = (D % k) g + R when 0 <= R < g
    for (const Term& t : r) {
      Term g = common_factor(t, d[0]);
      if (g.c == 1 && g.atoms.empty()) continue;
      Poly dq, dr;
      divide(r, {g}, dq, dr);
      Term k;
      if (!divide_term(d[0], g, k) || (k.c == 1 && k.atoms.empty())) continue;
      if (dr.empty() || in_range(dr, from_poly({g})))
        return add(mul(mod(from_poly(dq), from_poly({k})), from_poly({g})), from_poly(dr));
    }
  }
  return make_node(Op::kMod, DType::kInt64, {from_poly(r), b});
}

Expr min(const Expr& a, const Expr& b) {
  if (is_const(a) && is_const(b)) return constant_int(std::min(a->i, b->i));
  if (!a->has_load && !b->has_load) {
    if (provably_nonnegative(sub(b, a))) return a;
    if (provably_nonnegative(sub(a, b))) return b;
  }
  return order(a, b) <= 0 ? make_node(Op::kMin, DType::kInt64, {a, b}) : make_node(Op::kMin, DType::kInt64, {b, a});
}

Expr max(const Expr& a, const Expr& b) {
  if (is_const(a) && is_const(b)) return constant_int(std::max(a->i, b->i));
  if (!a->has_load && !b->has_load) {
    if (provably_nonnegative(sub(b, a))) return b;
    if (provably_nonnegative(sub(a, b))) return a;
  }
  return order(a, b) <= 0 ? make_node(Op::kMax, DType::kInt64, {a, b}) : make_node(Op::kMax, DType::kInt64, {b, a});
}

Expr product(const Exprs& dims) {
  Expr r = 1;
  for (const Expr& d : dims) r = mul(r, d);
  return r;
}

Expr linearize(const Exprs& indices, const Exprs& shape) {
  check(indices.size() == shape.size(), "{} indices into {} dims", indices.size(), shape.size());
  Expr offset = 0;
  for (std::size_t k = 0; k < shape.size(); ++k)
    if (!is_const(shape[k], 1)) offset = add(mul(offset, shape[k]), indices[k]);
  return offset;
}

Exprs delinearize(const Expr& offset, const Exprs& shape) {
  Exprs out(shape.size());
  Expr below = 1;
  for (std::size_t k = shape.size(); k-- > 0;) {
    if (is_const(shape[k], 1)) {
      out[k] = 0;
      continue;
    }
    bool outermost = true;
    for (std::size_t j = 0; j < k; ++j) outermost &= is_const(shape[j], 1);
    const Expr q = floordiv(offset, below);
    out[k] = outermost ? q : mod(q, shape[k]);
    below = mul(below, shape[k]);
  }
  return out;
}

bool split_affine(const Expr& e, const Expr& var, Expr& coefficient, Expr& rest) {
  Poly c, r;
  for (const Term& t : to_poly(e)) {
    std::size_t at = t.atoms.size(), count = 0;
    for (std::size_t k = 0; k < t.atoms.size(); ++k) {
      if (same(t.atoms[k], var)) {
        at = k;
        ++count;
        continue;
      }
      bool inside = false;
      if (t.atoms[k]->has_var) visit(t.atoms[k], [&](const Expr& x) { inside |= x->op == Op::kVar && x->i == var->i; });
      if (inside) return false;
    }
    if (count > 1) return false;
    if (count == 0) {
      r.push_back(t);
      continue;
    }
    Term x = t;
    x.atoms.erase(x.atoms.begin() + static_cast<std::ptrdiff_t>(at));
    c.push_back(x);
  }
  normalize(c);
  normalize(r);
  coefficient = from_poly(c);
  rest = from_poly(r);
  return true;
}

bool provably_nonnegative(const Expr& a, bool dims_positive) {
  if (is_const(a)) return a->i >= 0;
  static thread_local int nesting = 0;  // bounds depend on bounds: the recursion is limited
  if (nesting > 4) return false;
  ++nesting;
  const bool r = nonnegative(to_poly(a), dims_positive, 3);
  --nesting;
  return r;
}

bool provably_equal(const Expr& a, const Expr& b) { return same(a, b) || is_const(sub(a, b), 0); }

}  // namespace idx
}  // namespace sardonyx
