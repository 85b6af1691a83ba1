// Index arithmetic: int64 expressions as polynomials over atoms (symbols, variables, quotients ...), with the divisions
// that reshapes make simplified by what is known of each variable's range.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "expr/node.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxTerms = 64;  // beyond this, products stay unexpanded

struct Term {
  Exprs atoms;  // sorted by order()
  std::int64_t c;
};
using Poly = std::vector<Term>;  // sorted by atoms; no zero coefficients

int order_atoms(const Exprs& a, const Exprs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? 1 : -1;  // higher degree first, the constant last
  for (std::size_t k = 0; k < a.size(); ++k)
    if (int c = order(a[k], b[k])) return c;
  return 0;
}

std::int64_t wrap_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
std::int64_t wrap_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

void normalize(Poly& p) {
  std::sort(p.begin(), p.end(), [](const Term& a, const Term& b) { return order_atoms(a.atoms, b.atoms) < 0; });
  Poly out;
  for (Term& t : p) {
    if (!out.empty() && order_atoms(out.back().atoms, t.atoms) == 0)
      out.back().c = wrap_add(out.back().c, t.c);
    else
      out.push_back(std::move(t));
    if (out.back().c == 0) out.pop_back();
  }
  p = std::move(out);
}

Poly constant_poly(std::int64_t c) { return c ? Poly{{{}, c}} : Poly{}; }

Poly add(const Poly& a, const Poly& b, std::int64_t scale = 1) {
  Poly r = a;
  for (const Term& t : b) r.push_back({t.atoms, wrap_mul(t.c, scale)});
  normalize(r);
  return r;
}

Poly mul(const Poly& a, const Poly& b) {
  Poly r;
  for (const Term& x : a)
    for (const Term& y : b) {
      Term t{x.atoms, wrap_mul(x.c, y.c)};
      t.atoms.insert(t.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(t.atoms.begin(), t.atoms.end(), [](const Expr& p, const Expr& q) { return order(p, q) < 0; });
      r.push_back(std::move(t));
    }
  normalize(r);
  return r;
}

Poly to_poly(const Expr& e) {
  switch (e->op) {
    case Op::kConst:
      return constant_poly(e->i);
    case Op::kAdd:
      return add(to_poly(e->args[0]), to_poly(e->args[1]));
    case Op::kSub:
      return add(to_poly(e->args[0]), to_poly(e->args[1]), -1);
    case Op::kMul: {
      const Poly a = to_poly(e->args[0]), b = to_poly(e->args[1]);
      if (a.size() * b.size() <= kMaxTerms) return mul(a, b);
      break;
    }
    default:
      break;
  }
  return {{{e}, 1}};
}

Expr term_expr(const Term& t, std::int64_t c) {
  Expr r;
  for (const Expr& a : t.atoms) r = r ? make_node(Op::kMul, DType::kInt64, {r, a}) : a;
  if (!r) return constant_int(c);
  return c == 1 ? r : make_node(Op::kMul, DType::kInt64, {r, constant_int(c)});
}

Expr from_poly(const Poly& p) {
  Expr r;
  for (const Term& t : p) {
    if (t.c <= 0) continue;
    const Expr x = term_expr(t, t.c);
    r = r ? make_node(Op::kAdd, DType::kInt64, {r, x}) : x;
  }
  for (const Term& t : p) {
    if (t.c > 0) continue;
    if (!r)
      r = t.c == INT64_MIN || t.atoms.empty() ? constant_int(t.c) : term_expr(t, t.c);
    else if (t.c == INT64_MIN)
      r = make_node(Op::kAdd, DType::kInt64, {r, term_expr(t, t.c)});
    else
      r = make_node(Op::kSub, DType::kInt64, {r, term_expr(t, -t.c)});
  }
  return r ? r : constant_int(0);
}

// ---- ranges

// An expression that `a` never exceeds, or empty.
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

// x // c <= ub(x) // c, with ub taken term by term. Bounds of quotients within quotients would be asked for again and
// again, so they are remembered.
Expr quotient_bound(const Expr& a, int depth) {
  constexpr std::size_t kMost = 4096;
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
  return nonnegative(p, true, 3) && nonnegative(add(add(to_poly(b), p, -1), constant_poly(-1)), true, 3);
}

// t / d when every atom of d is in t and the coefficient divides.
bool divide_term(const Term& t, const Term& d, Term& q) {
  if (d.c == 0 || t.c % d.c != 0) return false;
  q.atoms = t.atoms;
  q.c = t.c / d.c;
  for (const Expr& a : d.atoms) {
    auto it = std::find_if(q.atoms.begin(), q.atoms.end(), [&](const Expr& x) { return same(x, a); });
    if (it == q.atoms.end()) return false;
    q.atoms.erase(it);
  }
  return true;
}

// p = q * b + r, taking out of p what b divides.
void divide(const Poly& p, const Poly& b, Poly& q, Poly& r) {
  q.clear();
  r = p;
  if (b.size() == 1) {
    r.clear();
    for (const Term& t : p) {
      Term x;
      if (divide_term(t, b[0], x))
        q.push_back(x);
      else if (t.atoms.empty() && b[0].atoms.empty() &&
               b[0].c > 0) {  // constants: take out the whole part, rounding down
        std::int64_t whole = t.c / b[0].c, left = t.c % b[0].c;
        if (left < 0) {
          left += b[0].c;
          --whole;
        }
        if (whole) q.push_back({{}, whole});
        if (left) r.push_back({{}, left});
      } else
        r.push_back(t);
    }
    normalize(q);
    normalize(r);
    return;
  }
  for (int round = 0; round < 16; ++round) {
    bool progress = false;
    for (const Term& t : r) {
      Term x;
      if (!divide_term(t, b[0], x)) continue;
      const Poly next = add(r, mul({x}, b), -1);
      if (next.size() < r.size() || (next.size() == r.size() && next.size() + 1 < b.size() + r.size())) {
        if (next.size() >= r.size()) continue;
        q = add(q, {x});
        r = next;
        progress = true;
        break;
      }
    }
    if (!progress) break;
  }
}

// k (x // b) b + k (x % b) = k x: what an index taken apart and put together again comes to.
void recombine(Poly& p) {
  for (int round = 0; round < 8; ++round) {
    bool changed = false;
    for (std::size_t m = 0; m < p.size() && !changed; ++m)
      for (std::size_t j = 0; j < p[m].atoms.size() && !changed; ++j) {
        const Expr mod = p[m].atoms[j];
        if (mod->op != Op::kMod || (mod->has_load && p[m].atoms.size() > 4)) continue;
        Term others = p[m];
        others.atoms.erase(others.atoms.begin() + static_cast<std::ptrdiff_t>(j));
        const Expr quotient = idx::floordiv(mod->args[0], mod->args[1]);
        const Poly partner = mul(mul({others}, to_poly(mod->args[1])), to_poly(quotient));
        if (partner.size() != 1) continue;
        for (std::size_t d = 0; d < p.size(); ++d) {
          if (d == m || p[d].c != partner[0].c || order_atoms(p[d].atoms, partner[0].atoms) != 0) continue;
          Poly next = mul({others}, to_poly(mod->args[0]));
          for (std::size_t k = 0; k < p.size(); ++k)
            if (k != m && k != d) next.push_back(p[k]);
          normalize(next);
          p = std::move(next);
          changed = true;
          break;
        }
      }
    if (!changed) return;
  }
}

Term common_factor(const Term& a, const Term& b) {
  Term g{{}, std::gcd(a.c, b.c)};
  Exprs rest = b.atoms;
  for (const Expr& x : a.atoms) {
    auto it = std::find_if(rest.begin(), rest.end(), [&](const Expr& y) { return same(x, y); });
    if (it == rest.end()) continue;
    g.atoms.push_back(x);
    rest.erase(it);
  }
  return g;
}

}  // namespace

namespace idx {

Expr add(const Expr& a, const Expr& b) {
  if (is_const(a, 0)) return b;
  if (is_const(b, 0)) return a;
  Poly p = sardonyx::add(to_poly(a), to_poly(b));
  recombine(p);
  return from_poly(p);
}

Expr sub(const Expr& a, const Expr& b) {
  if (is_const(b, 0)) return a;
  return from_poly(sardonyx::add(to_poly(a), to_poly(b), -1));
}

Expr mul(const Expr& a, const Expr& b) {
  if (is_const(a, 1) || is_const(b, 0)) return b;
  if (is_const(b, 1) || is_const(a, 0)) return a;
  const Poly x = to_poly(a), y = to_poly(b);
  if (x.size() * y.size() > kMaxTerms) return make_node(Op::kMul, DType::kInt64, {a, b});
  return from_poly(sardonyx::mul(x, y));
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
  static thread_local int nesting = 0;  // bounds of bounds: give up rather than recurse without end
  if (nesting > 4) return false;
  ++nesting;
  const bool r = nonnegative(to_poly(a), dims_positive, 3);
  --nesting;
  return r;
}

bool provably_equal(const Expr& a, const Expr& b) { return same(a, b) || is_const(sub(a, b), 0); }

}  // namespace idx
}  // namespace sardonyx
