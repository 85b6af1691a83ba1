// Resize and Upsample. Without antialiasing one loop reads 1, 2 or 4 taps per resized axis; with it each axis is a pass
// of its own, whose weights are a small tensor.
#include <cmath>

#include "ops/families.h"
#include "ops/sampling.h"

namespace sardonyx {
namespace {

using namespace sampling;  // NOLINT: arithmetic on float expressions

struct Axis {
  std::size_t dim = 0;
  Expr in, out;             // sizes
  Expr scale;               // float, out / in or what was given
  Expr width;               // float, the output's size before it was rounded down
  Expr roi_start, roi_end;  // floats in [0, 1], for tf_crop_and_resize
};

struct Settings {
  std::string mode, coordinates, nearest;
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  DType w = DType::kFloat32;  // of coordinates and weights
  std::vector<Axis> axes;     // only those that change
  bool crop() const { return coordinates == "tf_crop_and_resize"; }
};

// Output position i in the input's coordinates.
Expr original(const Settings& s, const Axis& a, const Expr& i) {
  const Expr x = cast(i, s.w), in = cast(a.in, s.w), one = k(1, x), half = k(0.5, x);
  const std::string& mode = s.coordinates;
  Expr centred = sub(div(add(x, half), a.scale), half);
  const Expr single = compare(Op::kEq, a.width, one);
  if (mode == "half_pixel") return centred;
  if (mode == "pytorch_half_pixel") return select(single, k(-0.5, x), centred);
  if (mode == "asymmetric") return div(x, a.scale);
  if (mode == "tf_half_pixel_for_nn")  // as onnxruntime: nothing moves where nothing is resized
    return select(compare(Op::kEq, a.scale, one), x, div(add(x, half), a.scale));
  if (mode == "align_corners") return select(single, k(0, x), div(mul(x, sub(in, one)), sub(a.width, one)));
  if (mode == "half_pixel_symmetric") {
    const Expr offset = mul(div(in, k(2, x)), sub(one, div(cast(a.out, s.w), a.width)));
    return add(offset, centred);
  }
  // tf_crop_and_resize
  const Expr first = mul(a.roi_start, sub(in, one)), extent = mul(sub(a.roi_end, a.roi_start), sub(in, one));
  return add(first, select(single, mul(half, extent), div(mul(x, extent), sub(a.width, one))));
}

Expr nearest_index(const Settings& s, const Axis& a, const Expr& i) {
  // Whole factors need no floating point: the usual up-sampling by 2.
  std::int64_t factor = 0;
  const bool whole = is_const(a.scale) && a.scale->f >= 1 && a.scale->f < 65536 && a.scale->f == std::floor(a.scale->f);
  if (whole) factor = static_cast<std::int64_t>(a.scale->f);
  const bool centred =
      s.coordinates == "half_pixel" && (s.nearest == "round_prefer_floor" || s.nearest == "round_prefer_ceil");
  if (whole && idx::provably_equal(a.out, a.in * factor) &&
      (centred || (s.coordinates == "asymmetric" && s.nearest == "floor")))
    return idx::floordiv(i, factor);
  const Expr x = original(s, a, i);
  Expr y;
  if (s.nearest == "floor")
    y = unary(Op::kFloor, x);
  else if (s.nearest == "ceil")
    y = unary(Op::kCeil, x);
  else if (s.nearest == "round_prefer_ceil")
    y = unary(Op::kFloor, add(x, k(0.5, x)));
  else if (s.nearest == "round_prefer_floor")
    y = unary(Op::kCeil, sub(x, k(0.5, x)));
  else
    y = select(compare(Op::kLt, a.scale, k(1, x)), unary(Op::kCeil, x), unary(Op::kFloor, x));  // opset 10
  return clamp_index(cast(y, DType::kInt64), a.in);
}

// Weights of taps outside become 0 and the rest sums to 1 (if asked for); indices are held inside.
std::vector<Tap> held_inside(const Settings& s, const Axis& a, std::vector<Tap> taps) {
  if (s.exclude_outside) {
    Expr sum;
    for (Tap& t : taps) {
      const Expr inside = logical_and(compare(Op::kGe, t.index, 0), compare(Op::kLt, t.index, a.in));
      t.weight = select(inside, t.weight, k(0, t.weight));
      sum = sum ? add(sum, t.weight) : t.weight;
    }
    for (Tap& t : taps) t.weight = div(t.weight, sum);
  }
  for (Tap& t : taps) t.index = clamp_index(t.index, a.in);
  return taps;
}

// Whether output element i lies outside of the input, where tf_crop_and_resize gives a fixed value.
Expr outside(const Settings& s, const std::vector<Axis>& axes, const Exprs& i) {
  Expr any = constant_bool(false);
  if (!s.crop()) return any;
  for (const Axis& a : axes) {
    const Expr x = original(s, a, i[a.dim]);
    any = logical_or(any, compare(Op::kLt, x, k(0, x)));
    any = logical_or(any, compare(Op::kGt, x, sub(cast(a.in, s.w), k(1, x))));
  }
  return any;
}

Value* one_pass(Graph& g, Value* x, const Settings& s, const Exprs& shape) {
  return tensor::generate(g, shape, [&](const Exprs& i) {
    std::vector<std::vector<Tap>> taps;
    Exprs at = i;
    for (const Axis& a : s.axes) {
      if (s.mode == "nearest")
        at[a.dim] = nearest_index(s, a, i[a.dim]);
      else
        taps.push_back(held_inside(s, a,
                                   s.mode == "linear" ? linear_taps(original(s, a, i[a.dim]))
                                                      : cubic_taps(original(s, a, i[a.dim]), s.cubic_a)));
    }
    Expr y;
    if (s.mode == "nearest")
      y = tensor::at(x, at);
    else
      y = to_element(interpolate(taps,
                                 [&](const Exprs& j) {
                                   for (std::size_t k = 0; k < j.size(); ++k) at[s.axes[k].dim] = j[k];
                                   return cast(tensor::at(x, at), s.w);
                                 }),
                     x->dtype);
    return select(outside(s, s.axes, i), constant(s.extrapolation, x->dtype), y);
  });
}

// One axis with the kernel stretched by 1 / scale when it shrinks. x and the result have dtype s.w.
Value* antialiased_axis(Graph& g, Value* x, const Settings& s, const Axis& a) {
  const int support = s.mode == "linear" ? 1 : 2;
  // Enough taps for support / scale on both sides; the kernel is 0 at those that are too many.
  const Expr half = idx::max(idx::ceildiv(a.in * support, idx::max(a.out, 1)), support) + 1, count = half * 2;
  const auto position = [&](const Expr& i, const Expr& t) {
    return cast(unary(Op::kFloor, original(s, a, i)), DType::kInt64) + t - half + 1;
  };
  Value* weights = tensor::generate(g, {a.out, count}, [&](const Exprs& i) {
    const Expr p = position(i[0], i[1]), x0 = original(s, a, i[0]);
    const Expr shrink = binary(Op::kMin, a.scale, k(1, x0));
    const Expr d = unary(Op::kAbs, mul(sub(cast(p, s.w), x0), shrink));
    Expr w = support == 1 ? linear_kernel(d) : cubic_kernel(d, s.cubic_a);
    if (!s.exclude_outside) return w;
    return select(logical_and(compare(Op::kGe, p, 0), compare(Op::kLt, p, a.in)), w, k(0, w));
  });
  Value* sums = tensor::reduce(g, ReduceKind::kSum, weights, {1}, false);
  Exprs shape = x->shape;
  shape[a.dim] = a.out;
  return tensor::generate(g, shape, [&](const Exprs& i) {
    const Expr t = loop_var(count);
    const Expr& o = i[a.dim];
    Exprs at = i;
    at[a.dim] = clamp_index(position(o, t), a.in);
    const Expr sum = reduce(ReduceKind::kSum, {t}, mul(tensor::at(weights, {o, t}), tensor::at(x, at)));
    return select(outside(s, {a}, i), k(s.extrapolation, sum), div(sum, tensor::at(sums, {o})));
  });
}

void resize(OpContext& c, Value* x, const Settings& s) {
  Graph& g = c.graph();
  if (s.axes.empty()) return c.out(0, x);
  Exprs shape = x->shape;
  for (const Axis& a : s.axes) {
    shape[a.dim] = a.out;
    g.add_check(logical_or(compare(Op::kGt, a.in, 0), compare(Op::kEq, a.out, 0)), "an empty axis can't be resized");
  }
  if (!s.antialias || s.mode == "nearest") return c.out(0, one_pass(g, x, s, shape));
  Value* y = tensor::cast(g, x, s.w);
  for (const Axis& a : s.axes) y = antialiased_axis(g, y, s, a);
  c.out(0, tensor::map1(g, y, [&](const Expr& e) { return to_element(e, x->dtype); }));
}

// Element j of a float input: known, or a load.
Expr element(Value* v, std::int64_t j, DType t) {
  const Expr e = v->content ? v->content->at(static_cast<std::size_t>(j)) : tensor::at(v, {j});
  return cast(e, t);
}

// The sizes and scales of the resized axes, from scales or sizes.
void set_sizes(OpContext& c, Settings& s, Value* x, const std::vector<int>& dims, Value* scales, Value* sizes,
               Value* roi) {
  const auto n = static_cast<std::int64_t>(dims.size());
  const std::string policy = c.attr_s("keep_aspect_ratio_policy", "stretch");
  c.require(policy == "stretch" || policy == "not_larger" || policy == "not_smaller",
            "keep_aspect_ratio_policy is '{}'", policy);
  const auto check_length = [&](Value* v, std::int64_t length, const char* what) {
    c.require(v && v->rank() == 1, "{} must be a vector of {} elements", what, length);
    c.graph().add_check(compare(Op::kEq, v->shape[0], length),
                        fmt::format("{} of shape {} for {} axes", what, to_string(v->shape), n));
  };
  if (scales) check_length(scales, n, "scales");
  if (sizes) check_length(sizes, n, "sizes");
  if (s.crop()) check_length(roi, 2 * n, "roi");
  std::vector<Axis> axes(dims.size());
  Exprs products;  // in times scale, rounded down
  for (std::size_t j = 0; j < axes.size(); ++j) {
    Axis& a = axes[j];
    a.dim = static_cast<std::size_t>(dims[j]);
    a.in = x->shape[a.dim];
    if (s.crop()) {
      a.roi_start = element(roi, static_cast<std::int64_t>(j), s.w);
      a.roi_end = element(roi, n + static_cast<std::int64_t>(j), s.w);
    }
    if (!scales) continue;
    a.scale = element(scales, static_cast<std::int64_t>(j), s.w);
    c.require(!is_const(a.scale) || a.scale->f > 0, "a scale of {}", to_string(a.scale));
    Expr p = mul(cast(a.in, s.w), a.scale);
    a.width = p;
    if (s.crop()) p = mul(mul(cast(a.in, s.w), sub(a.roi_end, a.roi_start)), a.scale);
    const double f = is_const(a.scale) ? a.scale->f : 0;
    const bool whole = f >= 1 && f < 65536 && f == std::floor(f) && !s.crop();
    products.push_back(whole ? a.in * static_cast<std::int64_t>(f) : cast(unary(Op::kFloor, p), DType::kInt64));
  }
  if (scales) {
    bool loads = false;
    for (const Expr& p : products) loads |= p->has_load;
    if (loads) {  // computed on the device and read back
      Value* v = tensor::generate(c.graph(), {n}, [&](const Exprs& i) {
        Expr e = products.back();
        for (std::size_t j = products.size() - 1; j-- > 0;)
          e = select(compare(Op::kEq, i[0], static_cast<std::int64_t>(j)), products[j], e);
        return e;
      });
      products = c.ints(v, true);
    }
    for (std::size_t j = 0; j < axes.size(); ++j) axes[j].out = products[j];
  } else {
    const Exprs given = c.ints(sizes, true);
    Expr common;
    for (std::size_t j = 0; j < axes.size(); ++j) {
      Axis& a = axes[j];
      a.out = given[j];
      a.scale = div(cast(a.out, s.w), cast(a.in, s.w));
      const Expr ratio = div(cast(a.out, DType::kFloat64), cast(a.in, DType::kFloat64));
      common = common ? binary(policy == "not_larger" ? Op::kMin : Op::kMax, common, ratio) : ratio;
    }
    for (Axis& a : axes) {
      if (policy != "stretch") {
        const Expr exact = mul(common, cast(a.in, DType::kFloat64));
        a.out = cast(unary(Op::kFloor, add(exact, k(0.5, exact))), DType::kInt64);
        a.scale = cast(common, s.w);
      }
      a.width = mul(a.scale, cast(a.in, s.w));
      if (policy == "stretch") a.width = cast(a.out, s.w);
    }
  }
  for (const Axis& a : axes) {
    const bool full =
        !s.crop() || (is_const(a.roi_start) && a.roi_start->f == 0 && is_const(a.roi_end) && a.roi_end->f == 1);
    const bool one = is_const(a.scale) ? a.scale->f == 1 : !scales;
    if (!(full && one && idx::provably_equal(a.in, a.out))) s.axes.push_back(a);
  }
}

Value* nonempty(OpContext& c, int k) { return c.has(k) && !is_const(c.in(k)->elements(), 0) ? c.in(k) : nullptr; }

void resize_op(OpContext& c) {
  Value* x = c.in(0);
  Settings s;
  s.mode = c.attr_s("mode", "nearest");
  c.require(s.mode == "nearest" || s.mode == "linear" || s.mode == "cubic", "mode is '{}'", s.mode);
  s.w = compute_type(x->dtype);
  const bool old = c.opset() < 11;
  s.coordinates = old ? "asymmetric" : c.attr_s("coordinate_transformation_mode", "half_pixel");
  bool known = false;
  for (const char* m : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                        "tf_crop_and_resize", "tf_half_pixel_for_nn"})
    known |= s.coordinates == m;
  c.require(known, "coordinate_transformation_mode is '{}'", s.coordinates);
  s.nearest = old ? "simple" : c.attr_s("nearest_mode", "round_prefer_floor");
  c.require(old || s.nearest == "round_prefer_floor" || s.nearest == "round_prefer_ceil" || s.nearest == "floor" ||
                s.nearest == "ceil",
            "nearest_mode is '{}'", s.nearest);
  s.cubic_a = c.attr_f("cubic_coeff_a", -0.75F);
  s.extrapolation = c.attr_f("extrapolation_value", 0);
  s.exclude_outside = c.attr("exclude_outside", 0) != 0;
  s.antialias = c.attr("antialias", 0) != 0;
  std::vector<int> dims;
  std::vector<std::int64_t> all;
  for (int k = 0; k < x->rank(); ++k) all.push_back(k);
  for (std::int64_t a : c.attr_ints("axes", all)) dims.push_back(c.axis(a, x->rank()));
  Value* scales = nonempty(c, old ? 1 : 2);
  Value* sizes = old ? nullptr : nonempty(c, 3);
  // Given both, one is empty; if that is only known at run time, it is scales.
  if (scales && sizes && !is_const(scales->shape[0])) scales = nullptr;
  c.require((scales != nullptr) != (sizes != nullptr), "either scales or sizes must be given");
  set_sizes(c, s, x, dims, scales, sizes, old ? nullptr : nonempty(c, 1));
  resize(c, x, s);
}

// Resize's ancestor: asymmetric coordinates, nearest rounded down. Scales are an attribute before opset 9.
void upsample_op(OpContext& c) {
  Value* x = c.in(0);
  Settings s;
  s.mode = c.attr_s("mode", "nearest");
  c.require(s.mode == "nearest" || s.mode == "linear", "mode is '{}'", s.mode);
  s.w = compute_type(x->dtype);
  s.coordinates = "asymmetric";
  s.nearest = "floor";
  std::vector<int> dims;
  for (int k = 0; k < x->rank(); ++k) dims.push_back(k);
  Value* scales;
  if (c.opset() >= 9)
    scales = c.in(1);
  else {
    Exprs e;
    for (float f : c.attr_floats("scales")) e.push_back(constant_float(f, DType::kFloat32));
    const auto n = static_cast<std::int64_t>(e.size());
    scales = c.graph().add_content(DType::kFloat32, {n}, std::move(e));
  }
  set_sizes(c, s, x, dims, scales, nullptr, nullptr);
  resize(c, x, s);
}

}  // namespace

void register_resize(OpRegistry& r) {
  r.add({.name = "Resize",
         .lower = resize_op,

         .notes = "scales, sizes and roi may be computed at run time; interpolated integers are rounded and saturate"});
  r.add({.name = "Upsample", .min_opset = 7, .lower = upsample_op});
}

}  // namespace sardonyx
