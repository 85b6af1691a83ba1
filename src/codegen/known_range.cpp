// See known_range.h.
#include "codegen/known_range.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "codegen/emit_types.h"

namespace sardonyx::codegen {
namespace {

constexpr double kLimit = 1 << 30;  // half of what int32 holds, so that rounding of floats does not matter
constexpr int kDepth = 16;          // expressions share parts: each level may visit them again

struct Interval {
  double low = 0, high = 0;
};
using Known = std::optional<Interval>;

Known within_limit(double low, double high) {
  if (!(low >= -kLimit && high <= kLimit)) return {};  // also of NaN
  return Interval{low, high};
}

// With a margin for rounding to integers.
Known widened(const Known& x) { return x ? within_limit(x->low - 1, x->high + 1) : Known(); }

Known range_of(const Expr& e, int depth);

// Of a and b combined in all ways.
template <typename Function>
Known corners(const Interval& a, const Interval& b, Function f) {
  const double all[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)};
  for (const double x : all)
    if (std::isnan(x)) return {};
  return within_limit(*std::min_element(all, all + 4), *std::max_element(all, all + 4));
}

Known binary(const Expr& e, int depth) {
  const Known a = range_of(e->args[0], depth), b = range_of(e->args[1], depth);
  if (!a || !b) return {};
  switch (e->op) {
    case Op::kAdd:
      return within_limit(a->low + b->low, a->high + b->high);
    case Op::kSub:
      return within_limit(a->low - b->high, a->high - b->low);
    case Op::kMul:
      return corners(*a, *b, [](double x, double y) { return x * y; });
    case Op::kMin:
      return within_limit(std::min(a->low, b->low), std::min(a->high, b->high));
    case Op::kMax:
      return within_limit(std::max(a->low, b->low), std::max(a->high, b->high));
    case Op::kDiv:
    case Op::kFloorDiv:
      if (b->low <= 0 && b->high >= 0) return {};
      // Whatever way it rounds.
      return widened(corners(*a, *b, [](double x, double y) { return x / y; }));
    default:
      return {};
  }
}

Known range_of(const Expr& e, int depth) {
  if (depth == 0 || e->has_reduce) return {};
  switch (e->op) {
    case Op::kConst: {
      const double x = is_float(e->dtype) ? e->f : static_cast<double>(e->i);
      return within_limit(x, x);
    }
    case Op::kVar: {
      const Known n = range_of(e->args[0], depth - 1);
      return n ? within_limit(0, std::max(0., n->high - 1)) : Known();
    }
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc: {
      return widened(range_of(e->args[0], depth - 1));
    }
    case Op::kCast: {
      const DType from = e->args[0]->dtype;
      const auto wide = [](DType t) { return t == DType::kInt64 || t == DType::kInt32 || plain_float(t); };
      if (!wide(from) || !wide(e->dtype)) return {};  // may wrap, saturate or round coarsely
      const Known x = range_of(e->args[0], depth - 1);
      return is_float(e->dtype) ? x : widened(x);
    }
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMin:
    case Op::kMax:
    case Op::kDiv:
    case Op::kFloorDiv:
      return binary(e, depth - 1);
    default:
      return {};
  }
}

}  // namespace

bool fits_32_bits(const Expr& e) { return range_of(e, kDepth).has_value(); }

}  // namespace sardonyx::codegen
