#include "expr/polynomial.h"

#include <algorithm>
#include <numeric>

#include "expr/node.h"

namespace sardonyx::polynomial {
namespace {

std::int64_t wrap_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
std::int64_t wrap_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

Expr term_expr(const Term& t, std::int64_t c) {
  Expr r;
  for (const Expr& a : t.atoms) r = r ? make_node(Op::kMul, DType::kInt64, {r, a}) : a;
  if (!r) return constant_int(c);
  return c == 1 ? r : make_node(Op::kMul, DType::kInt64, {r, constant_int(c)});
}

}  // namespace

int order_atoms(const Exprs& a, const Exprs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? 1 : -1;  // higher degree first, the constant last
  for (std::size_t k = 0; k < a.size(); ++k)
    if (int c = order(a[k], b[k])) return c;
  return 0;
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

Poly add(const Poly& a, const Poly& b, std::int64_t scale) {
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

}  // namespace sardonyx::polynomial
