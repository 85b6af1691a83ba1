// com.microsoft: activations with a bias, element-wise fusions.
#include <cmath>

#include "ops/contrib.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace contrib {

using tensor::accumulator;

Expr gelu(const Expr& x) { return el::mul(el::mul(x, 0.5), el::add(el::erf(el::mul(x, 0.70710678118654752440)), 1)); }

// 0.5 x (1 + tanh(x (a + b x^2))), a = sqrt(2 / pi), b = 0.044715 a
Expr fast_gelu(const Expr& x) {
  const Expr inner = el::mul(x, el::add(el::mul(el::square(x), 0.035677408136300125), 0.7978845608028654));
  return el::mul(el::mul(x, 0.5), el::add(el::tanh(inner), 1));
}

Expr fused_activation(OpContext& c, const std::string& name, const Expr& x, const std::vector<float>& p) {
  const DType t = x->dtype;
  auto param = [&](std::size_t k, float fallback) { return static_cast<double>(k < p.size() ? p[k] : fallback); };
  if (name.empty()) return x;
  if (name == "Relu") return el::max(x, 0);
  if (name == "Sigmoid") return el::sigmoid(x);
  if (name == "Tanh") return el::tanh(x);
  if (name == "LeakyRelu") return select(el::lt(x, constant(0, t)), el::mul(x, param(0, 0.01f)), x);
  if (name == "Clip") return el::min(el::max(x, param(0, -INFINITY)), param(1, INFINITY));
  if (name == "HardSigmoid") return el::clamp(el::add(el::mul(x, param(0, 0.2f)), param(1, 0.5f)), 0, 1);
  if (name == "Elu") return select(el::lt(x, constant(0, t)), el::mul(unary(Op::kExpm1, x), param(0, 1)), x);
  if (name == "Softplus") return el::add(el::max(x, 0), unary(Op::kLog1p, el::exp(el::neg(el::abs(x)))));
  if (name == "Gelu") return gelu(x);
  if (name == "FastGelu") return fast_gelu(x);
  if (name == "QuickGelu") return el::mul(x, el::sigmoid(el::mul(x, param(0, 1.702f))));
  if (name == "HardSwish") return el::mul(x, el::clamp(el::add(el::div(x, 6), 0.5), 0, 1));
  c.refuse("activation '{}'", name);
}

Value* activate(OpContext& c, Value* x, const std::string& name, const std::vector<float>& params) {
  if (name.empty()) return x;
  const DType t = accumulator(x->dtype);
  return tensor::map1(c.graph(), x,
                      [&](const Expr& e) { return cast(fused_activation(c, name, cast(e, t), params), x->dtype); });
}

}  // namespace contrib

namespace {

using tensor::accumulator;

// f(x + bias) with an optional bias, in fp32.
template <Expr (*f)(const Expr&)>
void biased(OpContext& c) {
  Value* x = c.in(0);
  const DType t = accumulator(x->dtype);
  std::vector<Value*> in = {x};
  if (c.has(1)) in.push_back(c.in(1));
  c.out(0, tensor::map(c.graph(), in, [&](const Exprs& e) {
          Expr v = cast(e[0], t);
          if (e.size() > 1) v = el::add(v, cast(e[1], t));
          return cast(f(v), x->dtype);
        }));
}

void quick_gelu(OpContext& c) { c.out(0, contrib::activate(c, c.in(0), "QuickGelu", {c.attr_f("alpha", 1.702f)})); }

void bias_add(OpContext& c) {
  const DType t = accumulator(c.in(0)->dtype);
  c.out(0, tensor::map(c.graph(), {c.in(0), c.in(1), c.in(2)}, [&](const Exprs& e) {
          return cast(el::add(el::add(cast(e[0], t), cast(e[1], t)), cast(e[2], t)), e[0]->dtype);
        }));
}

// The left half of x + bias times gelu of the right half.
void bias_split_gelu(OpContext& c) {
  Value *x = c.in(0), *bias = c.in(1);
  c.require(x->rank() >= 1 && bias->rank() == 1, "operands of ranks {} and {}", x->rank(), bias->rank());
  c.graph().add_check(compare(Op::kEq, x->shape.back(), bias->shape[0]), "the bias doesn't fit the last dim");
  const DType t = accumulator(x->dtype);
  Exprs shape = x->shape;
  const Expr half = idx::floordiv(shape.back(), 2);
  shape.back() = half;
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          auto element = [&](const Expr& k) {
            Exprs j = i;
            j.back() = k;
            return el::add(cast(tensor::at(x, j), t), cast(tensor::at(bias, {k}), t));
          };
          return cast(el::mul(element(i.back()), contrib::gelu(element(i.back() + half))), x->dtype);
        }));
}

// Softmax over the dims from `axis` on of data + bias; the bias is broadcast over the dims before `axis`, the inner or
// the outer ones.
void bias_softmax(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *bias = c.in(1);
  const int axis = c.axis(c.attr("axis", 1), x->rank());
  const DType t = accumulator(x->dtype);
  tensor::check_broadcast(g, bias->shape, x->shape);
  Value* sum = tensor::generate(g, x->shape, [&](const Exprs& i) {
    return el::add(cast(tensor::at(x, i), t), cast(tensor::at_broadcast(bias, i, x->shape), t));
  });
  std::vector<int> axes;
  for (int k = axis; k < x->rank(); ++k) axes.push_back(k);
  c.out(0, tensor::cast(g, tensor::softmax(g, sum, axes), x->dtype));
}

}  // namespace

void register_contrib_activation(OpRegistry& r) {
  const char* ms = "com.microsoft";
  r.add({.name = "BiasGelu", .domain = ms, .lower = biased<contrib::gelu>, .dtypes = "floats"});
  r.add({.name = "Gelu", .domain = ms, .lower = biased<contrib::gelu>, .dtypes = "floats"});
  r.add({.name = "FastGelu", .domain = ms, .lower = biased<contrib::fast_gelu>, .dtypes = "floats"});
  r.add({.name = "QuickGelu", .domain = ms, .lower = quick_gelu, .dtypes = "floats"});
  r.add({.name = "BiasAdd", .domain = ms, .lower = bias_add, .dtypes = "floats"});
  r.add({.name = "BiasSplitGelu", .domain = ms, .lower = bias_split_gelu, .dtypes = "floats"});
  r.add({.name = "BiasSoftmax",
         .domain = ms,
         .lower = bias_softmax,
         .dtypes = "floats",
         .notes = "the bias is broadcast by numpy's rules"});
}

}  // namespace sardonyx
