// Convolution: Conv and ConvTranspose as ConvOps; integer and deformable convolution as a GEMM with columns of the
// input (im2col); CausalConvWithState as a loop.
#include "ops/conv.h"

#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/integer_gemm.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

std::int64_t group_of(OpContext& c) {
  const std::int64_t g = c.attr("group", 1);
  c.require(g > 0 && g < (1 << 30), "group is {}", g);
  return g;
}

Exprs spatial(const Value* v) { return {v->shape.begin() + 2, v->shape.end()}; }

void check_weights(OpContext& c, Value* x, Value* w) {
  c.require(x->rank() >= 3 && w->rank() == x->rank(), "an input of rank {} with weights of rank {}", x->rank(),
            w->rank());
  for (std::size_t d = 2; d < w->shape.size(); ++d)
    c.graph().add_check(compare(Op::kGt, w->shape[d], Expr(0)),
                        fmt::format("weights with a kernel of {}", to_string(w->shape[d])));
}

void check_divides(OpContext& c, const Expr& n, std::int64_t g, std::string_view what) {
  c.graph().add_check(compare(Op::kEq, idx::mod(n, g), 0),
                      fmt::format("{} {} can't be divided into {} groups", to_string(n), what, g));
}

void check_bias(OpContext& c, const Value* bias, const Expr& channels) {
  if (!bias) return;
  c.require(bias->rank() == 1, "a bias of rank {}", bias->rank());
  c.graph().add_check(
      compare(Op::kEq, bias->shape[0], channels),
      fmt::format("a bias of {} elements for {} channels", to_string(bias->shape[0]), to_string(channels)));
}

void conv_op(OpContext& c) { c.out(0, lower_conv(c, c.in(0), c.in(1), c.opt(2))); }

void conv_transpose_op(OpContext& c) {
  Value *x = c.in(0), *w = c.in(1);
  check_weights(c, x, w);
  c.require(x->dtype == w->dtype, "an input of {} with weights of {}", name(x->dtype), name(w->dtype));
  const std::size_t n = x->shape.size() - 2;
  ConvOp op;
  op.transposed = true;
  op.groups = group_of(c);
  op.strides = window_steps(c, "strides", n);
  op.dilations = window_steps(c, "dilations", n);
  c.graph().add_check(
      compare(Op::kEq, x->shape[1], w->shape[0]),
      fmt::format("an input with {} channels for weights with {}", to_string(x->shape[1]), to_string(w->shape[0])));
  check_divides(c, x->shape[1], op.groups, "channels");
  check_bias(c, c.opt(2), w->shape[1] * Expr(op.groups));
  const std::string auto_pad = auto_pad_of(c);
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  std::vector<std::int64_t> extra = c.attr_ints("output_padding"), sizes = c.attr_ints("output_shape");
  if (extra.empty()) extra.assign(n, 0);
  c.require(extra.size() == n, "output_padding has {} entries for {} spatial dims", extra.size(), n);
  for (std::int64_t e : extra) c.require(e >= 0 && e < (1 << 30), "output_padding holds {}", e);
  if (sizes.size() == n + 2)
    sizes.erase(sizes.begin(), sizes.begin() + 2);  // some exporters list batch and channels as well
  c.require(sizes.empty() || sizes.size() == n, "output_shape has {} entries for {} spatial dims", sizes.size(), n);
  for (std::int64_t s : sizes) c.require(s > 0, "output_shape holds {}", s);
  const std::vector<std::int64_t> pads = auto_pad == "NOTSET" ? window_pads(c, n) : std::vector<std::int64_t>(2 * n, 0);
  Exprs output;
  for (std::size_t d = 0; d < n; ++d) {
    const std::int64_t step = std::max(op.strides[d], op.dilations[d]);
    c.require(extra[d] < step, "output_padding {} is not smaller than stride and dilation ({})", extra[d], step);
    // The extent that all taps of all inputs cover.
    const Expr full = (x->shape[2 + d] - 1) * Expr(op.strides[d]) + Expr(extra[d]) +
                      (w->shape[2 + d] - 1) * Expr(op.dilations[d]) + 1;
    if (sizes.empty() && !same) {
      op.pads_begin.push_back(pads[d]);
      op.pads_end.push_back(pads[n + d]);
      output.push_back(full - pads[d] - pads[n + d]);
      continue;
    }
    output.push_back(sizes.empty() ? x->shape[2 + d] * Expr(op.strides[d]) : Expr(sizes[d]));
    c.graph().add_check(compare(Op::kLt, output[d] - full, Expr(step)),
                        fmt::format("an output_shape of {}, where all inputs together reach {}", to_string(output[d]),
                                    to_string(full)));
    const Expr total = idx::max(full - output[d], 0), half = idx::floordiv(total, 2);
    op.pads_begin.push_back(auto_pad == "SAME_UPPER" ? half : total - half);
    op.pads_end.push_back(total - op.pads_begin.back());
  }
  c.out(0, tensor::conv(c.graph(), x, w, c.opt(2), std::move(op), output));
}

void conv_integer_op(OpContext& c) { c.out(0, lower_integer_conv(c, c.in(0), c.opt(2), c.in(1), c.opt(3))); }

// Linear interpolation of x[n, channel, ...] at a real position; zero outside. 2^dims corners.
Expr interpolate(const Value* x, const Expr& n, const Expr& channel, const Exprs& at, DType t) {
  const std::size_t dims = at.size();
  Expr sum;
  for (unsigned corner = 0; corner < (1u << dims); ++corner) {
    Expr weight, ok = constant_bool(true);
    Exprs i = {n, channel};
    for (std::size_t d = 0; d < dims; ++d) {
      const Expr low = el::floor(at[d]), part = el::sub(at[d], low);
      const bool upper = (corner >> d) & 1;
      const Expr p = upper ? el::add(low, 1) : low;
      const Expr f = upper ? part : el::sub(constant(1, t), part);
      weight = weight ? el::mul(weight, f) : f;
      // Compared as floats, so that a position far outside (or NaN) never becomes an index.
      ok = logical_and(
          ok, logical_and(compare(Op::kGe, p, constant(0, t)), compare(Op::kLe, p, cast(x->shape[2 + d] - 1, t))));
      i.push_back(cast(p, DType::kInt64));
    }
    const Expr term = select(ok, el::mul(weight, cast(tensor::at(x, i), t)), constant(0, t));
    sum = sum ? el::add(sum, term) : term;
  }
  return sum;
}

void deform_conv_op(OpContext& c) {
  Value *x = c.in(0), *w = c.in(1), *offset = c.in(2), *bias = c.opt(3), *mask = c.opt(4);
  check_weights(c, x, w);
  const std::size_t n = x->shape.size() - 2;
  c.require(n <= 4, "{} spatial dims", n);
  c.require(offset->rank() == x->rank() && (!mask || mask->rank() == x->rank()),
            "offset or mask of another rank than the input");
  const std::int64_t offset_group = c.attr("offset_group", 1);
  c.require(offset_group > 0 && offset_group < (1 << 30), "offset_group is {}", offset_group);
  const Window win = window_of(c, x, spatial(w));
  check_divides(c, x->shape[1], offset_group, "channels");
  check_bias(c, bias, w->shape[0]);
  const Expr taps = idx::product(win.kernel);
  c.graph().add_check(
      compare(Op::kEq, offset->shape[1], taps * Expr(offset_group) * Expr(static_cast<std::int64_t>(n))),
      "the offset's channels don't fit the kernel");
  if (mask)
    c.graph().add_check(compare(Op::kEq, mask->shape[1], taps * Expr(offset_group)),
                        "the mask's channels don't fit the kernel");
  for (std::size_t d = 0; d < n; ++d) {
    c.graph().add_check(compare(Op::kEq, offset->shape[2 + d], win.output[d]),
                        "the offset's size differs from the output's");
    if (mask)
      c.graph().add_check(compare(Op::kEq, mask->shape[2 + d], win.output[d]),
                          "the mask's size differs from the output's");
  }
  const DType t = accumulator(x->dtype);
  const Expr per_offset_group = idx::floordiv(x->shape[1], offset_group);
  auto element = [&](const Expr& b, const Expr& channel, const Exprs& o, const Exprs& k) {
    const Expr tap = idx::floordiv(channel, per_offset_group) * taps + idx::linearize(k, win.kernel);
    const Exprs p = win.position(o, k);
    Exprs where;
    for (std::size_t d = 0; d < n; ++d) {
      Exprs i = {b, tap * Expr(static_cast<std::int64_t>(n)) + Expr(static_cast<std::int64_t>(d))};
      i.insert(i.end(), o.begin(), o.end());
      where.push_back(el::add(cast(p[d], t), cast(tensor::at(offset, i), t)));
    }
    Expr e = interpolate(x, b, channel, where, t);
    if (mask) {
      Exprs i = {b, tap};
      i.insert(i.end(), o.begin(), o.end());
      e = el::mul(e, cast(tensor::at(mask, i), t));
    }
    return cast(e, w->dtype);
  };
  Value* y = conv_by_columns(c, x->shape[0], w, win.output, element, x->dtype);
  if (bias)
    y = tensor::generate(c.graph(), y->shape,
                         [&](const Exprs& i) { return el::add(tensor::at(y, i), tensor::at(bias, {i[1]})); });
  c.out(0, y);
}

// y[b, c, t] = sum over j of w[c, 0, j] * padded[b, c, t + j], where padded is past_state (or zeros) followed by the
// input.
void causal_conv_with_state_op(OpContext& c) {
  Value *x = c.in(0), *w = c.in(1), *bias = c.opt(2), *past = c.opt(3);
  c.require(x->rank() == 3 && w->rank() == 3, "an input of rank {} with weights of rank {}; both must be 3", x->rank(),
            w->rank());
  c.require(!past || past->rank() == 3, "a past state of rank {}", past ? past->rank() : 0);
  const std::string activation = c.attr_s("activation", "none");
  c.require(activation == "none" || activation == "silu" || activation == "swish", "activation is '{}'", activation);
  Graph& g = c.graph();
  g.add_check(compare(Op::kEq, w->shape[0], x->shape[1]),
              fmt::format("weights for {} channels, not {}", to_string(w->shape[0]), to_string(x->shape[1])));
  g.add_check(compare(Op::kEq, w->shape[1], 1), "the weights' second dim must be 1");
  check_bias(c, bias, x->shape[1]);
  const Expr state = w->shape[2] - 1;
  if (past) {
    g.add_check(compare(Op::kEq, past->shape[2], state),
                fmt::format("a past state of length {}, not {}", to_string(past->shape[2]), to_string(state)));
    g.add_check(
        logical_and(compare(Op::kEq, past->shape[0], x->shape[0]), compare(Op::kEq, past->shape[1], x->shape[1])),
        "batch or channels of the past state differ from the input's");
  }
  const DType t = accumulator(x->dtype);
  auto padded = [&](const Expr& b, const Expr& ch, const Expr& j) {
    const Expr before = past ? tensor::at(past, {b, ch, j}) : el::zero(x->dtype);
    return select(compare(Op::kLt, j, state), before, tensor::at(x, {b, ch, j - state}));
  };
  c.out(0, tensor::generate(g, x->shape, [&](const Exprs& i) {
          const Expr k = loop_var(w->shape[2]);
          const Expr product = el::mul(cast(tensor::at(w, {i[1], 0, k}), t), cast(padded(i[0], i[1], i[2] + k), t));
          Expr e = reduce(ReduceKind::kSum, {k}, product);
          if (bias) e = el::add(e, cast(tensor::at(bias, {i[1]}), t));
          return cast(activation == "none" ? e : el::silu(e), x->dtype);
        }));
  if (c.wants(1))
    c.out(1, tensor::generate(g, {x->shape[0], x->shape[1], state},
                              [&](const Exprs& i) { return padded(i[0], i[1], x->shape[2] + i[2]); }));
}

}  // namespace

Value* lower_conv(OpContext& c, Value* x, Value* w, Value* bias) {
  check_weights(c, x, w);
  c.require(x->dtype == w->dtype, "an input of {} with weights of {}", name(x->dtype), name(w->dtype));
  const Window win = window_of(c, x, spatial(w));
  ConvOp op;
  op.groups = group_of(c);
  c.graph().add_check(compare(Op::kEq, x->shape[1], w->shape[1] * Expr(op.groups)),
                      fmt::format("an input with {} channels for weights with {} in {} groups", to_string(x->shape[1]),
                                  to_string(w->shape[1]), op.groups));
  check_divides(c, w->shape[0], op.groups, "output channels");
  check_bias(c, bias, w->shape[0]);
  if (op.groups == 1)
    if (Value* y = dequantized_conv(c.graph(), x, w, bias, win)) return y;
  op.strides = win.strides;
  op.dilations = win.dilations;
  op.pads_begin = win.begin;
  op.pads_end = win.end;
  op.exact = is_dequantized(x) && is_dequantized(w);
  return tensor::conv(c.graph(), x, w, bias, std::move(op), win.output);
}

Value* conv_by_columns(OpContext& c, const Expr& batch, Value* w, const Exprs& output, const ColumnElement& element,
                       DType result) {
  Graph& g = c.graph();
  const std::int64_t groups = group_of(c);
  check_divides(c, w->shape[0], groups, "output channels");
  const Exprs kernel = spatial(w);
  Exprs shape = {batch, groups, w->shape[1]};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  shape.insert(shape.end(), output.begin(), output.end());
  const auto nk = static_cast<std::ptrdiff_t>(kernel.size());
  Value* columns = tensor::generate(g, shape, [&](const Exprs& i) {
    return element(i[0], i[1] * w->shape[1] + i[2], Exprs(i.begin() + 3 + nk, i.end()),
                   Exprs(i.begin() + 3, i.begin() + 3 + nk));
  });
  const Expr inner = w->shape[1] * idx::product(kernel);
  columns = tensor::reshape(g, columns, {batch, groups, inner, idx::product(output)});
  Value* weights = tensor::reshape(g, w, {groups, idx::floordiv(w->shape[0], groups), inner});
  Value* y = tensor::matmul(g, weights, columns, false, false, result);
  Exprs out = {batch, w->shape[0]};
  out.insert(out.end(), output.begin(), output.end());
  return tensor::reshape(g, y, out);
}

Value* lower_integer_conv(OpContext& c, Value* x, Value* x_zero, Value* w, Value* w_zero) {
  check_weights(c, x, w);
  Graph& g = c.graph();
  const Window win = window_of(c, x, spatial(w));
  g.add_check(compare(Op::kEq, x->shape[1], w->shape[1] * Expr(group_of(c))),
              fmt::format("an input with {} channels for weights with {} in {} groups", to_string(x->shape[1]),
                          to_string(w->shape[1]), group_of(c)));
  c.require(!w_zero || w_zero->rank() <= 1, "zero points of rank {} for the weights", w_zero ? w_zero->rank() : 0);
  if (group_of(c) == 1)
    if (Value* y = integer_conv(g, x, x_zero, w, w_zero, win)) return y;
  const DType t = DType::kInt32;
  auto scalar_zero = [&](const Value* z) { return tensor::at(z, Exprs(z->shape.size(), Expr(0))); };
  Value* wide = tensor::generate(g, w->shape, [&](const Exprs& i) {
    const Expr e = cast(tensor::at(w, i), t);
    if (!w_zero) return e;
    return el::sub(
        e, cast(w_zero->rank() == 0 || is_const(w_zero->shape[0], 1) ? scalar_zero(w_zero) : tensor::at(w_zero, {i[0]}),
                t));
  });
  if (w_zero && w_zero->rank() == 1 && !is_const(w_zero->shape[0], 1))
    g.add_check(compare(Op::kEq, w_zero->shape[0], w->shape[0]),
                "the weights' zero points don't fit their output channels");
  return conv_by_columns(
      c, x->shape[0], wide, win.output,
      [&](const Expr& n, const Expr& channel, const Exprs& o, const Exprs& k) {
        const Exprs p = win.position(o, k);
        Exprs i = {n, channel};
        i.insert(i.end(), p.begin(), p.end());
        Expr e = cast(tensor::at(x, i), t);
        if (x_zero) e = el::sub(e, cast(scalar_zero(x_zero), t));
        return select(win.inside(p), e, constant_int(0, t));
      },
      t);
}

void register_conv(OpRegistry& r) {
  r.add({.name = "Conv", .lower = conv_op, .dtypes = "floats", .notes = "any number of spatial dims"});
  r.add(
      {.name = "ConvTranspose", .lower = conv_transpose_op, .dtypes = "floats", .notes = "any number of spatial dims"});
  r.add({.name = "ConvInteger", .min_opset = 10, .lower = conv_integer_op, .dtypes = "int8, uint8"});
  r.add({.name = "DeformConv",
         .min_opset = 19,
         .lower = deform_conv_op,
         .dtypes = "floats",
         .notes = "up to 4 spatial dims"});
  r.add({.name = "CausalConvWithState",
         .min_opset = 27,
         .lower = causal_conv_with_state_op,
         .dtypes = "float32, float16, bfloat16"});
}

}  // namespace sardonyx
