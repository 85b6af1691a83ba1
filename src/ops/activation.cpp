// Activations: element-wise functions with parameters, and Clip. Smaller floats are computed in fp32.
#include <cmath>

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using el::add, el::div, el::mul;
using tensor::accumulator;
using UnaryFn = std::function<Expr(const Expr&)>;

Expr k(double v, const Expr& like) { return constant(v, like->dtype); }
Expr less(const Expr& a, const Expr& b) { return compare(Op::kLt, a, b); }

// y = f(x), f computed in the accumulator's type.
void activation(OpContext& c, const UnaryFn& f) {
  c.out(0, tensor::map1(c.graph(), c.in(0),
                        [&](const Expr& x) { return cast(f(cast(x, accumulator(x->dtype))), x->dtype); }));
}

// log(1 + exp(x)) without overflow.
Expr softplus(const Expr& x) {
  const Expr decay = unary(Op::kExp, unary(Op::kNeg, unary(Op::kAbs, x)));
  return add(binary(Op::kMax, x, k(0, x)), unary(Op::kLog1p, decay));
}

Expr swish(const Expr& x, double alpha) { return mul(x, unary(Op::kSigmoid, mul(x, k(alpha, x)))); }

void celu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1);
  c.require(alpha != 0, "alpha is 0");
  activation(c, [&](const Expr& x) {
    const Expr negative = mul(k(alpha, x), unary(Op::kExpm1, div(x, k(alpha, x))));
    return add(binary(Op::kMax, x, k(0, x)), binary(Op::kMin, negative, k(0, x)));
  });
}

void elu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1);
  activation(c, [&](const Expr& x) { return select(less(x, k(0, x)), mul(k(alpha, x), unary(Op::kExpm1, x)), x); });
}

void selu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1.67326319217681884765625F);
  const double gamma = c.attr_f("gamma", 1.05070102214813232421875F);
  activation(c, [&](const Expr& x) {
    return select(less(k(0, x), x), mul(k(gamma, x), x), mul(k(gamma, x), mul(k(alpha, x), unary(Op::kExpm1, x))));
  });
}

void gelu_op(OpContext& c) {
  const std::string approximate = c.attr_s("approximate", "none");
  c.require(approximate == "none" || approximate == "tanh", "approximate is '{}'", approximate);
  activation(c, [&](const Expr& x) {
    Expr gate;
    if (approximate == "none") {
      gate = unary(Op::kErf, mul(x, k(M_SQRT1_2, x)));
    } else {
      const Expr cubed = mul(mul(x, x), x);
      gate = unary(Op::kTanh, mul(k(std::sqrt(2 / M_PI), x), add(x, mul(k(0.044715, x), cubed))));
    }
    return mul(mul(k(0.5, x), x), add(k(1, x), gate));
  });
}

Expr hard_sigmoid(const Expr& x, double alpha, double beta) {
  return binary(Op::kMax, k(0, x), binary(Op::kMin, k(1, x), add(mul(k(alpha, x), x), k(beta, x))));
}

void hard_sigmoid_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 0.2F), beta = c.attr_f("beta", 0.5F);
  activation(c, [&](const Expr& x) { return hard_sigmoid(x, alpha, beta); });
}

void hard_swish_op(OpContext& c) {
  activation(c, [](const Expr& x) { return mul(x, hard_sigmoid(x, 1.0 / 6, 0.5)); });
}

void leaky_relu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 0.01F);
  activation(c, [&](const Expr& x) { return select(less(x, k(0, x)), mul(k(alpha, x), x), x); });
}

void mish_op(OpContext& c) {
  activation(c, [](const Expr& x) { return mul(x, unary(Op::kTanh, softplus(x))); });
}

void softplus_op(OpContext& c) { activation(c, softplus); }

void softsign_op(OpContext& c) {
  activation(c, [](const Expr& x) { return div(x, add(k(1, x), unary(Op::kAbs, x))); });
}

void swish_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1);
  activation(c, [&](const Expr& x) { return swish(x, alpha); });
}

// y = swish(a) * b
void swiglu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1);
  Value *a = c.in(0), *b = c.in(1);
  c.require(a->dtype == b->dtype && a->rank() == b->rank(), "operands of different dtypes or ranks");
  c.out(0, tensor::map2(c.graph(), a, b, [&](const Expr& gate, const Expr& linear) {
          const DType t = accumulator(gate->dtype);
          return cast(mul(swish(cast(gate, t), alpha), cast(linear, t)), gate->dtype);
        }));
}

void thresholded_relu_op(OpContext& c) {
  const double alpha = c.attr_f("alpha", 1);
  activation(c, [&](const Expr& x) { return select(less(k(alpha, x), x), x, k(0, x)); });
}

// x shrunk towards zero by `bias` outside of [-lambd, lambd], 0 inside. Integers are computed in fp64, as the bias may
// be fractional.
void shrink_op(OpContext& c) {
  const double lambd = c.attr_f("lambd", 0.5F), bias = c.attr_f("bias", 0);
  c.out(0, tensor::map1(c.graph(), c.in(0), [&](const Expr& e) {
          const Expr x = cast(e, is_float(e->dtype) ? accumulator(e->dtype) : DType::kFloat64);
          const Expr above = select(less(k(lambd, x), x), add(x, k(-bias, x)), k(0, x));
          return cast(select(less(x, k(-lambd, x)), add(x, k(bias, x)), above), e->dtype);
        }));
}

// The slope broadcasts to x, never the other way.
void prelu_op(OpContext& c) {
  Value *x = c.in(0), *slope = c.in(1);
  c.require(slope->rank() <= x->rank(), "a slope of rank {} for an input of rank {}", slope->rank(), x->rank());
  if (c.opset() < 7 && slope->rank() == 1 && x->rank() > 2 && !is_const(slope->shape[0], 1)) {  // one for each channel
    Exprs shape(x->shape.size() - 1, Expr(1));
    shape[0] = slope->shape[0];
    slope = tensor::reshape(c.graph(), slope, shape);
  }
  c.out(0, tensor::map2(c.graph(), x, slope,
                        [](const Expr& e, const Expr& s) { return select(less(e, k(0, e)), mul(e, s), e); }));
}

// min(max(x, low), high). Limits are attributes before opset 11, scalar inputs since.
void clip_op(OpContext& c) {
  Value* x = c.in(0);
  const DType t = x->dtype;
  Expr low, high;
  if (c.opset() < 11) {
    if (c.has_attr("min")) low = constant(c.attr_f("min", 0), t);
    if (c.has_attr("max")) high = constant(c.attr_f("max", 0), t);
  } else {
    if (c.has(1)) low = scalar_element(c, c.in(1));
    if (c.has(2)) high = scalar_element(c, c.in(2));
    c.require((!low || low->dtype == t) && (!high || high->dtype == t), "limits must have the input's dtype");
  }
  c.out(0, tensor::map1(c.graph(), x, [&](const Expr& e) {
          Expr y = low ? binary(Op::kMax, e, low) : e;
          return high ? binary(Op::kMin, y, high) : y;
        }));
}

// 1 at the first largest element along the axis, 0 elsewhere. Before opset 13: along the axis and all after it.
void hardmax_op(OpContext& c) {
  Value* x = c.in(0);
  const int rank = x->rank();
  const int axis = c.axis(c.attr("axis", c.opset() >= 13 ? -1 : 1), std::max(1, rank));
  const auto reduced = [&](std::size_t d) {
    return c.opset() >= 13 ? static_cast<int>(d) == axis : static_cast<int>(d) >= axis;
  };
  Exprs vars, indices, along;
  for (std::size_t d = 0; d < x->shape.size(); ++d) {
    indices.push_back(loop_var(x->shape[d]));
    if (reduced(d)) along.push_back(indices.back());
    vars.push_back(reduced(d) ? loop_var(1) : indices.back());
  }
  Value* top = c.graph().add_loop(vars, reduce(ReduceKind::kArgMax, along, tensor::at(x, indices)));
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          Exprs at_top = i, position, extent;
          for (std::size_t d = 0; d < i.size(); ++d) {
            if (!reduced(d)) continue;
            at_top[d] = 0;
            position.push_back(i[d]);
            extent.push_back(x->shape[d]);
          }
          const Expr hit = compare(Op::kEq, idx::linearize(position, extent), tensor::at(top, at_top));
          return select(hit, constant(1, x->dtype), constant(0, x->dtype));
        }));
}

}  // namespace

void register_activation(OpRegistry& r) {
  r.add({.name = "Celu", .lower = celu_op, .dtypes = "floats"});
  r.add({.name = "Elu", .lower = elu_op, .dtypes = "floats"});
  r.add({.name = "Selu", .lower = selu_op, .dtypes = "floats"});
  r.add({.name = "Gelu", .lower = gelu_op, .dtypes = "floats"});
  r.add({.name = "HardSigmoid", .lower = hard_sigmoid_op, .dtypes = "floats"});
  r.add({.name = "HardSwish", .lower = hard_swish_op, .dtypes = "floats"});
  r.add({.name = "LeakyRelu", .lower = leaky_relu_op, .dtypes = "floats"});
  r.add({.name = "Mish", .lower = mish_op, .dtypes = "floats"});
  r.add({.name = "PRelu", .lower = prelu_op, .dtypes = "numbers"});
  r.add({.name = "Softplus", .min_opset = 1, .lower = softplus_op, .dtypes = "floats"});
  r.add({.name = "Softsign", .min_opset = 1, .lower = softsign_op, .dtypes = "floats"});
  r.add({.name = "Swish", .lower = swish_op, .dtypes = "floats"});
  r.add({.name = "SwiGLU", .lower = swiglu_op, .dtypes = "floats"});
  r.add({.name = "ThresholdedRelu", .lower = thresholded_relu_op, .dtypes = "floats"});
  r.add({.name = "Shrink", .lower = shrink_op, .dtypes = "numbers"});
  r.add({.name = "Clip", .lower = clip_op, .dtypes = "numbers"});
  r.add({.name = "Hardmax", .lower = hardmax_op, .dtypes = "floats"});
}

}  // namespace sardonyx
