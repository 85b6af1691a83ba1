#include "ops/sampling.h"

#include <cmath>

namespace sardonyx::sampling {

DType compute_type(DType t) {
  return t == DType::kFloat64 || (is_integer(t) && bits_of(t) >= 32) ? DType::kFloat64 : DType::kFloat32;
}

Expr to_element(const Expr& v, DType t) {
  if (!is_integer(t)) return cast(v, t);
  const int bits = bits_of(t) - (is_signed(t) ? 1 : 0);
  const Expr rounded = unary(Op::kRound, v);
  if (bits >= 63) return cast(rounded, t);  // fp64 can't express these limits
  const double high = std::ldexp(1, bits) - 1, low = is_signed(t) ? -high - 1 : 0;
  return cast(binary(Op::kMin, binary(Op::kMax, rounded, k(low, v)), k(high, v)), t);
}

Expr cubic_kernel(const Expr& d, double a) {
  const auto poly = [&](double c3, double c2, double c1, double c0) {
    return add(mul(add(mul(add(mul(k(c3, d), d), k(c2, d)), d), k(c1, d)), d), k(c0, d));
  };
  const Expr far = select(compare(Op::kLt, d, k(2, d)), poly(a, -5 * a, 8 * a, -4 * a), k(0, d));
  return select(compare(Op::kLe, d, k(1, d)), poly(a + 2, -(a + 3), 0, 1), far);
}

Expr linear_kernel(const Expr& d) { return binary(Op::kMax, sub(k(1, d), d), k(0, d)); }

namespace {
std::vector<Tap> taps_around(const Expr& x, int before, int count,
                             const std::function<Expr(const Expr&, int)>& weight) {
  const Expr floor = unary(Op::kFloor, x), fraction = sub(x, floor), whole = cast(floor, DType::kInt64);
  std::vector<Tap> taps;
  for (int t = 0; t < count; ++t) taps.push_back({whole + (t - before), weight(fraction, t - before)});
  return taps;
}
}  // namespace

std::vector<Tap> linear_taps(const Expr& x) {
  return taps_around(x, 0, 2, [](const Expr& f, int t) { return t == 0 ? sub(k(1, f), f) : f; });
}

std::vector<Tap> cubic_taps(const Expr& x, double a) {
  return taps_around(x, 1, 4, [&](const Expr& f, int t) {
    // Which piece of the kernel each tap falls on is known.
    const Expr d = t <= 0 ? add(f, k(-t, f)) : sub(k(t, f), f);
    const auto poly = [&](double c3, double c2, double c1, double c0) {
      return add(mul(add(mul(add(mul(k(c3, d), d), k(c2, d)), d), k(c1, d)), d), k(c0, d));
    };
    return t == 0 || t == 1 ? poly(a + 2, -(a + 3), 0, 1) : poly(a, -5 * a, 8 * a, -4 * a);
  });
}

namespace {
Expr interpolate_from(const std::vector<std::vector<Tap>>& axes, Exprs& at,
                      const std::function<Expr(const Exprs&)>& element) {
  if (at.size() == axes.size()) return element(at);
  Expr sum;
  for (const Tap& t : axes[at.size()]) {
    at.push_back(t.index);
    const Expr e = interpolate_from(axes, at, element);
    at.pop_back();
    const Expr term = mul(t.weight, e);
    sum = sum ? add(sum, term) : term;
  }
  return sum;
}
}  // namespace

Expr interpolate(const std::vector<std::vector<Tap>>& axes, const std::function<Expr(const Exprs&)>& element) {
  Exprs at;
  return interpolate_from(axes, at, element);
}

Expr clamp_index(const Expr& i, const Expr& size) { return idx::max(0, idx::min(i, size - 1)); }

}  // namespace sardonyx::sampling
