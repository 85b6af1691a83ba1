// Random numbers: Dropout, Random*, Bernoulli, Multinomial. Numbers come from a counter-based generator
// (Philox4x32-10), so that an element's number depends on the seed and its position alone, on every device.
#include <cmath>
#include <cstring>

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;

// The seed attribute (a float, or an integer for Dropout), or a new one in each run.
Expr seed_of(OpContext& c) {
  if (!c.has_attr("seed")) {
    const auto node = static_cast<std::int64_t>(c.graph().nodes.size());  // tells equal nodes apart
    Value* v = tensor::routine(c.graph(), "random_seed", {}, {node}, {}, {{DType::kUInt64, {}}})[0];
    return tensor::at(v, {});
  }
  if (c.node().op_type == "Dropout") return constant_int(c.attr("seed", 0), DType::kUInt64);
  const float seed = c.attr_f("seed", 0);
  std::uint32_t bits;
  std::memcpy(&bits, &seed, 4);
  return constant_int(bits, DType::kUInt64);
}

DType float_dtype(OpContext& c, DType fallback) {
  const DType t = dtype_attr(c, "dtype", is_float(fallback) ? fallback : kF32);
  c.require(is_float(t), "random numbers of dtype {}", name(t));
  return t;
}

Exprs shape_attr(OpContext& c) {
  Exprs shape;
  for (std::int64_t d : c.attr_ints("shape")) shape.push_back(d);
  return shape;
}

using el::add, el::mul;

void uniform(OpContext& c, const Exprs& shape, DType t) {
  const float low = c.attr_f("low", 0), high = c.attr_f("high", 1);
  const Expr seed = seed_of(c);
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          const Expr u = random_uniform(seed, idx::linearize(i, shape));
          return cast(add(constant(low, kF32), mul(u, constant(static_cast<double>(high) - low, kF32))), t);
        }));
}

// Box and Muller, "A note on the generation of random normal deviates", 1958.
void normal(OpContext& c, const Exprs& shape, DType t) {
  const float mean = c.attr_f("mean", 0), scale = c.attr_f("scale", 1);
  const Expr seed = seed_of(c);
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          const Expr at = idx::linearize(i, shape) * 2;
          const Expr u = random_uniform(seed, at), v = random_uniform(seed, at + 1);
          const Expr log = unary(Op::kLog, binary(Op::kSub, constant(1, kF32), u));  // 1 - u is never 0
          const Expr radius = unary(Op::kSqrt, mul(constant(-2, kF32), log));
          const Expr z = mul(radius, unary(Op::kCos, mul(constant(2 * M_PI, kF32), v)));
          return cast(add(constant(mean, kF32), mul(z, constant(scale, kF32))), t);
        }));
}

void random_uniform_op(OpContext& c) { uniform(c, shape_attr(c), float_dtype(c, kF32)); }
void random_normal_op(OpContext& c) { normal(c, shape_attr(c), float_dtype(c, kF32)); }
void random_uniform_like_op(OpContext& c) { uniform(c, c.in(0)->shape, float_dtype(c, c.in(0)->dtype)); }
void random_normal_like_op(OpContext& c) { normal(c, c.in(0)->shape, float_dtype(c, c.in(0)->dtype)); }

void bernoulli_op(OpContext& c) {
  Value* p = c.in(0);
  const DType t = dtype_attr(c, "dtype", p->dtype);
  const Expr seed = seed_of(c);
  c.out(0, tensor::generate(c.graph(), p->shape, [&](const Exprs& i) {
          const Expr u = random_uniform(seed, idx::linearize(i, p->shape));
          const Expr hit = compare(Op::kLt, u, cast(tensor::at(p, i), kF32));
          return select(hit, constant(1, t), constant(0, t));
        }));
}

// A class drawn with probability proportional to exp(x) is the argmax of x plus Gumbel noise.
void multinomial_op(OpContext& c) {
  Value* x = c.in(0);
  c.require(x->rank() == 2, "an input of rank {}, not 2", x->rank());
  const DType t = dtype_attr(c, "dtype", DType::kInt32);
  const std::int64_t samples = c.attr("sample_size", 1);
  c.require(samples >= 0, "sample_size is {}", samples);
  const Exprs shape = {x->shape[0], Expr(samples)};
  const Expr seed = seed_of(c), classes = x->shape[1];
  c.graph().add_check(compare(Op::kGt, classes, 0), "no classes to draw from");
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          const Expr k = loop_var(classes);
          const Expr u = random_uniform(seed, idx::linearize(i, shape) * classes + k);
          const Expr noise = unary(Op::kNeg, unary(Op::kLog, unary(Op::kNeg, unary(Op::kLog, u))));
          return cast(reduce(ReduceKind::kArgMax, {k}, add(cast(tensor::at(x, {i[0], k}), kF32), noise)), t);
        }));
}

// Identity for inference. In training mode (an input since opset 12) elements are dropped with probability `ratio` and
// the rest scaled.
void dropout_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  if (c.opset() < 7 && c.attr("is_test", 0) == 0) c.refuse("training mode of operator set 6; set is_test");
  const DType mask_type = c.opset() < 10 ? x->dtype : DType::kBool;
  Expr training = constant_bool(false);
  if (c.opset() >= 12 && c.has(2)) training = scalar_element(c, c.in(2));
  if (is_const(training, 0)) {
    c.out(0, x);
    if (c.wants(1)) c.out(1, tensor::generate(g, x->shape, [&](const Exprs&) { return constant(1, mask_type); }));
    return;
  }
  const Expr ratio = c.has(1) ? cast(scalar_element(c, c.in(1)), kF32) : constant(0.5, kF32);
  const Expr seed = seed_of(c), one = constant(1, kF32);
  const auto kept = [&](const Exprs& i) {
    const Expr u = random_uniform(seed, idx::linearize(i, x->shape));
    return logical_or(logical_not(training), compare(Op::kGe, u, ratio));
  };
  c.out(0, tensor::generate(g, x->shape, [&](const Exprs& i) {
          const DType w = tensor::accumulator(x->dtype);
          const Expr scale = select(training, binary(Op::kDiv, one, binary(Op::kSub, one, ratio)), one);
          return cast(select(kept(i), mul(cast(tensor::at(x, i), w), cast(scale, w)), constant(0, w)), x->dtype);
        }));
  if (c.wants(1)) c.out(1, tensor::generate(g, x->shape, kept));
}

}  // namespace

void register_random(OpRegistry& r) {
  const char* notes =
      "Philox4x32-10, not another runtime's numbers; with a seed every run gives the same, without one each run "
      "differs";
  r.add({.name = "RandomUniform", .lower = random_uniform_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "RandomNormal", .lower = random_normal_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "RandomUniformLike", .lower = random_uniform_like_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "RandomNormalLike", .lower = random_normal_like_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "Bernoulli", .lower = bernoulli_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "Multinomial", .lower = multinomial_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "Dropout", .lower = dropout_op, .dtypes = "floats", .notes = notes});
}

}  // namespace sardonyx
