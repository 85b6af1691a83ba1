// QuantizeLinear, DequantizeLinear, and MatMul and Conv on quantised tensors: MatMulInteger, QLinearMatMul,
// QLinearConv. Integer sums are exact in int32; scales are applied in fp32.
#include "ops/quantize.h"

#include "graph/analysis.h"
#include "ops/conv.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/integer_gemm.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

bool single(const Value* v) {
  std::int64_t d;
  for (const Expr& e : v->shape)
    if (!is_const_int(e, d) || d != 1) return false;
  return true;
}

bool is_byte(const Value* v) { return v->dtype == DType::kInt8 || v->dtype == DType::kUInt8; }

void quantize_linear(OpContext& c) {
  Value* x = c.in(0);
  const Quantization q = quantization_of(c, 1, 2, x->shape);
  DType to = q.zero ? q.zero->dtype : DType::kUInt8;
  if (const std::int64_t t = c.attr("output_dtype", 0)) {
    to = from_onnx(static_cast<int>(t));
    c.require(!q.zero || q.zero->dtype == to, "output_dtype {} with a zero point of {}", name(to),
              name(q.zero ? q.zero->dtype : to));
  }
  DType precision = q.scale->dtype;
  if (const std::int64_t t = c.attr("precision", 0)) precision = from_onnx(static_cast<int>(t));
  const bool plain = precision == DType::kFloat16 || precision == DType::kBFloat16 || precision == DType::kFloat64;
  if (!plain) precision = kF32;  // a scale of float8e8m0 or int32 says nothing about the division
  const bool saturate = c.attr("saturate", 1) != 0;
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          return quantize(cast(tensor::at(x, i), precision), cast(q.scale_at(i, x->shape), precision),
                          q.zero_at(i, x->shape), to, saturate);
        }));
}

void dequantize_linear(OpContext& c) {
  Value* x = c.in(0);
  Quantization q = quantization_of(c, 1, 2, x->shape);
  c.require(!q.zero || q.zero->dtype == x->dtype, "an input of {} with a zero point of {}", name(x->dtype),
            name(q.zero ? q.zero->dtype : x->dtype));
  if (q.zero && all_zeros(q.zero)) q.zero = nullptr;
  DType out = q.scale->dtype;
  if (const std::int64_t t = c.attr("output_dtype", 0)) out = from_onnx(static_cast<int>(t));
  c.require(out == kF32 || out == DType::kFloat16 || out == DType::kBFloat16 || out == DType::kFloat64,
            "an output of {}; set output_dtype", name(out));
  const Exprs vars = vars_of(x->shape);
  const Expr body = dequantize(tensor::at(x, vars), q.scale_at(vars, x->shape), q.zero_at(vars, x->shape), out);
  // Small constant weights are not folded: a product or convolution must see their integers, whose sums are exact.
  const bool weights = is_byte(x) && x->rank() >= 2 && x->content;
  c.out(0, weights ? c.graph().add_node(LoopOp{vars, body}, loads_of(body), {{out, x->shape}})->outputs[0]
                   : c.graph().add_loop(vars, body));
}

void dynamic_quantize_linear(OpContext& c) {
  const DynamicallyQuantized q = quantize_dynamically(c.graph(), c.in(0));
  c.out(0, q.y);
  c.out(1, q.scale);
  c.out(2, q.zero);
}

void matmul_integer(OpContext& c) { c.out(0, quantized_matmul(c, c.in(0), c.opt(2), c.in(1), c.opt(3))); }

void qlinear_matmul(OpContext& c) {
  Graph& g = c.graph();
  Value *sa = c.in(1), *sb = c.in(4), *sy = c.in(6), *zy = c.in(7);
  Value* acc = quantized_matmul(c, c.in(0), c.in(2), c.in(3), c.in(5));
  if (!single(zy)) tensor::check_broadcast(g, zy->shape, acc->shape);
  c.out(0, tensor::generate(g, acc->shape, [&](const Exprs& i) {
          const Expr scale =
              el::div(el::mul(matrix_scale(g, sa, i, acc->shape, true), matrix_scale(g, sb, i, acc->shape, false)),
                      matrix_scale(g, sy, i, acc->shape, true));
          return quantize_quotient(el::mul(cast(tensor::at(acc, i), kF32), scale),
                                   single(zy) ? only_element(c, zy) : tensor::at_broadcast(zy, i, acc->shape),
                                   zy->dtype);
        }));
}

void qlinear_conv(OpContext& c) { c.out(0, lower_qlinear_conv(c, c.in(0))); }

}  // namespace

Expr quantize_quotient(const Expr& quotient, const Expr& zero, DType to, bool saturate) {
  if (is_float(to))
    return cast(to == DType::kFloat4E2M1 && zero ? el::add(quotient, cast(zero, quotient->dtype)) : quotient, to,
                saturate ? 1 : 0);
  Expr r = el::round(quotient);
  if (zero && !is_const(zero, 0)) r = el::add(r, cast(zero, r->dtype));
  return cast(el::clamp(r, el::lowest(to), el::largest(to)), to);
}

Expr quantize(const Expr& x, const Expr& scale, const Expr& zero, DType to, bool saturate) {
  const Expr q = el::div(x, scale);
  return quantize_quotient(q->dtype == DType::kFloat64 ? q : cast(q, kF32), zero, to, saturate);
}

Expr dequantize(const Expr& q, const Expr& scale, const Expr& zero, DType out) {
  Expr e;
  if (is_float(q->dtype)) {
    e = cast(q, kF32);
    if (zero) e = el::sub(e, cast(zero, kF32));
  } else {
    e = cast(q, DType::kInt32);
    if (zero && !is_const(zero, 0)) e = el::sub(e, cast(zero, DType::kInt32));
    e = cast(e, kF32);
  }
  return cast(el::mul(e, cast(scale, kF32)), out);
}

Expr only_element(OpContext& c, const Value* v) {
  c.graph().add_check(compare(Op::kEq, v->elements(), 1),
                      fmt::format("one element is needed, not shape {}", to_string(v->shape)));
  if (v->content) return v->content->at(0);
  return tensor::at(v, Exprs(v->shape.size(), Expr(0)));
}

Expr Quantization::element(const Value* v, const Exprs& i, const Exprs& shape) const {
  if (single(v)) return v->content ? v->content->at(0) : tensor::at(v, Exprs(v->shape.size(), Expr(0)));
  const auto a = static_cast<std::size_t>(axis);
  if (block > 0) {
    Exprs j = i;
    j[a] = idx::floordiv(i[a], block);
    return tensor::at(v, j);
  }
  return tensor::at(v, {idx::provably_equal(v->shape[0], shape[a]) ? i[a] : idx::min(i[a], v->shape[0] - 1)});
}

bool all_zeros(const Value* v) {
  if (!v->is_constant()) return false;
  const Data& data = v->constant();
  return std::all_of(data.bytes, data.bytes + data.size, [](std::byte b) { return b == std::byte{0}; });
}

Quantization quantization_of(OpContext& c, int scale, int zero, const Exprs& shape, std::int64_t default_axis) {
  Quantization q;
  q.scale = c.in(scale);
  q.zero = c.opt(zero);
  q.block = c.attr("block_size", 0);
  c.require(q.block >= 0, "block_size is {}", q.block);
  if (q.zero && (single(q.scale) != single(q.zero) || (!single(q.zero) && q.zero->rank() != q.scale->rank())))
    c.invalid("a scale of shape {} with a zero point of shape {}", to_string(q.scale->shape), to_string(q.zero->shape));
  if (single(q.scale)) return q;
  q.axis = c.axis(c.attr("axis", default_axis), static_cast<int>(shape.size()));
  const auto a = static_cast<std::size_t>(q.axis);
  Graph& g = c.graph();
  for (const Value* v : {q.scale, q.zero}) {
    if (!v) continue;
    const auto mismatch = [&] {
      return fmt::format("a scale or zero point of shape {} doesn't fit a tensor of shape {}", to_string(v->shape),
                         to_string(shape));
    };
    if (q.block == 0) {
      c.require(v->rank() == 1, "{}", mismatch());
      g.add_check(logical_or(compare(Op::kEq, v->shape[0], shape[a]), compare(Op::kEq, v->shape[0], 1)), mismatch());
      continue;
    }
    c.require(v->shape.size() == shape.size(), "{}", mismatch());
    for (std::size_t d = 0; d < shape.size(); ++d)
      g.add_check(
          d == a ? compare(Op::kGe, v->shape[d] * Expr(q.block), shape[d]) : compare(Op::kEq, v->shape[d], shape[d]),
          mismatch());
  }
  return q;
}

Value* widen_quantized(OpContext& c, Value* x, Value* zero, bool rows) {
  Graph& g = c.graph();
  if (is_float(x->dtype)) return tensor::cast(g, x, kF32);  // fp8 has no zero point
  const DType t = DType::kInt32;
  if (!zero) return tensor::cast(g, x, t);
  const bool by_row = rows && zero->rank() == 1 && !single(zero) && x->rank() >= 2;
  if (by_row)
    g.add_check(compare(Op::kEq, zero->shape[0], x->shape[x->shape.size() - 2]), "the zero points don't fit the rows");
  else if (!single(zero)) {
    tensor::check_broadcast(g, zero->shape, x->shape);
  }
  return tensor::generate(g, x->shape, [&](const Exprs& i) {
    const Expr z = single(zero) ? only_element(c, zero)
                   : by_row     ? tensor::at(zero, {i[i.size() - 2]})
                                : tensor::at_broadcast(zero, i, x->shape);
    return el::sub(cast(tensor::at(x, i), t), cast(z, t));
  });
}

Value* quantized_matmul(OpContext& c, Value* a, Value* a_zero, Value* b, Value* b_zero) {
  if (Value* y = integer_matmul(c.graph(), a, a_zero, b, b_zero, false)) return y;
  return tensor::matmul(c.graph(), widen_quantized(c, a, a_zero, true), widen_quantized(c, b, b_zero, false));
}

Expr matrix_scale(Graph& g, const Value* scale, const Exprs& i, const Exprs& shape, bool rows) {
  Expr e;
  if (single(scale))
    e = scale->content ? scale->content->at(0) : tensor::at(scale, Exprs(scale->shape.size(), Expr(0)));
  else if (rows && scale->rank() == 1 && i.size() >= 2) {
    g.add_check(compare(Op::kEq, scale->shape[0], shape[shape.size() - 2]), "the scales don't fit the rows");
    e = tensor::at(scale, {i[i.size() - 2]});
  } else {
    tensor::check_broadcast(g, scale->shape, shape);
    e = tensor::at_broadcast(scale, i, shape);
  }
  return cast(e, kF32);
}

Value* requantize(Graph& g, Value* acc, const std::function<Expr(const Exprs&)>& multiplier, const Expr& zero,
                  DType to) {
  return tensor::generate(g, acc->shape, [&](const Exprs& i) {
    return quantize_quotient(el::mul(cast(tensor::at(acc, i), kF32), multiplier(i)), zero, to);
  });
}

DynamicallyQuantized quantize_dynamically(Graph& g, Value* x) {
  std::vector<int> axes;
  for (int k = 0; k < x->rank(); ++k) axes.push_back(k);
  const DType u8 = DType::kUInt8;
  Value* low = tensor::reduce(g, ReduceKind::kMin, x, axes, false, [](const Expr& e) { return cast(e, kF32); });
  Value* high = tensor::reduce(g, ReduceKind::kMax, x, axes, false, [](const Expr& e) { return cast(e, kF32); });
  Value* scale = tensor::map2(g, low, high, [](const Expr& a, const Expr& b) {
    const Expr range = el::sub(el::max(b, 0), el::min(a, 0));
    return select(el::eq(range, constant(0, kF32)), constant(1, kF32),
                  el::div(range, 255));  // of zeros: any scale will do
  });
  Value* zero = tensor::map2(g, low, scale, [&](const Expr& a, const Expr& s) {
    return cast(el::round(el::clamp(el::neg(el::div(el::min(a, 0), s)), 0, 255)), u8);
  });
  Value* y = tensor::generate(g, x->shape, [&](const Exprs& i) {
    return quantize(cast(tensor::at(x, i), kF32), tensor::at(scale, {}), tensor::at(zero, {}), u8);
  });
  return {y, scale, zero};
}

// x, its scale and zero point, w with its own (per tensor or output channel), y's scale and zero point, bias (int32).
Value* lower_qlinear_conv(OpContext& c, Value* x) {
  Graph& g = c.graph();
  Value *w = c.in(3), *sw = c.in(4), *zy = c.in(7), *bias = c.opt(8);
  c.require(sw->rank() <= 1, "a scale of rank {} for the weights", sw->rank());
  if (!single(sw))
    g.add_check(compare(Op::kEq, sw->shape[0], w->shape[0]), "the weights' scales don't fit their output channels");
  if (bias) {
    c.require(bias->rank() == 1 && bias->dtype == DType::kInt32, "a bias of rank {} and dtype {}", bias->rank(),
              name(bias->dtype));
    g.add_check(compare(Op::kEq, bias->shape[0], w->shape[0]), "the bias doesn't fit the output channels");
  }
  Value* acc = lower_integer_conv(c, x, c.in(2), w, c.in(5));
  const Expr sx = only_element(c, c.in(1)), sy = only_element(c, c.in(6)), zero = only_element(c, zy);
  return tensor::generate(g, acc->shape, [&](const Exprs& i) {
    Expr a = tensor::at(acc, i);
    if (bias) a = el::add(a, tensor::at(bias, {i[1]}));
    const Expr s = single(sw) ? only_element(c, sw) : tensor::at(sw, {i[1]});
    return quantize_quotient(el::mul(cast(a, kF32), el::div(el::mul(sx, s), sy)), zero, zy->dtype);
  });
}

void register_quantize(OpRegistry& r) {
  const std::string quantised =
      "int8, uint8, int16, uint16, int4, uint4, int2, uint2, float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, "
      "float4e2m1";
  for (const char* domain : {"", "com.microsoft"}) {
    r.add({.name = "QuantizeLinear",
           .domain = domain,
           .lower = quantize_linear,
           .dtypes = "float32, float16, bfloat16, int32 to " + quantised,
           .notes = "per tensor, axis or block; fp8 ignores zero points"});
    r.add({.name = "DequantizeLinear",
           .domain = domain,
           .lower = dequantize_linear,
           .dtypes = quantised + ", int32 to float32, float16, bfloat16",
           .notes = "computed in fp32"});
  }
  r.add({.name = "DynamicQuantizeLinear",
         .min_opset = 11,
         .lower = dynamic_quantize_linear,
         .dtypes = "float32 to uint8"});
  r.add({.name = "MatMulInteger", .min_opset = 10, .lower = matmul_integer, .dtypes = "int8, uint8"});
  r.add({.name = "QLinearMatMul",
         .min_opset = 10,
         .lower = qlinear_matmul,
         .dtypes = "int8, uint8, float8",
         .notes = "scales apply in fp32; fp8 ignores zero points"});
  r.add({.name = "QLinearConv",
         .min_opset = 10,
         .lower = qlinear_conv,
         .dtypes = "int8, uint8",
         .notes = "scales apply in fp32"});
}

}  // namespace sardonyx
