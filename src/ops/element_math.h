// Short names for element arithmetic (see `binary` in expr/expr.h), so that lowerings read like formulas. All operands
// of one call have the same dtype; a plain number takes the dtype of the other operand.
#pragma once
#include "expr/expr.h"

namespace sardonyx::el {

inline Expr add(const Expr& a, const Expr& b) { return binary(Op::kAdd, a, b); }
inline Expr sub(const Expr& a, const Expr& b) { return binary(Op::kSub, a, b); }
inline Expr mul(const Expr& a, const Expr& b) { return binary(Op::kMul, a, b); }
inline Expr div(const Expr& a, const Expr& b) { return binary(Op::kDiv, a, b); }
inline Expr min(const Expr& a, const Expr& b) { return binary(Op::kMin, a, b); }
inline Expr max(const Expr& a, const Expr& b) { return binary(Op::kMax, a, b); }
inline Expr add(const Expr& a, double b) { return add(a, constant(b, a->dtype)); }
inline Expr sub(const Expr& a, double b) { return sub(a, constant(b, a->dtype)); }
inline Expr mul(const Expr& a, double b) { return mul(a, constant(b, a->dtype)); }
inline Expr div(const Expr& a, double b) { return div(a, constant(b, a->dtype)); }
inline Expr min(const Expr& a, double b) { return min(a, constant(b, a->dtype)); }
inline Expr max(const Expr& a, double b) { return max(a, constant(b, a->dtype)); }
inline Expr clamp(const Expr& a, double low, double high) { return min(max(a, low), high); }
inline Expr lt(const Expr& a, const Expr& b) { return compare(Op::kLt, a, b); }
inline Expr ge(const Expr& a, const Expr& b) { return compare(Op::kGe, a, b); }
inline Expr eq(const Expr& a, const Expr& b) { return compare(Op::kEq, a, b); }
inline Expr square(const Expr& a) { return mul(a, a); }
inline Expr neg(const Expr& a) { return unary(Op::kNeg, a); }
inline Expr abs(const Expr& a) { return unary(Op::kAbs, a); }
inline Expr exp(const Expr& a) { return unary(Op::kExp, a); }
inline Expr log(const Expr& a) { return unary(Op::kLog, a); }
inline Expr sqrt(const Expr& a) { return unary(Op::kSqrt, a); }
inline Expr tanh(const Expr& a) { return unary(Op::kTanh, a); }
inline Expr erf(const Expr& a) { return unary(Op::kErf, a); }
inline Expr floor(const Expr& a) { return unary(Op::kFloor, a); }
inline Expr round(const Expr& a) { return unary(Op::kRound, a); }
inline Expr sigmoid(const Expr& a) { return unary(Op::kSigmoid, a); }
inline Expr silu(const Expr& a) { return mul(a, sigmoid(a)); }
/// Smallest and largest finite value of an integer type, as a double (exact up to 32 bits).
double lowest(DType t);
double largest(DType t);
/// The smallest value of any type: minus infinity for floats.
Expr minimum(DType t);
/// 0 of any type, fp8 and fp4 included.
Expr zero(DType t);

}  // namespace sardonyx::el
