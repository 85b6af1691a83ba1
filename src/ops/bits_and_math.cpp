// Element-wise functions without parameters: bits, trigonometry, tests of floats.
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

template <Op op>
void bitwise_op(OpContext& c) {
  c.require(c.in(0)->dtype == c.in(1)->dtype, "operands of dtypes {} and {}", name(c.in(0)->dtype),
            name(c.in(1)->dtype));
  c.require(is_integer(c.in(0)->dtype), "operands of dtype {}", name(c.in(0)->dtype));
  c.out(0, tensor::binary(c.graph(), op, c.in(0), c.in(1)));
}

void bitwise_not_op(OpContext& c) {
  c.require(is_integer(c.in(0)->dtype), "an operand of dtype {}", name(c.in(0)->dtype));
  c.out(0, tensor::unary(c.graph(), Op::kBitNot, c.in(0)));
}

// Amounts outside of [0, bits) shift everything out: 0, or -1 for a right shift of a negative number.
void bit_shift_op(OpContext& c) {
  const std::string direction = c.attr_s("direction", "");
  c.require(direction == "LEFT" || direction == "RIGHT", "direction is '{}'", direction);
  const bool left = direction == "LEFT";
  const DType t = c.in(0)->dtype;
  c.require(is_integer(t) && c.in(1)->dtype == t, "operands of dtypes {} and {}", name(t), name(c.in(1)->dtype));
  c.out(0, tensor::map2(c.graph(), c.in(0), c.in(1), [&](const Expr& x, const Expr& y) {
          const Expr zero = constant_int(0, t);
          Expr fits = compare(Op::kLt, y, constant_int(bits_of(t), t));
          Expr rest = zero;
          if (is_signed(t)) {
            fits = logical_and(fits, compare(Op::kGe, y, zero));
            if (!left) rest = select(compare(Op::kLt, x, zero), constant_int(-1, t), zero);
          }
          if (left) return select(fits, binary(Op::kShl, x, y), rest);
          // Op::kShr brings in zeros; for a negative number, shift its complement.
          Expr shifted = binary(Op::kShr, x, y);
          if (is_signed(t)) {
            const Expr negative = unary(Op::kBitNot, binary(Op::kShr, unary(Op::kBitNot, x), y));
            shifted = select(compare(Op::kLt, x, zero), negative, shifted);
          }
          return select(fits, shifted, rest);
        }));
}

template <Op op>
void math_op(OpContext& c) {
  c.require(is_float(c.in(0)->dtype), "an operand of dtype {}", name(c.in(0)->dtype));
  c.out(0, tensor::map1(c.graph(), c.in(0),
                        [](const Expr& x) { return cast(unary(op, cast(x, accumulator(x->dtype))), x->dtype); }));
}

Expr widened(const Expr& x) { return cast(x, accumulator(x->dtype)); }

void is_nan_op(OpContext& c) {
  c.out(0, tensor::map1(c.graph(), c.in(0), [](const Expr& x) { return unary(Op::kIsNaN, widened(x)); }));
}

void is_inf_op(OpContext& c) {
  const bool positive = c.attr("detect_positive", 1) != 0, negative = c.attr("detect_negative", 1) != 0;
  c.out(0, tensor::map1(c.graph(), c.in(0), [&](const Expr& e) {
          const Expr x = widened(e), zero = constant(0, x->dtype);
          if (!positive && !negative) return constant_bool(false);
          Expr infinite = unary(Op::kIsInf, x);
          if (positive && negative) return infinite;
          return logical_and(infinite, compare(positive ? Op::kGt : Op::kLt, x, zero));
        }));
}

}  // namespace

void register_bits_and_math(OpRegistry& r) {
  r.add({.name = "BitwiseAnd", .lower = bitwise_op<Op::kBitAnd>, .dtypes = "integers"});
  r.add({.name = "BitwiseOr", .lower = bitwise_op<Op::kBitOr>, .dtypes = "integers"});
  r.add({.name = "BitwiseXor", .lower = bitwise_op<Op::kBitXor>, .dtypes = "integers"});
  r.add({.name = "BitwiseNot", .lower = bitwise_not_op, .dtypes = "integers"});
  r.add({.name = "BitShift", .lower = bit_shift_op, .dtypes = "integers"});
  r.add({.name = "Sin", .lower = math_op<Op::kSin>, .dtypes = "floats"});
  r.add({.name = "Cos", .lower = math_op<Op::kCos>, .dtypes = "floats"});
  r.add({.name = "Tan", .lower = math_op<Op::kTan>, .dtypes = "floats"});
  r.add({.name = "Asin", .lower = math_op<Op::kAsin>, .dtypes = "floats"});
  r.add({.name = "Acos", .lower = math_op<Op::kAcos>, .dtypes = "floats"});
  r.add({.name = "Atan", .lower = math_op<Op::kAtan>, .dtypes = "floats"});
  r.add({.name = "Sinh", .lower = math_op<Op::kSinh>, .dtypes = "floats"});
  r.add({.name = "Cosh", .lower = math_op<Op::kCosh>, .dtypes = "floats"});
  r.add({.name = "Asinh", .lower = math_op<Op::kAsinh>, .dtypes = "floats"});
  r.add({.name = "Acosh", .lower = math_op<Op::kAcosh>, .dtypes = "floats"});
  r.add({.name = "Atanh", .lower = math_op<Op::kAtanh>, .dtypes = "floats"});
  r.add({.name = "IsNaN", .lower = is_nan_op, .dtypes = "floats"});
  r.add({.name = "IsInf", .lower = is_inf_op, .dtypes = "floats"});
}

}  // namespace sardonyx
