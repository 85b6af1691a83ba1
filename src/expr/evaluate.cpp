// Constant folding, and evaluation of shape expressions once symbols have values.
#include <cmath>
#include <cstring>
#include <limits>

#include "expr/node.h"
#include "support/error.h"

namespace sardonyx {
namespace {

// A scalar of any dtype: integers and bool in i, floats in f.
struct Scalar {
  std::int64_t i = 0;
  double f = 0;
};

double round_to_bits(double v, int mantissa, int min_exponent, double largest) {
  if (v == 0 || !std::isfinite(v)) return v;
  int e;
  std::frexp(v, &e);
  --e;  // v = m * 2^e, 1 <= |m| < 2
  const int shift = mantissa - std::max(e, min_exponent);
  const double scaled = std::ldexp(v, shift);
  const double r = std::ldexp(std::nearbyint(scaled), -shift);
  return std::abs(r) > largest ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}

bool fold_int_binary(Op op, DType t, std::int64_t a, std::int64_t b, std::int64_t& r) {
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  const bool uns = !is_signed(t);
  const int bits = bits_of(t);
  switch (op) {
    case Op::kAdd:
      r = static_cast<std::int64_t>(ua + ub);
      return true;
    case Op::kSub:
      r = static_cast<std::int64_t>(ua - ub);
      return true;
    case Op::kMul:
      r = static_cast<std::int64_t>(ua * ub);
      return true;
    case Op::kDiv:
      if (b == 0 || (!uns && a == INT64_MIN && b == -1)) return false;
      r = uns ? static_cast<std::int64_t>(ua / ub) : a / b;
      return true;
    case Op::kFloorDiv:
      if (b == 0 || (!uns && b == -1)) return false;
      if (uns)
        r = static_cast<std::int64_t>(ua / ub);
      else
        r = a / b - (a % b != 0 && ((a % b < 0) != (b < 0)));
      return true;
    case Op::kMod:
      if (b == 0 || (!uns && b == -1)) return false;
      if (uns)
        r = static_cast<std::int64_t>(ua % ub);
      else {
        r = a % b;
        if (r != 0 && ((r < 0) != (b < 0))) r += b;
      }
      return true;
    case Op::kFMod:
      if (b == 0 || (!uns && b == -1)) return false;
      r = uns ? static_cast<std::int64_t>(ua % ub) : a % b;
      return true;
    case Op::kMin:
      r = uns ? (ua < ub ? a : b) : std::min(a, b);
      return true;
    case Op::kMax:
      r = uns ? (ua > ub ? a : b) : std::max(a, b);
      return true;
    case Op::kBitAnd:
    case Op::kAnd:
      r = a & b;
      return true;
    case Op::kBitOr:
    case Op::kOr:
      r = a | b;
      return true;
    case Op::kBitXor:
    case Op::kXor:
      r = a ^ b;
      return true;
    case Op::kShl:
      r = ub >= static_cast<std::uint64_t>(bits) ? 0 : static_cast<std::int64_t>(ua << ub);
      return true;
    case Op::kShr:
      if (!uns) return false;
      r = ub >= static_cast<std::uint64_t>(bits) ? 0 : static_cast<std::int64_t>(ua >> ub);
      return true;
    default:
      return false;
  }
}

template <typename T>
bool fold_compare(Op op, T a, T b, bool& r) {
  switch (op) {
    case Op::kEq:
      r = a == b;
      return true;
    case Op::kNe:
      r = a != b;
      return true;
    case Op::kLt:
      r = a < b;
      return true;
    case Op::kLe:
      r = a <= b;
      return true;
    case Op::kGt:
      r = a > b;
      return true;
    case Op::kGe:
      r = a >= b;
      return true;
    default:
      return false;
  }
}

bool fold_float_unary(Op op, double a, double& r) {
  switch (op) {
    case Op::kNeg:
      r = -a;
      return true;
    case Op::kAbs:
      r = std::fabs(a);
      return true;
    case Op::kSqrt:
      r = std::sqrt(a);
      return true;
    case Op::kReciprocal:
      r = 1.0 / a;
      return true;
    case Op::kFloor:
      r = std::floor(a);
      return true;
    case Op::kCeil:
      r = std::ceil(a);
      return true;
    case Op::kRound:
      r = std::nearbyint(a);
      return true;
    case Op::kTrunc:
      r = std::trunc(a);
      return true;
    case Op::kExp:
      r = std::exp(a);
      return true;
    case Op::kLog:
      r = std::log(a);
      return true;
    default:
      return false;  // other functions are left to the device
  }
}

bool fold_float_binary(Op op, double a, double b, double& r) {
  switch (op) {
    case Op::kAdd:
      r = a + b;
      return true;
    case Op::kSub:
      r = a - b;
      return true;
    case Op::kMul:
      r = a * b;
      return true;
    case Op::kDiv:
      r = a / b;
      return true;
    case Op::kMin:
      r = std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
      return true;
    case Op::kMax:
      r = std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
      return true;
    case Op::kPow:
      r = std::pow(a, b);
      return true;
    default:
      return false;
  }
}

bool foldable_float(DType t) {
  return t == DType::kFloat16 || t == DType::kBFloat16 || t == DType::kFloat32 || t == DType::kFloat64;
}

bool is_comparison(Op op) { return op >= Op::kEq && op <= Op::kGe; }

bool apply(Op op, DType result, DType operand, const Scalar* a, std::size_t n, Scalar& r) {
  if (op == Op::kCast) {
    if (is_float(operand) && !foldable_float(operand)) return false;
    if (is_float(result)) {
      if (!foldable_float(result)) return false;
      r.f = round_to(is_float(operand)           ? a[0].f
                     : operand == DType::kUInt64 ? static_cast<double>(static_cast<std::uint64_t>(a[0].i))
                                                 : static_cast<double>(a[0].i),
                     result);
      return true;
    }
    if (is_float(operand)) {
      if (result == DType::kBool) {
        r.i = a[0].f != 0;
        return true;
      }
      if (!(a[0].f > -9.2e18 && a[0].f < 9.2e18)) return false;
      r.i = constant_int(static_cast<std::int64_t>(a[0].f), result)->i;
      return bits_of(result) >= 32 || r.i == static_cast<std::int64_t>(a[0].f);
    }
    r.i = constant_int(a[0].i, result)->i;
    return true;
  }
  if (is_float(operand)) {
    if (!foldable_float(operand)) return false;
    bool truth;
    if (n == 2 && is_comparison(op)) {
      if (!fold_compare(op, a[0].f, a[1].f, truth)) return false;
      r.i = truth;
      return true;
    }
    if (op == Op::kIsNaN) {
      r.i = std::isnan(a[0].f);
      return true;
    }
    if (op == Op::kIsInf) {
      r.i = std::isinf(a[0].f);
      return true;
    }
    double v;
    if (n == 1 ? !fold_float_unary(op, a[0].f, v) : !fold_float_binary(op, a[0].f, a[1].f, v)) return false;
    r.f = round_to(v, result);
    return true;
  }
  bool truth;
  if (n == 2 && is_comparison(op)) {
    const bool ok =
        is_signed(operand) || operand == DType::kBool
            ? fold_compare(op, a[0].i, a[1].i, truth)
            : fold_compare(op, static_cast<std::uint64_t>(a[0].i), static_cast<std::uint64_t>(a[1].i), truth);
    r.i = truth;
    return ok;
  }
  if (n == 2) {
    if (!fold_int_binary(op, operand, a[0].i, a[1].i, r.i)) return false;
    r.i = constant_int(r.i, result)->i;
    return true;
  }
  switch (op) {
    case Op::kNeg:
      r.i = constant_int(static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a[0].i)), result)->i;
      return true;
    case Op::kAbs:
      r.i = constant_int(a[0].i < 0 && is_signed(operand)
                             ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a[0].i))
                             : a[0].i,
                         result)
                ->i;
      return true;
    case Op::kSign:
      r.i = is_signed(operand) ? (a[0].i > 0) - (a[0].i < 0) : a[0].i != 0;
      return true;
    case Op::kNot:
      r.i = !a[0].i;
      return true;
    case Op::kBitNot:
      r.i = constant_int(~a[0].i, result)->i;
      return true;
    default:
      return false;
  }
}

Scalar scalar_of(const Expr& e) { return {e->i, e->f}; }

struct Evaluator {
  const SymbolValues& symbols;

  [[noreturn]] static void overflow(const Expr& e) {
    fail(ErrorKind::kInvalidArgument, "the size {} overflows 64 bits for these input shapes; use smaller dims",
         to_string(e));
  }

  Scalar run(const Expr& e) {
    switch (e->op) {
      case Op::kConst:
        return scalar_of(e);
      case Op::kSym:
        check(symbols.has(static_cast<int>(e->i)), "symbol {} has no value yet", e->name);
        return {symbols.value[static_cast<std::size_t>(e->i)], 0};
      case Op::kSelect:
        return run(e->args[run(e->args[0]).i ? 1 : 2]);
      case Op::kLoad:
      case Op::kVar:
      case Op::kReduce:
      case Op::kRandom:
      case Op::kBitCast:
        fail(ErrorKind::kInternal, "internal error: {} is not a shape expression", to_string(e));
      default:
        break;
    }
    Scalar a[2];
    for (std::size_t k = 0; k < e->args.size() && k < 2; ++k) a[k] = run(e->args[k]);
    const DType operand = e->args[0]->dtype;
    Scalar r;
    if (e->dtype == DType::kInt64 && operand == DType::kInt64) {
      switch (e->op) {
        case Op::kAdd:
          if (__builtin_add_overflow(a[0].i, a[1].i, &r.i)) overflow(e);
          return r;
        case Op::kSub:
          if (__builtin_sub_overflow(a[0].i, a[1].i, &r.i)) overflow(e);
          return r;
        case Op::kMul:
          if (__builtin_mul_overflow(a[0].i, a[1].i, &r.i)) overflow(e);
          return r;
        default:
          break;
      }
    }
    if (apply(e->op, e->dtype, operand, a, e->args.size(), r)) return r;
    if (!is_float(operand) && e->args.size() == 2 && a[1].i == 0)
      fail(ErrorKind::kInvalidArgument, "division by zero in the size {} for these input shapes", to_string(e));
    fail(ErrorKind::kInternal, "internal error: can't evaluate {}", to_string(e));
  }
};

}  // namespace

double round_to(double v, DType t) {
  switch (t) {
    case DType::kFloat32:
      return static_cast<float>(v);
    case DType::kFloat16:
      return round_to_bits(v, 10, -14, 65504.0);
    case DType::kBFloat16:
      return round_to_bits(v, 7, -126, 3.3895313892515355e38);
    default:
      return v;
  }
}

Expr fold_constants(Op op, DType result, const Exprs& args, std::int64_t mode) {
  Scalar a[2];
  if (args.size() > 2) return Expr();
  for (std::size_t k = 0; k < args.size(); ++k) {
    if (args[k]->op != Op::kConst) return Expr();
    a[k] = scalar_of(args[k]);
  }
  if (op == Op::kPow && args.size() == 2 && args[0]->dtype != args[1]->dtype) return Expr();
  Scalar r;
  if (!apply(op, result, args[0]->dtype, a, args.size(), r)) return Expr();
  return is_float(result) ? constant_float(r.f, result) : constant_int(r.i, result);
}

void SymbolValues::set(int id, std::int64_t v) {
  if (id >= static_cast<int>(value.size())) {
    value.resize(static_cast<std::size_t>(id) + 1);
    known.resize(static_cast<std::size_t>(id) + 1);
  }
  value[static_cast<std::size_t>(id)] = v;
  known[static_cast<std::size_t>(id)] = true;
}

std::int64_t evaluate(const Expr& e, const SymbolValues& symbols) { return Evaluator{symbols}.run(e).i; }

}  // namespace sardonyx
