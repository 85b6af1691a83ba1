// com.microsoft: operators on quantised tensors. Each computes (q - zero) * scale in fp32, the operation, and quantises
// the result.
#include <algorithm>

#include "ops/conv.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/quantize.h"
#include "ops/tensor.h"
#include "ops/window.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

Expr optional_element(OpContext& c, int k) { return c.has(k) ? only_element(c, c.in(k)) : Expr(); }

// Inputs k, k + 1 and k + 2 as real numbers.
Value* real(OpContext& c, int k) {
  const Expr scale = only_element(c, c.in(k + 1)), zero = optional_element(c, k + 2);
  return tensor::map1(c.graph(), c.in(k), [&](const Expr& e) { return dequantize(e, scale, zero); });
}

// x quantised with scale and zero point at inputs k and k + 1.
Value* quantised(OpContext& c, Value* x, int k, DType to) {
  const Expr scale = only_element(c, c.in(k)), zero = optional_element(c, k + 1);
  return tensor::map1(c.graph(), x,
                      [&](const Expr& e) { return quantize(cast(e, kF32), cast(scale, kF32), zero, to); });
}

template <Op op>
void qlinear_binary(OpContext& c) {
  c.out(0, quantised(c, tensor::binary(c.graph(), op, real(c, 0), real(c, 3)), 6, c.in(0)->dtype));
}

void qlinear_sigmoid(OpContext& c) {
  c.out(0, quantised(c, tensor::unary(c.graph(), Op::kSigmoid, real(c, 0)), 3, c.in(0)->dtype));
}

void qlinear_leaky_relu(OpContext& c) {
  const double alpha = c.attr_f("alpha", 0.01f);
  Value* y = tensor::map1(c.graph(), real(c, 0),
                          [&](const Expr& e) { return select(el::lt(e, constant(0, kF32)), el::mul(e, alpha), e); });
  c.out(0, quantised(c, y, 3, c.in(0)->dtype));
}

void qlinear_where(OpContext& c) {
  Value* z = tensor::map(c.graph(), {c.in(0), real(c, 1), real(c, 4)},
                         [](const Exprs& e) { return select(e[0], e[1], e[2]); });
  c.out(0, quantised(c, z, 7, c.in(1)->dtype));
}

void qlinear_concat(OpContext& c) {
  c.require(c.input_count() >= 5 && (c.input_count() - 2) % 3 == 0, "{} inputs", c.input_count());
  std::vector<Value*> xs;
  for (int k = 2; k < c.input_count(); k += 3) xs.push_back(real(c, k));
  c.require(c.has_attr("axis"), "attribute axis is missing");
  const int axis = c.axis(c.attr("axis", 0), xs[0]->rank());
  for (const Value* x : xs)
    c.require(x->rank() == xs[0]->rank(), "tensors of ranks {} and {}", xs[0]->rank(), x->rank());
  c.out(0, quantised(c, tensor::concat(c.graph(), xs, axis), 0, c.in(1)->dtype));
}

void qlinear_softmax(OpContext& c) {
  Value* x = real(c, 0);
  const int axis = c.axis(c.attr("axis", -1), std::max(1, x->rank()));
  std::vector<int> axes = {axis};
  if (c.attr("opset", 13) < 13)
    for (int k = axis + 1; k < x->rank(); ++k) axes.push_back(k);
  c.out(0, quantised(c, tensor::softmax(c.graph(), x, axes), 3, c.in(0)->dtype));
}

void qlinear_reduce_mean(OpContext& c) {
  Value* x = real(c, 0);
  std::vector<int> axes;
  for (std::int64_t a : c.attr_ints("axes")) axes.push_back(c.axis(a, x->rank()));
  if (axes.empty())
    for (int k = 0; k < x->rank(); ++k) axes.push_back(k);
  Expr count = 1;
  for (int a : axes) count = count * x->shape[static_cast<std::size_t>(a)];
  Value* sum = tensor::reduce(c.graph(), ReduceKind::kSum, x, axes, c.attr("keepdims", 1) != 0);
  Value* mean = tensor::map1(c.graph(), sum, [&](const Expr& e) { return el::div(e, cast(count, kF32)); });
  c.out(0, quantised(c, mean, 3, c.in(0)->dtype));
}

// Channels-last tensors as channels-first ones and back.
Value* channels_first(OpContext& c, Value* x) {
  if (c.attr("channels_last", 0) == 0) return x;
  c.require(x->rank() >= 3, "an input of rank {}", x->rank());
  std::vector<int> perm = {0, x->rank() - 1};
  for (int k = 1; k < x->rank() - 1; ++k) perm.push_back(k);
  return tensor::transpose(c.graph(), x, perm);
}

Value* channels_last(OpContext& c, Value* y) {
  if (c.attr("channels_last", 0) == 0) return y;
  std::vector<int> perm = {0};
  for (int k = 2; k < y->rank(); ++k) perm.push_back(k);
  perm.push_back(1);
  return tensor::transpose(c.graph(), y, perm);
}

void qlinear_average_pool(OpContext& c) {
  Value* x = channels_first(c, real(c, 0));
  Value* y = average_pool_of(c, x);
  c.out(0, channels_last(c, quantised(c, y, 3, c.in(0)->dtype)));
}

void qlinear_global_average_pool(OpContext& c) {
  Value* x = channels_first(c, real(c, 0));
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  std::vector<int> axes;
  Expr count = 1;
  for (int k = 2; k < x->rank(); ++k) {
    axes.push_back(k);
    count = count * x->shape[static_cast<std::size_t>(k)];
  }
  Value* sum = tensor::reduce(c.graph(), ReduceKind::kSum, x, axes, true);
  Value* mean = tensor::map1(c.graph(), sum, [&](const Expr& e) { return el::div(e, cast(count, kF32)); });
  c.out(0, channels_last(c, quantised(c, mean, 3, c.in(0)->dtype)));
}

void qlinear_conv_any_layout(OpContext& c) {
  c.out(0, channels_last(c, lower_qlinear_conv(c, channels_first(c, c.in(0)))));
}

// alpha * op(A) op(B) + C, quantised if an output scale is given. C is int32 in units of alpha * a_scale * b_scale.
void qgemm(OpContext& c) {
  Graph& g = c.graph();
  Value *sb = c.in(4), *bias = c.opt(6);
  Value *a = c.in(0), *za = c.opt(2), *b = c.in(3), *zb = c.opt(5);
  c.require(a->rank() == 2 && b->rank() == 2, "operands of ranks {} and {}", a->rank(), b->rank());
  if (c.attr("transA", 0) != 0) a = tensor::transpose(g, a, {1, 0});
  if (c.attr("transB", 0) != 0) b = tensor::transpose(g, b, {1, 0});  // first, as its zero points belong to columns
  c.require(!za || za->rank() == 0 || is_const(za->elements(), 1), "zero points of shape {} for A",
            to_string(za ? za->shape : Exprs()));
  Value* acc = quantized_matmul(c, a, za, b, zb);
  if (bias) acc = tensor::binary(g, Op::kAdd, acc, bias);
  const double alpha = c.attr_f("alpha", 1);
  const Expr sa = only_element(c, c.in(1));
  auto multiplier = [&](const Exprs& i) {
    return el::mul(el::mul(sa, matrix_scale(g, sb, i, acc->shape, false)), alpha);
  };
  if (!c.has(7)) {
    return c.out(0, tensor::generate(g, acc->shape, [&](const Exprs& i) {
                   return el::mul(cast(tensor::at(acc, i), kF32), multiplier(i));
                 }));
  }
  const Expr sy = only_element(c, c.in(7)), zy = optional_element(c, 8);
  const DType to = c.has(8) ? c.in(8)->dtype : c.in(0)->dtype;
  c.out(0, requantize(g, acc, [&](const Exprs& i) { return el::div(multiplier(i), sy); }, zy, to));
}

Value* scaled_gemm(OpContext& c, Value* acc, Value* sa, Value* sb, Value* bias, DType out) {
  Graph& g = c.graph();
  Value* y = tensor::generate(g, acc->shape, [&](const Exprs& i) {
    const Expr scale = el::mul(matrix_scale(g, sa, i, acc->shape, true), matrix_scale(g, sb, i, acc->shape, false));
    return el::mul(cast(tensor::at(acc, i), kF32), scale);
  });
  if (bias) y = tensor::map2(g, y, bias, [](const Expr& u, const Expr& v) { return el::add(u, cast(v, kF32)); });
  return tensor::cast(g, y, out);
}

// Inputs: A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias.
void matmul_integer_to_float(OpContext& c) {
  Value* acc = quantized_matmul(c, c.in(0), c.opt(4), c.in(1), c.opt(5));
  c.out(0, scaled_gemm(c, acc, c.in(2), c.in(3), c.opt(6), c.in(2)->dtype));
}

// Inputs: A (float), B, b_scale, b_zero_point, bias.
void dynamic_quantize_matmul(OpContext& c) {
  const DynamicallyQuantized q = quantize_dynamically(c.graph(), c.in(0));
  Value* acc = quantized_matmul(c, q.y, q.zero, c.in(1), c.opt(3));
  c.out(0, scaled_gemm(c, acc, q.scale, c.in(2), c.opt(4), c.in(0)->dtype));
}

void matmul_integer16(OpContext& c) {
  const bool uns = !is_signed(c.in(0)->dtype) && !is_signed(c.in(1)->dtype);
  const DType t = DType::kInt32;
  Value* y = tensor::matmul(c.graph(), tensor::cast(c.graph(), c.in(0), t), tensor::cast(c.graph(), c.in(1), t));
  c.out(0, uns ? tensor::cast(c.graph(), y, DType::kUInt32) : y);
}

}  // namespace

void register_contrib_quantize(OpRegistry& r) {
  const std::string bytes = "int8, uint8", notes = "scales apply in fp32";
  auto add = [&](const char* name, LowerFn lower) {
    r.add({.name = name, .domain = "com.microsoft", .lower = lower, .dtypes = bytes, .notes = notes});
  };
  add("QLinearAdd", qlinear_binary<Op::kAdd>);
  add("QLinearMul", qlinear_binary<Op::kMul>);
  add("QLinearSigmoid", qlinear_sigmoid);
  add("QLinearLeakyRelu", qlinear_leaky_relu);
  add("QLinearWhere", qlinear_where);
  add("QLinearConcat", qlinear_concat);
  add("QLinearSoftmax", qlinear_softmax);
  add("QLinearReduceMean", qlinear_reduce_mean);
  add("QLinearAveragePool", qlinear_average_pool);
  add("QLinearGlobalAveragePool", qlinear_global_average_pool);
  add("QLinearConv", qlinear_conv_any_layout);
  add("QGemm", qgemm);
  add("MatMulIntegerToFloat", matmul_integer_to_float);
  add("DynamicQuantizeMatMul", dynamic_quantize_matmul);
  r.add({.name = "MatMulInteger16", .domain = "com.microsoft", .lower = matmul_integer16, .dtypes = "int16, uint16"});
}

}  // namespace sardonyx
