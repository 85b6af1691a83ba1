// Pooling: AveragePool, MaxPool, LpPool and their global forms. Windows are variables of a reduction; padding is a
// select.
#include <cmath>

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"
#include "ops/window.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

Exprs pooled_shape(const Value* x, const Window& w) {
  Exprs shape = {x->shape[0], x->shape[1]};
  shape.insert(shape.end(), w.output.begin(), w.output.end());
  return shape;
}

// Reduces f(element) over each window; `outside` is what padding counts as (of f's dtype).
Expr over_window(ReduceKind kind, const Value* x, const Window& w, const Exprs& i,
                 const std::function<Expr(const Expr&)>& f, const Expr& outside) {
  const Exprs k = tensor::loop_vars(w.kernel);
  const Exprs p = w.position(Exprs(i.begin() + 2, i.end()), k);
  Exprs at = {i[0], i[1]};
  at.insert(at.end(), p.begin(), p.end());
  return reduce(kind, k, select(w.inside(p), f(tensor::at(x, at)), outside));
}

// How many elements of the window count in an average: those inside the input, or inside the input and its padding.
Expr window_count(const Window& w, const Exprs& o, bool include_pad) {
  Expr count = 1;
  for (std::size_t d = 0; d < w.dims(); ++d) {
    if (!w.padded(d) || (include_pad && !w.ceil_mode)) {
      count = count * w.kernel[d];
      continue;
    }
    const Expr start = o[d] * Expr(w.strides[d]) - w.begin[d], step = w.dilations[d];
    const Expr limit = include_pad ? w.input[d] + w.end[d] : w.input[d];
    const Expr last = idx::min(w.kernel[d], idx::ceildiv(limit - start, step));
    const Expr first = include_pad ? Expr(0) : idx::ceildiv(idx::max(0 - start, 0), step);
    count = count * idx::max(last - first, 0);
  }
  return idx::max(count, 1);  // a window that holds padding only gives 0
}

}  // namespace

Value* average_pool_of(OpContext& c, Value* x) {
  const Window w = window_of(c, x, {}, c.attr("ceil_mode", 0) != 0);
  const bool include_pad = c.attr("count_include_pad", 0) != 0;
  const DType t = accumulator(x->dtype);
  return tensor::generate(c.graph(), pooled_shape(x, w), [&](const Exprs& i) {
    const Expr sum = over_window(ReduceKind::kSum, x, w, i, [&](const Expr& e) { return cast(e, t); }, constant(0, t));
    const Expr count = window_count(w, Exprs(i.begin() + 2, i.end()), include_pad);
    return cast(el::div(sum, cast(count, t)), x->dtype);
  });
}

namespace {

void average_pool(OpContext& c) { c.out(0, average_pool_of(c, c.in(0))); }

void max_pool(OpContext& c) {
  Value* x = c.in(0);
  const Window w = window_of(c, x, {}, c.attr("ceil_mode", 0) != 0);
  const DType t = accumulator(x->dtype);
  const auto same = [&](const Expr& e) { return cast(e, t); };
  const Exprs shape = pooled_shape(x, w);
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          return cast(over_window(ReduceKind::kMax, x, w, i, same, el::minimum(t)), x->dtype);
        }));
  if (!c.wants(1)) return;
  // Indices count elements of the whole input; storage_order 1 numbers the spatial dims with the first one fastest.
  const bool columns_first = c.attr("storage_order", 0) != 0;
  c.out(1, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          const Exprs k = idx::delinearize(over_window(ReduceKind::kArgMax, x, w, i, same, el::minimum(t)), w.kernel);
          Exprs p = w.position(Exprs(i.begin() + 2, i.end()), k), sizes = w.input;
          for (std::size_t d = 0; d < p.size(); ++d)
            p[d] = idx::max(0, idx::min(p[d], w.input[d] - 1));  // a window of minus infinities only
          if (columns_first) {
            std::reverse(p.begin(), p.end());
            std::reverse(sizes.begin(), sizes.end());
          }
          return (i[0] * x->shape[1] + i[1]) * idx::product(w.input) + idx::linearize(p, sizes);
        }));
}

Expr to_power(const Expr& e, std::int64_t p) {
  if (p == 1) return el::abs(e);
  if (p == 2) return el::square(e);
  return binary(Op::kPow, el::abs(e), constant(static_cast<double>(p), e->dtype));
}

Expr root(const Expr& e, std::int64_t p) {
  if (p == 1) return e;
  if (p == 2) return el::sqrt(e);
  return binary(Op::kPow, e, constant(1.0 / static_cast<double>(p), e->dtype));
}

void lp_pool(OpContext& c) {
  Value* x = c.in(0);
  const std::int64_t p = c.attr("p", 2);
  c.require(p > 0, "p is {}", p);
  const Window w = window_of(c, x, {}, c.attr("ceil_mode", 0) != 0);
  const DType t = accumulator(x->dtype);
  c.out(0, tensor::generate(c.graph(), pooled_shape(x, w), [&](const Exprs& i) {
          const Expr sum = over_window(
              ReduceKind::kSum, x, w, i, [&](const Expr& e) { return to_power(cast(e, t), p); }, constant(0, t));
          return cast(root(sum, p), x->dtype);
        }));
}

std::vector<int> spatial_axes(OpContext& c, const Value* x) {
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  std::vector<int> axes;
  for (int k = 2; k < x->rank(); ++k) axes.push_back(k);
  return axes;
}

void global_average_pool(OpContext& c) {
  Value* x = c.in(0);
  const std::vector<int> axes = spatial_axes(c, x);
  const DType t = accumulator(x->dtype);
  Value* sum = tensor::reduce(c.graph(), ReduceKind::kSum, x, axes, true, [&](const Expr& e) { return cast(e, t); });
  const Expr count = cast(idx::product(Exprs(x->shape.begin() + 2, x->shape.end())), t);
  c.out(0, tensor::map1(c.graph(), sum, [&](const Expr& e) { return cast(el::div(e, count), x->dtype); }));
}

void global_max_pool(OpContext& c) {
  Value* x = c.in(0);
  const DType t = accumulator(x->dtype);
  Value* y = tensor::reduce(c.graph(), ReduceKind::kMax, x, spatial_axes(c, x), true,
                            [&](const Expr& e) { return cast(e, t); });
  c.out(0, tensor::cast(c.graph(), y, x->dtype));
}

void global_lp_pool(OpContext& c) {
  Value* x = c.in(0);
  const std::int64_t p = c.attr("p", 2);
  c.require(p > 0, "p is {}", p);
  const DType t = accumulator(x->dtype);
  Value* sum = tensor::reduce(c.graph(), ReduceKind::kSum, x, spatial_axes(c, x), true,
                              [&](const Expr& e) { return to_power(cast(e, t), p); });
  c.out(0, tensor::map1(c.graph(), sum, [&](const Expr& e) { return cast(root(e, p), x->dtype); }));
}

}  // namespace

void register_pool(OpRegistry& r) {
  r.add({.name = "AveragePool", .lower = average_pool, .dtypes = "floats"});
  r.add({.name = "MaxPool", .lower = max_pool, .dtypes = "numbers"});
  r.add({.name = "LpPool", .min_opset = 2, .lower = lp_pool, .dtypes = "floats"});
  r.add({.name = "GlobalAveragePool", .min_opset = 1, .lower = global_average_pool, .dtypes = "floats"});
  r.add({.name = "GlobalMaxPool", .min_opset = 1, .lower = global_max_pool, .dtypes = "numbers"});
  r.add({.name = "GlobalLpPool", .min_opset = 2, .lower = global_lp_pool, .dtypes = "floats"});
}

}  // namespace sardonyx
