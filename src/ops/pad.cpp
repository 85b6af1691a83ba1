// Pad and CenterCropPad.
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// The input's index for output index i along an axis of size d padded by `before` and `after` with its own elements.
// Negative pads crop first, as onnxruntime does: only what is left is mirrored or repeated.
Expr own_element(Graph& g, const std::string& mode, const Expr& i, const Expr& d, const Expr& before,
                 const Expr& after) {
  const Expr crop = idx::max(0 - before, 0);
  const Expr length = d - crop - idx::max(0 - after, 0);
  Expr j = i - idx::max(before, 0);
  if (is_const(before, 0) && is_const(after, 0)) return j;
  const Expr none = compare(Op::kLe, d + before + after, 0);
  g.add_check(logical_or(none, compare(Op::kGt, length, 0)),
              fmt::format("an empty axis can't be padded by mode {}", mode));
  if (mode == "edge") return crop + idx::max(idx::min(j, length - 1), 0);
  if (mode == "wrap") return crop + idx::mod(j, length);
  const Expr period = idx::max((length - 1) * 2, 1);
  const Expr m = idx::mod(j, period);
  return crop + idx::min(m, period - m);  // for a length of 1: 0
}

void pad_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const auto rank = static_cast<std::size_t>(x->rank());
  const std::string mode = c.attr_s("mode", "constant");
  c.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap", "mode is '{}'", mode);
  Exprs pads;
  if (c.opset() >= 11)
    pads = c.ints(c.in(1));
  else
    for (std::int64_t p : c.attr_ints("pads")) pads.push_back(p);
  std::vector<std::int64_t> axes;
  if (c.opset() >= 18 && c.has(3))
    axes = c.const_ints(c.in(3), "axes");
  else
    for (std::size_t k = 0; k < rank; ++k) axes.push_back(static_cast<std::int64_t>(k));
  c.require(pads.size() == 2 * axes.size(), "{} pads for {} axes", pads.size(), axes.size());
  Exprs before(rank, Expr(0)), after(rank, Expr(0)), shape = x->shape;
  bool identity = true;
  std::vector<bool> padded(rank);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto a = static_cast<std::size_t>(c.axis(axes[k], x->rank()));
    c.require(!padded[a], "axis {} is padded twice", a);
    padded[a] = true;
    before[a] = pads[k];
    after[a] = pads[axes.size() + k];
    identity &= is_const(before[a], 0) && is_const(after[a], 0);
    shape[a] = x->shape[a] + before[a] + after[a];
    g.add_check(compare(Op::kGe, shape[a], 0),
                fmt::format("pads of {} and {} make a dim of {} negative", to_string(before[a]), to_string(after[a]),
                            to_string(x->shape[a])));
  }
  if (identity) return c.out(0, x);
  Expr fill = constant(0, x->dtype);
  if (c.opset() < 11)
    fill = constant(c.attr_f("value", 0), x->dtype);
  else if (c.has(2)) {
    c.require(c.in(2)->dtype == x->dtype, "a fill value of dtype {} for {}", name(c.in(2)->dtype), name(x->dtype));
    fill = scalar_element(c, c.in(2));
  }
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          Exprs j;
          Expr inside = constant_bool(true);
          for (std::size_t k = 0; k < rank; ++k) {
            if (mode != "constant") {
              j.push_back(own_element(g, mode, i[k], x->shape[k], before[k], after[k]));
              continue;
            }
            j.push_back(i[k] - before[k]);
            if (is_const(before[k], 0) && is_const(after[k], 0)) continue;
            inside = logical_and(inside, compare(Op::kGe, j[k], 0));
            inside = logical_and(inside, compare(Op::kLt, j[k], x->shape[k]));
          }
          return select(inside, tensor::at(x, j), fill);
        }));
}

// Crops or zero-pads axes to given sizes around the centre. An odd rest is cropped from, or added to, the end.
void center_crop_pad_op(OpContext& c) {
  Value* x = c.in(0);
  const Exprs target = c.ints(c.in(1), true);
  std::vector<std::int64_t> axes;
  for (int k = 0; k < x->rank(); ++k) axes.push_back(k);
  axes = c.attr_ints("axes", axes);
  c.require(axes.size() == target.size(), "{} sizes for {} axes", target.size(), axes.size());
  Exprs shape = x->shape, offset(shape.size(), Expr(0));
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto a = static_cast<std::size_t>(c.axis(axes[k], x->rank()));
    const Expr &d = x->shape[a], &t = target[k];
    shape[a] = t;
    offset[a] = select(compare(Op::kLt, t, d), idx::floordiv(d - t, 2), 0 - idx::floordiv(t - d, 2));
  }
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          Exprs j;
          Expr inside = constant_bool(true);
          for (std::size_t k = 0; k < i.size(); ++k) {
            j.push_back(i[k] + offset[k]);
            inside = logical_and(inside, compare(Op::kGe, j[k], 0));
            inside = logical_and(inside, compare(Op::kLt, j[k], x->shape[k]));
          }
          return select(inside, tensor::at(x, j), constant(0, x->dtype));
        }));
}

}  // namespace

void register_pad(OpRegistry& r) {
  r.add({.name = "Pad", .lower = pad_op, .notes = "axes must be known when compiling; pads need not"});
  r.add({.name = "CenterCropPad", .lower = center_crop_pad_op});
}

}  // namespace sardonyx
