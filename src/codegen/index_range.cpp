// See index_range.h.
#include "codegen/index_range.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace sardonyx::codegen {
namespace {

bool nonnegative(const Expr& e) { return idx::provably_nonnegative(e, false); }

// The largest magnitude in [low, high].
Expr magnitude(const Expr& low, const Expr& high) {
  if (nonnegative(low)) return high;
  return idx::max(high, Expr(0) - low);
}

// The bound of a quotient whose dividend has this bound. A divisor of sizes alone counts: flattened indices are divided
// by extents and multiplied by them again, and would otherwise be bounded by a product of both. Extents are not
// negative, and 0 only if nothing runs.
Expr quotient(const Expr& bound, const Expr& divisor) {
  if (is_const(divisor)) return idx::floordiv(bound, divisor);
  if (divisor->has_var || divisor->has_load) return bound;
  return idx::floordiv(bound, idx::max(divisor, 1));
}

// Sizes alone, so that the expression itself is its bound. Divisors that may be 0 can't be evaluated for a limit.
bool is_size(const Expr& e) {
  if (e->has_var || e->has_load) return false;
  bool ok = true;
  visit(e, [&](const Expr& x) {
    ok &= (x->op != Op::kFloorDiv && x->op != Op::kMod) || (is_const(x->args[1]) && !is_const(x->args[1], 0));
  });
  return ok;
}

bool bounded_symbols(const Expr& e, const std::function<bool(std::int64_t)>& trusted) {
  bool ok = true;
  if (e->has_sym) visit(e, [&](const Expr& x) { ok &= x->op != Op::kSym || trusted(x->i); });
  return ok;
}

// What a float that is computed from indices alone (where a resized image reads) lies in, and the largest magnitude
// that occurs on the way, of which rounding errors are a small part.
struct Interval {
  double low = 0, high = 0, largest = 0;
};
Interval interval(double low, double high, double largest) {
  return {low, high, std::max({largest, std::abs(low), std::abs(high)})};
}

class Floats {
 public:
  explicit Floats(std::function<std::pair<Expr, Expr>(const Expr&)> integers) : integers_(std::move(integers)) {}

  std::optional<Interval> of(const Expr& e) {
    const auto known = known_.find(e.get());
    if (known != known_.end()) return known->second;
    std::optional<Interval> i = compute(e);
    if (i && !(std::isfinite(i->low) && std::isfinite(i->high))) i.reset();
    return known_[e.get()] = i;
  }

 private:
  std::optional<Interval> compute(const Expr& e) {
    if (e->dtype != DType::kFloat32 && e->dtype != DType::kFloat64) return {};
    if (e->op == Op::kConst) return interval(e->f, e->f, 0);
    if (e->op == Op::kCast && e->args[0]->dtype == DType::kInt64) {
      const auto [low, high] = integers_(e->args[0]);
      std::int64_t from = 0, to = 0;
      if (!low || !high || !is_const_int(low, from) || !is_const_int(high, to)) return {};
      return interval(static_cast<double>(from), static_cast<double>(to), 0);
    }
    if (e->op == Op::kFloor || e->op == Op::kCeil || e->op == Op::kRound || e->op == Op::kTrunc) {
      const auto a = of(e->args[0]);
      if (!a) return {};
      return interval(std::floor(a->low), std::ceil(a->high), a->largest);
    }
    if (e->op == Op::kSelect)
      return combined(e->args[1], e->args[2], [](const Interval& a, const Interval& b) {
        return interval(std::min(a.low, b.low), std::max(a.high, b.high), 0);
      });
    if (e->args.size() != 2) return {};
    return combined(e->args[0], e->args[1], [&](const Interval& a, const Interval& b) -> std::optional<Interval> {
      switch (e->op) {
        case Op::kAdd:
          return interval(a.low + b.low, a.high + b.high, 0);
        case Op::kSub:
          return interval(a.low - b.high, a.high - b.low, 0);
        case Op::kMul: {
          const auto ends = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
          return interval(ends.first, ends.second, 0);
        }
        case Op::kDiv: {
          if (b.low != b.high || b.low == 0) return {};
          const auto ends = std::minmax(a.low / b.low, a.high / b.low);
          return interval(ends.first, ends.second, 0);
        }
        case Op::kMin:
          return interval(std::min(a.low, b.low), std::min(a.high, b.high), 0);
        case Op::kMax:
          return interval(std::max(a.low, b.low), std::max(a.high, b.high), 0);
        default:
          return {};
      }
    });
  }

  template <class F>
  std::optional<Interval> combined(const Expr& x, const Expr& y, F f) {
    const auto a = of(x), b = of(y);
    std::optional<Interval> i;
    if (a && b) i = f(*a, *b);
    if (i) i->largest = std::max({i->largest, a->largest, b->largest});
    return i;
  }

  std::function<std::pair<Expr, Expr>(const Expr&)> integers_;
  std::unordered_map<const ExprNode*, std::optional<Interval>> known_;
};

// The bounds of a float as an integer; empty where they are not known or large.
std::pair<Expr, Expr> integer_bounds(const std::optional<Interval>& i) {
  constexpr double kRounding = 1e-5;  // of the largest magnitude, after a hundred operations in float32
  if (!i || i->largest > 1e9) return {};
  const double more = 1 + kRounding * i->largest;
  return {Expr(static_cast<std::int64_t>(std::floor(i->low - more))),
          Expr(static_cast<std::int64_t>(std::ceil(i->high + more)))};
}

}  // namespace

const IndexRange::Bounds& IndexRange::bounds(const Expr& e) {
  auto it = known_.find(e);
  if (it == known_.end()) {
    Bounds b = compute(e);
    for (Expr* x : {&b.low, &b.high}) {  // larger bounds are useless, and could overflow in further products
      std::int64_t c;
      if (*x && is_const_int(*x, c) && (c > kLargest || c < -kLargest)) *x = Expr();
    }
    it = known_.emplace(e, b).first;
  }
  return it->second;
}

IndexRange::Bounds IndexRange::compute(const Expr& e) {
  const auto type_range = [](DType t) -> Bounds {
    if (t == DType::kBool) return {0, 1};
    if (is_float(t) || bits_of(t) > 32 || t == DType::kUInt32) return {};
    const std::int64_t n = std::int64_t{1} << bits_of(t);
    return is_signed(t) ? Bounds{Expr(-n / 2), Expr(n / 2 - 1)} : Bounds{Expr(0), Expr(n - 1)};
  };
  if (e->dtype != DType::kInt64 || e->has_reduce) return {};
  switch (e->op) {
    case Op::kConst:
    case Op::kSym:
      return {e, e};
    case Op::kVar: {
      const Expr n = bounds(e->args[0]).high;
      return n ? Bounds{0, n - Expr(1)} : Bounds{};
    }
    case Op::kCast: {
      if (is_float(e->args[0]->dtype)) {
        Floats floats([this](const Expr& x) {
          const Bounds& b = bounds(x);
          return std::pair(b.low, b.high);
        });
        const auto [low, high] = integer_bounds(floats.of(e->args[0]));
        return {low, high};
      }
      Bounds b = type_range(e->args[0]->dtype);
      return e->args[0]->dtype == DType::kInt32 ? Bounds{} : b;  // the full range of int32 leaves no bound
    }
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kMin:
    case Op::kMax:
      if (is_size(e)) return {e, e};
      break;
    case Op::kSelect: {
      const Bounds a = bounds(e->args[1]), b = bounds(e->args[2]);
      if (!a.low || !a.high || !b.low || !b.high) return {};
      return {idx::min(a.low, b.low), idx::max(a.high, b.high)};
    }
    default:
      return {};
  }
  const Bounds a = bounds(e->args[0]), b = bounds(e->args[1]);
  const bool all = a.low && a.high && b.low && b.high;
  switch (e->op) {
    case Op::kAdd:
      return {a.low && b.low ? a.low + b.low : Expr(), a.high && b.high ? a.high + b.high : Expr()};
    case Op::kSub:
      return {a.low && b.high ? a.low - b.high : Expr(), a.high && b.low ? a.high - b.low : Expr()};
    case Op::kMul: {
      if (!all) return {};
      if (nonnegative(a.low) && nonnegative(b.low)) return {0, a.high * b.high};
      const Expr m = magnitude(a.low, a.high) * magnitude(b.low, b.high);
      return {Expr(0) - m, m};
    }
    case Op::kFloorDiv:
      if (!a.low || !a.high || (is_const(e->args[1]) && e->args[1]->i <= 0)) return {};
      if (nonnegative(a.low)) return {0, quotient(a.high, e->args[1])};
      return {quotient(idx::min(a.low, 0), e->args[1]), quotient(idx::max(a.high, 0), e->args[1])};
    case Op::kMod:
      if (b.high) return {0, b.high - Expr(1)};
      if (a.low && a.high && nonnegative(a.low)) return {0, a.high};
      return {};
    case Op::kMin:
      return {a.low && b.low ? idx::min(a.low, b.low) : Expr(),
              a.high && b.high ? idx::min(a.high, b.high) : (a.high ? a.high : b.high)};
    default:  // kMax
      return {a.low && b.low ? idx::max(a.low, b.low) : (a.low ? a.low : b.low),
              a.high && b.high ? idx::max(a.high, b.high) : Expr()};
  }
}

bool IndexRange::narrow(const Expr& e) {
  if (e->dtype != DType::kInt64) return false;
  const auto known = narrow_.find(e);
  if (known != narrow_.end()) return known->second;
  const Bounds b = bounds(e);
  bool ok = b.low && b.high && !b.low->has_var && !b.high->has_var && !b.low->has_load && !b.high->has_load;
  if (ok) {
    const Expr m = magnitude(b.low, b.high);
    std::int64_t c;
    const bool constant = is_const_int(m, c);
    ok = constant ? c <= kLargest : bounded_symbols(m, trusted_);
    if (ok && !constant) limits_.insert(m);
  }
  return narrow_[e] = ok;
}

Expr IndexRange::limit() const {
  std::vector<Expr> all(limits_.begin(), limits_.end());
  std::sort(all.begin(), all.end(), [](const Expr& a, const Expr& b) { return order(a, b) < 0; });
  Expr m;
  for (const Expr& e : all) m = m ? idx::max(m, e) : e;
  return m;
}

}  // namespace sardonyx::codegen
