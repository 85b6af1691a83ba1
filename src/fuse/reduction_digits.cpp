// See reduction_digits.h.
#include "fuse/reduction_digits.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

bool divides(const Expr& a, const Expr& b) { return is_const(idx::mod(b, a), 0); }

// The divisors of the variable in `body`, ascending, if each divides the next and the last one divides the variable's
// extent; false otherwise.
bool divisors_of(const Expr& body, const Expr& var, Exprs& out) {
  bool ok = true;
  const auto add = [&](const Expr& d) {
    ok &= !d->has_var && !d->has_load;
    if (std::none_of(out.begin(), out.end(), [&](const Expr& x) { return idx::provably_equal(x, d); }))
      out.push_back(d);
  };
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kFloorDiv && x->op != Op::kMod) return;
    const Expr &a = x->args[0], &b = x->args[1];
    if (same(a, var)) return add(b);
    if (!mentions(a, var)) return;
    if (a->op == Op::kFloorDiv && same(a->args[0], var) && x->op == Op::kMod) return add(a->args[1] * b);
    if (a->op == Op::kMod && same(a->args[0], var) && x->op == Op::kFloorDiv) return add(b);
    // Of other quotients only (the channel of a group, modulo all channels): it may go with them.
    const auto quotients = [](const Expr& y) { return y->op == Op::kFloorDiv || y->op == Op::kMod ? Expr(0) : Expr(); };
    ok &= !mentions(rewrite(a, quotients), var);
  });
  if (!ok) return false;
  for (std::size_t k = 0; k < out.size(); ++k)
    for (std::size_t j = k + 1; j < out.size(); ++j)
      if (!divides(out[k], out[j])) std::swap(out[k], out[j]);
  for (std::size_t k = 0; k < out.size(); ++k)
    if (!divides(out[k], k + 1 < out.size() ? out[k + 1] : var->args[0])) return false;
  return true;
}

bool has_quotients(const Expr& body, const Exprs& vars) {
  bool found = false;
  visit(body, [&](const Expr& x) {
    if (x->op == Op::kFloorDiv || x->op == Op::kMod)
      found |= std::any_of(vars.begin(), vars.end(), [&](const Expr& v) { return mentions(x, v); });
  });
  return found;
}

// The stride along `var`, in elements, of the first load that has a constant one; 0: unknown.
std::int64_t stride_of(const Expr& body, const Expr& var) {
  std::int64_t stride = 0;
  visit(body, [&](const Expr& x) {
    Expr c, rest;
    std::int64_t n = 0;
    if (stride == 0 && x->op == Op::kLoad && mentions(x, var) && idx::split_affine(memory_offset(x), var, c, rest) &&
        is_const_int(c, n))
      stride = n;
  });
  return stride;
}

}  // namespace

Expr memory_offset(const Expr& load) {
  const Value& v = *load->value;
  if (v.storage_order.empty()) return idx::linearize(load->args, v.shape);
  Exprs indices, shape;
  for (const int d : v.storage_order) {
    indices.push_back(load->args[static_cast<std::size_t>(d)]);
    shape.push_back(v.shape[static_cast<std::size_t>(d)]);
  }
  return idx::linearize(indices, shape);
}

int unit_loads(const Expr& body, const Expr& var, const Exprs& reduced) {
  int n = 0;
  visit(body, [&](const Expr& x) {
    Expr c, rest;
    if (x->op == Op::kLoad &&
        std::any_of(reduced.begin(), reduced.end(), [&](const Expr& r) { return mentions(x, r); }) &&
        idx::split_affine(memory_offset(x), var, c, rest) && is_const(c, 1))
      ++n;
  });
  return n;
}

int loads_along(const Expr& e, const Expr& variable) {
  int n = 0;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->args.empty()) return;
    Expr factor, rest;
    bool along = idx::split_affine(x->args.back(), variable, factor, rest) && is_const(factor, 1);
    const auto constant_parts = [](const Expr& i) { return i->op == Op::kFloorDiv ? Expr(0) : Expr(); };
    for (std::size_t k = 0; along && k + 1 < x->args.size(); ++k)
      along = !mentions(rewrite(x->args[k], constant_parts), variable);
    n += along;
  });
  return n;
}

std::optional<ReducedDigits> digits_of(const Expr& reduce) {
  ReducedDigits d{{}, reduce->args[0], {}};
  for (const Expr& v : reduce->vars) {
    Exprs divisors;
    if (!divisors_of(d.body, v, divisors)) return {};
    Exprs digits;
    Expr below = 1, whole = 0;
    divisors.push_back(v->args[0]);
    for (const Expr& next : divisors) {
      digits.push_back(loop_var(idx::floordiv(next, below)));
      whole = whole + digits.back() * below;
      below = next;
    }
    d.body = substitute(d.body, {{v, whole}});
    d.terms.push_back(whole);
    d.vars.insert(d.vars.end(), digits.rbegin(), digits.rend());
  }
  if (has_quotients(d.body, d.vars)) return {};
  const bool known = std::all_of(d.vars.begin(), d.vars.end(), [&](const Expr& v) { return stride_of(d.body, v) > 0; });
  if (known)
    std::stable_sort(d.vars.begin(), d.vars.end(),
                     [&](const Expr& a, const Expr& b) { return stride_of(d.body, a) > stride_of(d.body, b); });
  return d;
}

std::int64_t assumed_product(const Exprs& extents) {
  // A symbolic extent counts as small, so that known extents decide; the product is bounded so that it cannot overflow.
  constexpr std::int64_t kAssumed = 8, kMost = std::int64_t{1} << 40;
  std::int64_t all = 1, n = 0;
  for (const Expr& e : extents) {
    if (!is_const_int(e, n)) n = kAssumed;
    if (n <= 0) return 0;
    all = n > kMost / all ? kMost : all * n;
  }
  return all;
}

}  // namespace sardonyx
