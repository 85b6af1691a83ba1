// Element-wise operators with numpy broadcasting: arithmetic, comparison, logic, mathematics, activations without
// state.
#include <cmath>

#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

template <Op op>
void unary_op(OpContext& c) {
  c.out(0, tensor::unary(c.graph(), op, c.in(0)));
}

// Transcendental functions compute in fp32 for smaller floats.
template <Op op>
void math_op(OpContext& c) {
  c.out(0, tensor::map1(c.graph(), c.in(0),
                        [](const Expr& x) { return cast(unary(op, cast(x, accumulator(x->dtype))), x->dtype); }));
}

// The second operand. Before opset 7 the attribute `axis` told with which dim of the first operand it is aligned.
Value* second(OpContext& c) {
  Value *x = c.in(0), *y = c.in(1);
  if (c.opset() >= 7 || c.attr("broadcast", 0) == 0 || !c.has_attr("axis")) return y;
  const int missing = x->rank() - c.axis(c.attr("axis", 0), x->rank()) - y->rank();
  c.require(missing >= 0, "axis {} with operands of ranks {} and {}", c.attr("axis", 0), x->rank(), y->rank());
  Exprs shape = y->shape;
  shape.insert(shape.end(), static_cast<std::size_t>(missing), Expr(1));
  return tensor::reshape(c.graph(), y, shape);
}

template <Op op>
void binary_op(OpContext& c) {
  c.require(c.in(0)->dtype == c.in(1)->dtype, "operands of dtypes {} and {}", name(c.in(0)->dtype),
            name(c.in(1)->dtype));
  c.out(0, tensor::binary(c.graph(), op, c.in(0), second(c)));
}

// Combines the operands from left to right; if there are many, in groups first.
template <Op op>
Value* combined(Graph& g, const std::vector<Value*>& xs) {
  if (xs.size() > tensor::kMaxOperands)
    return combined<op>(g, tensor::in_runs(xs, [&](const std::vector<Value*>& run) { return combined<op>(g, run); }));
  return tensor::map(g, xs, [](const Exprs& e) {
    Expr r = e[0];
    for (std::size_t k = 1; k < e.size(); ++k) r = binary(op, r, e[k]);
    return r;
  });
}

std::vector<Value*> operands(OpContext& c) {
  std::vector<Value*> xs;
  for (int k = 0; k < c.input_count(); ++k) xs.push_back(c.in(k));
  c.require(!xs.empty(), "no operands");
  return xs;
}

// Sum, Max, Min: any number of operands.
template <Op op>
void variadic_op(OpContext& c) {
  c.out(0, combined<op>(c.graph(), operands(c)));
}

void mean_op(OpContext& c) {
  const std::vector<Value*> xs = operands(c);
  const auto n = static_cast<double>(xs.size());
  c.out(0, tensor::map(c.graph(), {combined<Op::kAdd>(c.graph(), xs)},
                       [&](const Exprs& e) { return binary(Op::kDiv, e[0], constant(n, e[0]->dtype)); }));
}

void pow_op(OpContext& c) {
  c.out(0, tensor::map2(c.graph(), c.in(0), second(c), [](const Expr& x, const Expr& y) {
          // Exponents that are common constants need no pow.
          double p = NAN;
          if (is_const(y)) p = is_float(y->dtype) ? y->f : static_cast<double>(y->i);
          if (p == 1) return x;
          if (p == 2) return binary(Op::kMul, x, x);
          if (p == 3) return binary(Op::kMul, binary(Op::kMul, x, x), x);
          if (p == 0.5 && is_float(x->dtype)) return unary(Op::kSqrt, x);
          if (is_float(x->dtype) || is_float(y->dtype)) {
            const DType t = x->dtype == DType::kFloat64 || y->dtype == DType::kFloat64 || !is_float(x->dtype)
                                ? DType::kFloat64
                                : DType::kFloat32;
            return cast(binary(Op::kPow, cast(x, t), cast(y, t)), x->dtype);
          }
          return binary(Op::kPow, x, cast(y, x->dtype));
        }));
}

void mod_op(OpContext& c) {
  const bool fmod = c.attr("fmod", 0) != 0;
  c.out(0, tensor::binary(c.graph(), fmod ? Op::kFMod : Op::kMod, c.in(0), c.in(1)));
}

void where_op(OpContext& c) {
  c.out(0,
        tensor::map(c.graph(), {c.in(0), c.in(1), c.in(2)}, [](const Exprs& e) { return select(e[0], e[1], e[2]); }));
}

void relu_op(OpContext& c) {
  c.out(0, tensor::map1(c.graph(), c.in(0), [](const Expr& x) { return binary(Op::kMax, x, constant(0, x->dtype)); }));
}

}  // namespace

void register_elementwise(OpRegistry& r) {
  r.add({.name = "Add", .lower = binary_op<Op::kAdd>, .dtypes = "numbers"});
  r.add({.name = "Sub", .lower = binary_op<Op::kSub>, .dtypes = "numbers"});
  r.add({.name = "Mul", .lower = binary_op<Op::kMul>, .dtypes = "numbers"});
  r.add({.name = "Div", .lower = binary_op<Op::kDiv>, .dtypes = "numbers"});
  r.add({.name = "Pow", .lower = pow_op, .dtypes = "numbers"});
  r.add({.name = "Mod", .lower = mod_op, .dtypes = "numbers"});
  r.add({.name = "Sum", .lower = variadic_op<Op::kAdd>, .dtypes = "floats"});
  r.add({.name = "Mean", .lower = mean_op, .dtypes = "floats"});
  r.add({.name = "Max", .lower = variadic_op<Op::kMax>, .dtypes = "numbers"});
  r.add({.name = "Min", .lower = variadic_op<Op::kMin>, .dtypes = "numbers"});
  r.add({.name = "And", .lower = binary_op<Op::kAnd>, .dtypes = "bool"});
  r.add({.name = "Or", .lower = binary_op<Op::kOr>, .dtypes = "bool"});
  r.add({.name = "Xor", .lower = binary_op<Op::kXor>, .dtypes = "bool"});
  r.add({.name = "Equal", .lower = binary_op<Op::kEq>, .dtypes = "numbers, bool"});
  r.add({.name = "Greater", .lower = binary_op<Op::kGt>, .dtypes = "numbers"});
  r.add({.name = "GreaterOrEqual", .lower = binary_op<Op::kGe>, .dtypes = "numbers"});
  r.add({.name = "Less", .lower = binary_op<Op::kLt>, .dtypes = "numbers"});
  r.add({.name = "LessOrEqual", .lower = binary_op<Op::kLe>, .dtypes = "numbers"});
  r.add({.name = "Where", .lower = where_op});
  r.add({.name = "Neg", .lower = unary_op<Op::kNeg>, .dtypes = "signed numbers"});
  r.add({.name = "Abs", .lower = unary_op<Op::kAbs>, .dtypes = "numbers"});
  r.add({.name = "Sign", .lower = unary_op<Op::kSign>, .dtypes = "numbers"});
  r.add({.name = "Not", .min_opset = 1, .lower = unary_op<Op::kNot>, .dtypes = "bool"});
  r.add({.name = "Floor", .lower = unary_op<Op::kFloor>, .dtypes = "floats"});
  r.add({.name = "Ceil", .lower = unary_op<Op::kCeil>, .dtypes = "floats"});
  r.add({.name = "Round", .lower = unary_op<Op::kRound>, .dtypes = "floats"});
  r.add({.name = "Exp", .lower = math_op<Op::kExp>, .dtypes = "floats"});
  r.add({.name = "Log", .lower = math_op<Op::kLog>, .dtypes = "floats"});
  r.add({.name = "Sqrt", .lower = math_op<Op::kSqrt>, .dtypes = "floats"});
  r.add({.name = "Reciprocal", .lower = math_op<Op::kReciprocal>, .dtypes = "floats"});
  r.add({.name = "Sigmoid", .lower = math_op<Op::kSigmoid>, .dtypes = "floats"});
  r.add({.name = "Tanh", .lower = math_op<Op::kTanh>, .dtypes = "floats"});
  r.add({.name = "Erf", .lower = math_op<Op::kErf>, .dtypes = "floats"});
  r.add({.name = "Relu", .lower = relu_op, .dtypes = "signed numbers"});
}

}  // namespace sardonyx
