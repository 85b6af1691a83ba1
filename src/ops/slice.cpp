// Slice, Split and Concat.
#include "ops/families.h"
#include "ops/parts.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// Exporters write "to the end" as the largest int32 or int64.
bool is_end_marker(const Expr& e) {
  std::int64_t v;
  return is_const_int(e, v) && v >= INT32_MAX;
}

constexpr std::int64_t kBeyond = std::int64_t{1} << 56;  // no dim is as large: "from the other end"

struct Range {
  Expr start, size;
};

// d[s:e:1]. The forms that models use come out without nested minima, so that later dims compare equal.
Range range_forward(Graph& g, const Expr& d, const Expr& s, const Expr& e) {
  bool to_end = false;
  std::int64_t sv = 0, ev = 0;
  const bool s_known = is_const_int(s, sv);
  if (is_end_marker(e)) {
    if (e->i < kBeyond)
      g.add_check(compare(Op::kLe, d, e), fmt::format("the slice ends at {} and cuts a dim of {}", e->i, to_string(d)));
    to_end = true;
  }
  if (s_known && sv < 0 && to_end) {  // the last -s elements
    const Expr size = sv < -kBeyond ? d : idx::min(d, -sv);
    return {d - size, size};
  }
  auto wrapped = [&](const Expr& x, bool known, std::int64_t v) {
    if (known) return v < 0 ? idx::max(v < -kBeyond ? Expr(0) : d + x, 0) : x;
    return idx::max(tensor::wrap_index(x, d), 0);
  };
  const Expr start = wrapped(s, s_known, sv);
  const bool e_known = is_const_int(e, ev);
  const Expr end = to_end ? d : idx::min(wrapped(e, e_known, ev), d);
  return {start, idx::max(end - start, 0)};
}

// d[s:e:t] with t < 0 (`down` = -t).
Range range_backward(const Expr& d, const Expr& s, const Expr& e, const Expr& down) {
  std::int64_t sv = 0, ev = 0;
  const bool s_known = is_const_int(s, sv), e_known = is_const_int(e, ev);
  Expr start, end;
  if (s_known && sv >= kBeyond)
    start = d - 1;
  else if (s_known && sv < 0)
    start = sv < -kBeyond ? Expr(-1) : idx::max(d + s, -1);
  else
    start = idx::min(idx::max(tensor::wrap_index(s, d), -1), d - 1);
  if (e_known && ev < -kBeyond)
    end = -1;
  else if (e_known && ev < 0)
    end = idx::max(d + e, -1);
  else
    end = idx::min(idx::max(tensor::wrap_index(e, d), -1), d - 1);
  return {start, idx::ceildiv(idx::max(start - end, 0), down)};
}

void slice_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const bool inputs = c.opset() >= 10;
  auto of = [&](int k, const char* attribute) {
    if (inputs) return c.ints(c.in(k));
    Exprs e;
    for (std::int64_t v : c.attr_ints(attribute)) e.push_back(v);
    return e;
  };
  const Exprs starts = of(1, "starts"), ends = of(2, "ends");
  c.require(starts.size() == ends.size(), "{} starts and {} ends", starts.size(), ends.size());
  std::vector<std::int64_t> axes;
  for (std::size_t k = 0; k < starts.size(); ++k) axes.push_back(static_cast<std::int64_t>(k));
  if (inputs && c.has(3))
    axes = c.const_ints(c.in(3), "axes");
  else if (!inputs)
    axes = c.attr_ints("axes", axes);
  Exprs steps(starts.size(), Expr(1));
  if (inputs && c.has(4)) steps = c.ints(c.in(4));
  c.require(axes.size() == starts.size() && steps.size() == starts.size(), "{} starts, {} axes and {} steps",
            starts.size(), axes.size(), steps.size());

  Exprs shape = x->shape, first(shape.size(), Expr(0)), stride(shape.size(), Expr(1));
  std::vector<bool> sliced(shape.size());
  bool identity = true;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto a = static_cast<std::size_t>(c.axis(axes[k], x->rank()));
    c.require(!sliced[a], "axis {} is sliced twice", a);
    sliced[a] = true;
    const Expr d = x->shape[a];
    std::int64_t t;
    Range r;
    if (is_const_int(steps[k], t)) {
      c.require(t != 0 && t != INT64_MIN, "a step of {}", t);
      r = t > 0 ? range_forward(g, d, starts[k], ends[k]) : range_backward(d, starts[k], ends[k], -t);
      if (t > 1) r.size = idx::ceildiv(r.size, t);
    } else {
      g.add_check(compare(Op::kNe, steps[k], 0), "a step of 0");
      const Range up = range_forward(g, d, starts[k], ends[k]);
      const Expr down = idx::max(0 - steps[k], 1);
      const Range back = range_backward(d, starts[k], ends[k], down);
      const Expr forward = compare(Op::kGt, steps[k], 0);
      r = {select(forward, up.start, back.start),
           select(forward, idx::ceildiv(up.size, idx::max(steps[k], 1)), back.size)};
    }
    identity &= is_const(r.start, 0) && is_const(steps[k], 1) && idx::provably_equal(r.size, d);
    shape[a] = r.size;
    first[a] = r.start;
    stride[a] = steps[k];
  }
  if (identity) return c.out(0, x);
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          Exprs j;
          for (std::size_t k = 0; k < i.size(); ++k) j.push_back(first[k] + i[k] * stride[k]);
          return tensor::at(x, j);
        }));
}

// Sizes of the parts: given, or equal ones (since opset 18 the last may be smaller).
Exprs split_sizes(OpContext& c, const Expr& dim) {
  Exprs sizes;
  if (c.opset() >= 13 ? c.has(1) : c.has_attr("split")) {
    if (c.opset() >= 13)
      sizes = c.ints(c.in(1), true);
    else
      for (std::int64_t v : c.attr_ints("split")) sizes.push_back(v);
    c.require(static_cast<int>(sizes.size()) == c.output_count(), "{} sizes for {} outputs", sizes.size(),
              c.output_count());
    check_parts(c, sizes, dim);
    return sizes;
  }
  const std::int64_t parts = c.opset() >= 18 ? c.attr("num_outputs", c.output_count()) : c.output_count();
  c.require(parts == c.output_count() && parts > 0, "num_outputs is {} but the node has {} outputs", parts,
            c.output_count());
  if (c.opset() < 18)
    c.graph().add_check(compare(Op::kEq, idx::mod(dim, parts), 0),
                        fmt::format("dim {} can't be split into {} equal parts", to_string(dim), parts));
  const Expr part = c.opset() < 18 ? idx::floordiv(dim, parts) : idx::ceildiv(dim, parts);
  for (std::int64_t k = 0; k < parts; ++k)
    sizes.push_back(c.opset() < 18 || k == 0 ? part : idx::min(part, idx::max(dim - part * k, 0)));
  return sizes;
}

void split_op(OpContext& c) {
  Value* x = c.in(0);
  const int axis = c.axis(c.attr("axis", 0), x->rank());
  const Exprs sizes = split_sizes(c, x->shape[static_cast<std::size_t>(axis)]);
  Expr start = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (c.wants(static_cast<int>(k))) c.out(static_cast<int>(k), tensor::slice(c.graph(), x, axis, start, sizes[k]));
    start = start + sizes[k];
  }
}

void concat_op(OpContext& c) {
  std::vector<Value*> xs;
  for (int k = 0; k < c.input_count(); ++k) xs.push_back(c.in(k));
  c.require(!xs.empty(), "no operands");
  for (const Value* x : xs) {
    c.require(x->dtype == xs[0]->dtype, "operands of dtypes {} and {}", name(xs[0]->dtype), name(x->dtype));
    c.require(x->rank() == xs[0]->rank(), "operands of ranks {} and {}", xs[0]->rank(), x->rank());
  }
  c.require(c.has_attr("axis"), "no axis");
  c.out(0, tensor::concat(c.graph(), xs, c.axis(c.attr("axis", 0), xs[0]->rank())));
}

}  // namespace

void check_parts(OpContext& c, const Exprs& sizes, const Expr& dim) {
  Expr sum = 0;
  for (const Expr& s : sizes) {
    std::int64_t known;
    c.require(!is_const_int(s, known) || known >= 0, "a part of size {}", to_string(s));
    sum = sum + s;
  }
  c.graph().add_check(compare(Op::kEq, sum, dim),
                      fmt::format("the parts add up to {}, not to the dim {}", to_string(sum), to_string(dim)));
}

void register_slice(OpRegistry& r) {
  r.add({.name = "Slice",
         .lower = slice_op,
         .notes = "axes must be known when compiling; starts, ends and steps need not"});
  r.add({.name = "Split", .lower = split_op, .notes = "sizes may be computed at run time"});
  r.add({.name = "Concat", .lower = concat_op});
}

}  // namespace sardonyx
