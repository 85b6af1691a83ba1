// MatMul, Gemm and softmax.
#include "ops/families.h"
#include "ops/integer_gemm.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

void matmul_op(OpContext& c) {
  c.require(c.in(0)->rank() > 0 && c.in(1)->rank() > 0, "an operand is a scalar; use Mul");
  Value* y = dequantized_matmul(c.graph(), c.in(0), c.in(1), false);
  c.out(0, y ? y : tensor::matmul(c.graph(), c.in(0), c.in(1)));
}

// y = alpha * op(A) op(B) + beta * C
void gemm_op(OpContext& c) {
  Value *a = c.in(0), *b = c.in(1);
  c.require(a->rank() == 2 && b->rank() == 2, "operands of ranks {} and {}", a->rank(), b->rank());
  const bool trans_a = c.attr("transA", 0) != 0, trans_b = c.attr("transB", 0) != 0;
  Value* y = trans_a ? nullptr : dequantized_matmul(c.graph(), a, b, trans_b);
  if (!y) y = tensor::matmul(c.graph(), a, b, trans_a, trans_b);
  const float alpha = c.attr_f("alpha", 1), beta = c.attr_f("beta", 1);
  const bool scaled = alpha != 1, biased = c.has(2) && beta != 0;
  if (scaled || biased) {
    std::vector<Value*> xs = {y};
    if (biased) xs.push_back(c.in(2));
    y = tensor::map(c.graph(), xs, [&](const Exprs& e) {
      Expr r = scaled ? binary(Op::kMul, e[0], constant(alpha, e[0]->dtype)) : e[0];
      if (biased) r = binary(Op::kAdd, r, beta != 1 ? binary(Op::kMul, e[1], constant(beta, e[1]->dtype)) : e[1]);
      return r;
    });
  }
  c.out(0, y);
}

// Since opset 13 along one axis; before, over the axis and all after it.
template <bool log>
void softmax_op(OpContext& c) {
  Value* x = c.in(0);
  const int axis = c.axis(c.attr("axis", c.opset() >= 13 ? -1 : 1), std::max(1, x->rank()));
  std::vector<int> axes = {axis};
  if (c.opset() < 13)
    for (int k = axis + 1; k < x->rank(); ++k) axes.push_back(k);
  c.out(0, tensor::softmax(c.graph(), x, axes, log));
}

}  // namespace

void register_matmul(OpRegistry& r) {
  r.add({.name = "MatMul", .lower = matmul_op, .dtypes = "numbers"});
  r.add({.name = "Gemm", .lower = gemm_op, .dtypes = "numbers"});
  r.add({.name = "Softmax", .lower = softmax_op<false>, .dtypes = "floats"});
  r.add({.name = "LogSoftmax", .lower = softmax_op<true>, .dtypes = "floats"});
}

}  // namespace sardonyx
