// Normalisation: batch, instance, group, layer, RMS, local response, Lp and mean-variance. Statistics are fp32 for
// smaller floats.
#include "ops/norm.h"

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

Expr reduced_count(const Value* x, const std::vector<int>& axes, DType t) {
  Expr n = 1;
  for (int a : axes) n = n * x->shape[static_cast<std::size_t>(a)];
  return cast(n, t);
}

// Indices of a tensor whose dims at `axes` are 1.
Exprs outer_indices(Exprs i, const std::vector<int>& axes) {
  for (int a : axes) i[static_cast<std::size_t>(a)] = 0;
  return i;
}

std::vector<int> axes_from(int first, int rank) {
  std::vector<int> axes;
  for (int k = first; k < rank; ++k) axes.push_back(k);
  return axes;
}

Value* mean_of(Graph& g, Value* x, const std::vector<int>& axes, DType t, const std::function<Expr(const Expr&)>& f) {
  const Expr n = reduced_count(x, axes, t);
  Value* sum = tensor::reduce(g, ReduceKind::kSum, x, axes, true, f);
  return tensor::map1(g, sum, [&](const Expr& e) { return el::div(e, n); });
}

Expr inverse_deviation(const Expr& variance, double epsilon) {
  return el::div(constant(1, variance->dtype), el::sqrt(el::add(variance, epsilon)));
}

void check_channels(OpContext& c, const Value* v, const Expr& channels, std::string_view what) {
  c.require(v->rank() == 1, "{} of rank {}", what, v->rank());
  c.graph().add_check(
      compare(Op::kEq, v->shape[0], channels),
      fmt::format("{} of {} elements for {} channels", what, to_string(v->shape[0]), to_string(channels)));
}

// y = x * factor + shift with per-channel factor and shift, which are small loops of their own and fold when they are
// constants.
Value* scale_channels(Graph& g, Value* x, Value* scale, Value* bias, Value* mean, Value* variance, double epsilon,
                      DType t) {
  Value* factor = tensor::map(g, {scale, variance}, [&](const Exprs& e) {
    return el::div(cast(e[0], t), el::sqrt(el::add(cast(e[1], t), epsilon)));
  });
  Value* shift = tensor::map(g, {bias, mean, factor},
                             [&](const Exprs& e) { return el::sub(cast(e[0], t), el::mul(cast(e[1], t), e[2])); });
  return tensor::generate(g, x->shape, [&](const Exprs& i) {
    // Channel first; with the old spatial = 0 the statistics have all of x's dims but the batch.
    const Exprs at = factor->rank() == 1 ? Exprs{x->rank() > 1 ? i[1] : Expr(0)} : Exprs(i.begin() + 1, i.end());
    return cast(el::add(el::mul(cast(tensor::at(x, i), t), tensor::at(factor, at)), tensor::at(shift, at)), x->dtype);
  });
}

void batch_normalization(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *scale = c.in(1), *bias = c.in(2), *mean = c.in(3), *variance = c.in(4);
  c.require(x->rank() >= 1, "an input without dims");
  const DType t = accumulator(x->dtype);
  const double epsilon = c.attr_f("epsilon", 1e-5f), momentum = c.attr_f("momentum", 0.9f);
  const bool spatial = c.attr("spatial", 1) != 0;
  const Expr channels = x->rank() > 1 ? x->shape[1] : Expr(1);
  for (Value* v : {scale, bias, mean, variance}) {
    if (spatial)
      check_channels(c, v, channels, "a statistic");
    else
      c.require(v->rank() == x->rank() - 1 || v->rank() == 1, "a statistic of rank {} for an input of rank {}",
                v->rank(), x->rank());
  }
  if (c.opset() < 7 && c.attr("is_test", 0) == 0) c.refuse("training mode of operator set 6; set is_test");
  // Before opset 14 training was meant where the optional outputs are used.
  const bool training =
      c.opset() >= 14 ? c.attr("training_mode", 0) != 0 : c.wants(1) || c.wants(2) || c.wants(3) || c.wants(4);
  if (!training) return c.out(0, scale_channels(g, x, scale, bias, mean, variance, epsilon, t));
  if (!spatial || x->rank() < 2) c.refuse("training mode with spatial = 0 or without a channel dim");
  std::vector<int> axes = axes_from(2, x->rank());
  axes.insert(axes.begin(), 0);
  const Moments m = moments(g, x, axes, t);
  Value* batch_mean = tensor::reshape(g, m.mean, {channels});
  Value* batch_variance = tensor::reshape(g, m.variance, {channels});
  auto blend = [&](Value* running, Value* now) {
    return tensor::map2(g, running, now, [&](const Expr& a, const Expr& b) {
      return cast(el::add(el::mul(cast(a, t), momentum), el::mul(b, 1 - momentum)), a->dtype);
    });
  };
  c.out(0, scale_channels(g, x, scale, bias, batch_mean, batch_variance, epsilon, t));
  c.out(1, blend(mean, batch_mean));
  c.out(2, blend(variance, batch_variance));
  if (c.wants(3)) c.out(3, tensor::cast(g, batch_mean, mean->dtype));
  if (c.wants(4)) c.out(4, tensor::cast(g, batch_variance, variance->dtype));
}

void instance_normalization(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *scale = c.in(1), *bias = c.in(2);
  c.require(x->rank() >= 3, "an input of rank {}", x->rank());
  check_channels(c, scale, x->shape[1], "a scale");
  check_channels(c, bias, x->shape[1], "a bias");
  const DType t = accumulator(x->dtype);
  const double epsilon = c.attr_f("epsilon", 1e-5f);
  const std::vector<int> axes = axes_from(2, x->rank());
  const Moments m = moments(g, x, axes, t);
  c.out(0, tensor::generate(g, x->shape, [&](const Exprs& i) {
          const Exprs o = outer_indices(i, axes);
          const Expr z = el::mul(el::sub(cast(tensor::at(x, i), t), tensor::at(m.mean, o)),
                                 inverse_deviation(tensor::at(m.variance, o), epsilon));
          return cast(el::add(el::mul(z, cast(tensor::at(scale, {i[1]}), t)), cast(tensor::at(bias, {i[1]}), t)),
                      x->dtype);
        }));
}

// In the view [N, groups, rest], where all statistics are over the last dim. Scale and bias are per group before opset
// 21, per channel since. Exporters wrote them per channel before, too, which their size shows.
void group_normalization(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *scale = c.in(1), *bias = c.in(2);
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  const std::int64_t groups = c.attr("num_groups", 0);
  c.require(groups > 0, "num_groups is {}", groups);
  const Expr channels = x->shape[1], spatial = idx::product(Exprs(x->shape.begin() + 2, x->shape.end()));
  g.add_check(compare(Op::kEq, idx::mod(channels, groups), 0),
              fmt::format("{} channels can't be divided into {} groups", to_string(channels), groups));
  const bool other = scale->rank() == 1 && is_const(scale->shape[0]) && !is_const(scale->shape[0], groups);
  const bool per_channel = c.opset() >= 21 || other;
  check_channels(c, scale, per_channel ? channels : Expr(groups), "a scale");
  check_channels(c, bias, per_channel ? channels : Expr(groups), "a bias");
  const Expr in_group = idx::floordiv(channels, groups);
  const DType t = accumulator(x->dtype);
  const double epsilon = c.attr_f("epsilon", 1e-5f);
  Value* v = tensor::reshape(g, x, {x->shape[0], groups, in_group * spatial});
  const Moments m = moments(g, v, {2}, t);
  Value* y = tensor::generate(g, v->shape, [&](const Exprs& i) {
    const Expr z = el::mul(el::sub(cast(tensor::at(v, i), t), tensor::at(m.mean, {i[0], i[1], 0})),
                           inverse_deviation(tensor::at(m.variance, {i[0], i[1], 0}), epsilon));
    const Expr k = per_channel ? i[1] * in_group + idx::floordiv(i[2], spatial) : i[1];
    return cast(el::add(el::mul(z, cast(tensor::at(scale, {k}), t)), cast(tensor::at(bias, {k}), t)), x->dtype);
  });
  c.out(0, tensor::reshape(g, y, x->shape));
}

void layer_normalization(OpContext& c) {
  Value* x = c.in(0);
  const LayerNorm n = layer_norm(c.graph(), x, c.in(1), c.opt(2), c.axis(c.attr("axis", -1), x->rank()),
                                 c.attr_f("epsilon", 1e-5f), false, x->dtype);
  const DType stash = from_onnx(static_cast<int>(c.attr("stash_type", 1)));
  c.out(0, n.y);
  if (c.wants(1)) c.out(1, tensor::cast(c.graph(), n.mean, stash));
  if (c.wants(2)) c.out(2, tensor::cast(c.graph(), n.inverse, stash));
}

void rms_normalization(OpContext& c) {
  Value *x = c.in(0), *scale = c.in(1);
  c.out(0, layer_norm(c.graph(), x, scale, nullptr, c.axis(c.attr("axis", -1), x->rank()), c.attr_f("epsilon", 1e-5f),
                      true, scale->dtype)
               .y);
}

void mean_variance_normalization(OpContext& c) {
  Value* x = c.in(0);
  std::vector<int> axes;
  for (std::int64_t a : c.attr_ints("axes", {0, 2, 3})) axes.push_back(c.axis(a, x->rank()));
  const DType t = accumulator(x->dtype);
  const Moments m = moments(c.graph(), x, axes, t);
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          const Exprs o = outer_indices(i, axes);
          const Expr deviation = el::add(el::sqrt(tensor::at(m.variance, o)), 1e-9);
          return cast(el::div(el::sub(cast(tensor::at(x, i), t), tensor::at(m.mean, o)), deviation), x->dtype);
        }));
}

void lp_normalization(OpContext& c) {
  Value* x = c.in(0);
  const std::int64_t p = c.attr("p", 2);
  c.require(p == 1 || p == 2, "p is {}; only 1 and 2 are defined", p);
  const int axis = c.axis(c.attr("axis", -1), x->rank());
  const DType t = accumulator(x->dtype);
  Value* sum = tensor::reduce(c.graph(), ReduceKind::kSum, x, {axis}, true, [&](const Expr& e) {
    const Expr v = cast(e, t);
    return p == 1 ? el::abs(v) : el::square(v);
  });
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          Expr norm = tensor::at(sum, outer_indices(i, {axis}));
          if (p == 2) norm = el::sqrt(norm);
          const Expr zero = constant(0, t);
          return cast(select(el::eq(norm, zero), zero, el::div(cast(tensor::at(x, i), t), norm)), x->dtype);
        }));
}

// base^beta for a base that is not -inf. Two square roots take far fewer instructions than a power, and beta is mostly
// 0.75; of a negative base both are NaN.
Expr power_of_base(const Expr& base, double beta) {
  if (beta == 1) return base;
  const Expr root = el::sqrt(base);
  if (beta == 0.5) return root;
  if (beta == 0.75) return el::mul(root, el::sqrt(root));
  return binary(Op::kPow, base, constant(beta, base->dtype));
}

void lrn(OpContext& c) {
  Value* x = c.in(0);
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  const std::int64_t size = c.attr("size", 0);
  c.require(size > 0 && size < (1 << 30), "size is {}", size);
  const DType t = accumulator(x->dtype);
  const double alpha = c.attr_f("alpha", 1e-4f), beta = c.attr_f("beta", 0.75f), bias = c.attr_f("bias", 1);
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          const Expr k = loop_var(size), channel = i[1] + k - (size - 1) / 2;
          Exprs j = i;
          j[1] = channel;
          const Expr ok = logical_and(compare(Op::kGe, channel, 0), compare(Op::kLt, channel, x->shape[1]));
          const Expr sum =
              reduce(ReduceKind::kSum, {k}, select(ok, el::square(cast(tensor::at(x, j), t)), constant(0, t)));
          const Expr base = el::add(el::mul(sum, alpha / static_cast<double>(size)), bias);
          const Expr d = alpha >= 0 ? power_of_base(base, beta) : binary(Op::kPow, base, constant(beta, t));
          return cast(el::div(cast(tensor::at(x, i), t), d), x->dtype);
        }));
}

}  // namespace

Moments moments(Graph& g, Value* x, const std::vector<int>& axes, DType t) {
  Value* mean = mean_of(g, x, axes, t, [&](const Expr& e) { return cast(e, t); });
  // Two passes: the mean of squares minus the squared mean loses all digits when the mean is large.
  const Expr n = reduced_count(x, axes, t);
  Exprs all = tensor::loop_vars(x->shape), kept, reduced;
  std::vector<bool> is_reduced(all.size());
  for (int a : axes) is_reduced[static_cast<std::size_t>(a)] = true;
  for (std::size_t k = 0; k < all.size(); ++k) {
    kept.push_back(is_reduced[k] ? loop_var(1) : all[k]);
    if (is_reduced[k]) reduced.push_back(all[k]);
  }
  const Expr d = el::sub(cast(tensor::at(x, all), t), tensor::at(mean, outer_indices(all, axes)));
  Value* sum = g.add_loop(kept, reduce(ReduceKind::kSum, reduced, el::square(d)));
  return {mean, tensor::map1(g, sum, [&](const Expr& e) { return el::div(e, n); })};
}

LayerNorm layer_norm(Graph& g, Value* x, Value* scale, Value* bias, int axis, double epsilon, bool rms, DType out) {
  const DType t = accumulator(x->dtype);
  const std::vector<int> axes = axes_from(axis, x->rank());
  Value *mean = nullptr, *variance;
  if (rms)
    variance = mean_of(g, x, axes, t, [&](const Expr& e) { return el::square(cast(e, t)); });
  else {
    const Moments m = moments(g, x, axes, t);
    mean = m.mean;
    variance = m.variance;
  }
  Value* inverse = tensor::map1(g, variance, [&](const Expr& e) { return inverse_deviation(e, epsilon); });
  for (const Value* v : {scale, bias})
    if (v) tensor::check_broadcast(g, v->shape, x->shape);
  Value* y = tensor::generate(g, x->shape, [&](const Exprs& i) {
    const Exprs o = outer_indices(i, axes);
    Expr z = cast(tensor::at(x, i), t);
    if (mean) z = el::sub(z, tensor::at(mean, o));
    z = el::mul(z, tensor::at(inverse, o));
    if (scale) z = el::mul(z, cast(tensor::at_broadcast(scale, i, x->shape), t));
    if (bias) z = el::add(z, cast(tensor::at_broadcast(bias, i, x->shape), t));
    return cast(z, out);
  });
  return {y, mean, inverse};
}

void register_norm(OpRegistry& r) {
  r.add({.name = "BatchNormalization", .lower = batch_normalization, .dtypes = "floats"});
  r.add({.name = "InstanceNormalization", .min_opset = 6, .lower = instance_normalization, .dtypes = "floats"});
  r.add({.name = "GroupNormalization", .min_opset = 18, .lower = group_normalization, .dtypes = "floats"});
  r.add({.name = "LayerNormalization",
         .lower = layer_normalization,
         .dtypes = "floats",
         .notes = "computed in fp32, in fp64 for float64, whatever stash_type says; opset 1 to 16 as ONNX Runtime "
                  "defines it"});
  r.add({.name = "RMSNormalization", .min_opset = 23, .lower = rms_normalization, .dtypes = "floats"});
  r.add({.name = "MeanVarianceNormalization", .lower = mean_variance_normalization, .dtypes = "floats"});
  r.add({.name = "LpNormalization", .lower = lp_normalization, .dtypes = "floats"});
  r.add({.name = "LRN", .lower = lrn, .dtypes = "floats"});
}

}  // namespace sardonyx
