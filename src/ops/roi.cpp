// Pooling over regions of interest: RoiAlign, MaxRoiPool.
#include <cmath>

#include "ops/families.h"
#include "ops/sampling.h"

namespace sardonyx {
namespace {

using namespace sampling;  // NOLINT: arithmetic on float expressions

constexpr std::int64_t kMaxSamples = 1024;  // per axis and output element, when the region's size decides

// A region along one axis, as expressions of its number.
struct Extent {
  Expr start, size, bin;
  Expr samples;  // int64, per bin
};

class RoiAlign {
 public:
  explicit RoiAlign(OpContext& c)
      : c_(c), g_(c.graph()), x_(c.in(0)), rois_(c.in(1)), batch_(c.in(2)), w_(tensor::accumulator(x_->dtype)) {}

  Value* run() {
    c_.require(x_->rank() == 4 && rois_->rank() == 2 && batch_->rank() == 1, "inputs of ranks {}, {} and {}",
               x_->rank(), rois_->rank(), batch_->rank());
    g_.add_check(compare(Op::kEq, rois_->shape[1], 4), "regions of other than 4 coordinates");
    g_.add_check(compare(Op::kEq, rois_->shape[0], batch_->shape[0]), "rois and batch_indices differ in number");
    mode_ = c_.attr_s("mode", "avg");
    c_.require(mode_ == "avg" || mode_ == "max", "mode is '{}'", mode_);
    const std::string coordinates =
        c_.opset() < 16 ? "output_half_pixel" : c_.attr_s("coordinate_transformation_mode", "half_pixel");
    c_.require(coordinates == "half_pixel" || coordinates == "output_half_pixel",
               "coordinate_transformation_mode is '{}'", coordinates);
    half_pixel_ = coordinates == "half_pixel";
    out_[0] = c_.attr("output_height", 1);
    out_[1] = c_.attr("output_width", 1);
    ratio_ = c_.attr("sampling_ratio", 0);
    c_.require(out_[0] > 0 && out_[1] > 0 && ratio_ >= 0 && ratio_ <= kMaxSamples, "output of {} x {} with {} samples",
               out_[0], out_[1], ratio_);
    const Expr count = rois_->shape[0];
    g_.add_check(
        logical_or(compare(Op::kGt, x_->shape[0] * x_->shape[2] * x_->shape[3], 0), compare(Op::kEq, count, 0)),
        "regions of an empty image");
    Expr most[2] = {Expr(ratio_), Expr(ratio_)};
    if (ratio_ == 0)
      for (int axis = 0; axis < 2; ++axis) most[axis] = most_samples(axis);
    return tensor::generate(g_, {count, x_->shape[1], out_[0], out_[1]},
                            [&](const Exprs& i) { return pooled(i, most); });
  }

 private:
  // axis: 0 height, 1 width
  Extent extent(const Expr& roi, int axis) const {
    const Expr scale = constant(c_.attr_f("spatial_scale", 1), w_), offset = constant(half_pixel_ ? 0.5 : 0, w_);
    const auto edge = [&](int k) { return sub(mul(cast(tensor::at(rois_, {roi, k}), w_), scale), offset); };
    Extent e;
    e.start = edge(1 - axis);
    e.size = sub(edge(3 - axis), e.start);
    if (!half_pixel_) e.size = binary(Op::kMax, e.size, constant(1, w_));  // malformed regions become 1 x 1
    e.bin = div(e.size, constant(static_cast<double>(out_[axis]), w_));
    e.samples = ratio_ > 0 ? Expr(ratio_) : cast(unary(Op::kCeil, e.bin), DType::kInt64);
    return e;
  }

  // The largest number of samples that any region needs, read back when it is known.
  Expr most_samples(int axis) {
    const Expr roi = loop_var(rois_->shape[0]);
    const Expr most = binary(Op::kMax, reduce(ReduceKind::kMax, {roi}, extent(roi, axis).samples), Expr(0));
    const Expr n = c_.ints(g_.add_loop({}, most), true).at(0);
    g_.add_check(compare(Op::kLe, n, kMaxSamples),
                 fmt::format("a region needs more than {} samples per axis; set sampling_ratio", kMaxSamples));
    return n;
  }

  // Weighted neighbours along an axis of a sample, or nothing (valid is false) if it lies outside.
  struct Neighbours {
    Expr valid, low, high, low_weight, high_weight;
  };
  Neighbours neighbours(const Expr& position, const Expr& d) const {
    const Expr size = cast(d, w_), zero = constant(0, w_), one = constant(1, w_);
    Neighbours n;
    n.valid = logical_and(compare(Op::kGe, position, constant(-1, w_)), compare(Op::kLe, position, size));
    const Expr p = binary(Op::kMin, binary(Op::kMax, position, zero), sub(size, one));
    const Expr floor = unary(Op::kFloor, p);
    n.low = clamp_index(cast(floor, DType::kInt64), d);
    n.high = clamp_index(n.low + 1, d);
    n.high_weight = sub(p, floor);
    n.low_weight = sub(one, n.high_weight);
    return n;
  }

  Expr pooled(const Exprs& i, const Expr* most) const {
    const Expr image = clamp_index(cast(tensor::at(batch_, {i[0]}), DType::kInt64), x_->shape[0]);
    Exprs at;
    Expr counted = constant_bool(true), count = 1;
    Neighbours n[2];
    for (int axis = 0; axis < 2; ++axis) {
      const Extent e = extent(i[0], axis);
      const Expr s = loop_var(most[axis]);
      at.push_back(s);
      counted = logical_and(counted, compare(Op::kLt, s, e.samples));
      count = count * idx::max(e.samples, 0);
      const Expr bin = mul(cast(i[static_cast<std::size_t>(axis) + 2], w_), e.bin);
      const Expr within = div(mul(add(cast(s, w_), constant(0.5, w_)), e.bin), cast(e.samples, w_));
      n[axis] = neighbours(add(add(e.start, bin), within), x_->shape[static_cast<std::size_t>(axis) + 2]);
    }
    const auto corner = [&](bool y, bool x) {
      const Expr e = cast(tensor::at(x_, {image, i[1], y ? n[0].high : n[0].low, x ? n[1].high : n[1].low}), w_);
      return mul(mul(y ? n[0].high_weight : n[0].low_weight, x ? n[1].high_weight : n[1].low_weight), e);
    };
    const Op join = mode_ == "avg" ? Op::kAdd : Op::kMax;
    const Expr sample = binary(join, binary(join, corner(false, false), corner(false, true)),
                               binary(join, corner(true, false), corner(true, true)));
    const Expr value = select(logical_and(n[0].valid, n[1].valid), sample, constant(0, w_));
    if (mode_ == "avg") {
      const Expr sum = reduce(ReduceKind::kSum, at, select(counted, value, constant(0, w_)));
      return cast(div(sum, cast(idx::max(count, 1), w_)), x_->dtype);
    }
    const Expr top = reduce(ReduceKind::kMax, at, select(counted, value, constant_float(-INFINITY, w_)));
    return cast(select(compare(Op::kGt, count, 0), top, constant(0, w_)), x_->dtype);
  }

  OpContext& c_;
  Graph& g_;
  Value *x_, *rois_, *batch_;
  DType w_;
  std::string mode_;
  bool half_pixel_ = true;
  std::int64_t out_[2] = {1, 1}, ratio_ = 0;
};

void roi_align_op(OpContext& c) { c.out(0, RoiAlign(c).run()); }

// Halves away from zero, as std::round.
Expr rounded(const Expr& x) {
  const Expr half = k(0.5, x);
  return cast(select(compare(Op::kLt, x, k(0, x)), unary(Op::kCeil, sub(x, half)), unary(Op::kFloor, add(x, half))),
              DType::kInt64);
}

// The largest element of each bin of a region [batch, x1, y1, x2, y2]; 0 for bins outside of the image.
void max_roi_pool_op(OpContext& c) {
  Value *x = c.in(0), *rois = c.in(1);
  c.require(x->rank() == 4 && rois->rank() == 2, "inputs of ranks {} and {}", x->rank(), rois->rank());
  const auto pooled = c.attr_ints("pooled_shape");
  c.require(pooled.size() == 2 && pooled[0] > 0 && pooled[1] > 0, "pooled_shape must be two sizes");
  const double scale = c.attr_f("spatial_scale", 1);
  c.graph().add_check(compare(Op::kEq, rois->shape[1], 5), "regions of other than 5 numbers");
  c.graph().add_check(logical_or(compare(Op::kGt, x->shape[0], 0), compare(Op::kEq, rois->shape[0], 0)),
                      "regions of no images");
  const DType w = tensor::accumulator(x->dtype);
  c.out(0, tensor::generate(c.graph(), {rois->shape[0], x->shape[1], pooled[0], pooled[1]}, [&](const Exprs& i) {
          const auto number = [&](int j) { return cast(tensor::at(rois, {i[0], j}), w); };
          const Expr image = clamp_index(cast(number(0), DType::kInt64), x->shape[0]);
          Exprs vars, at = {image, i[1]};
          Expr inside = constant_bool(true), empty = constant_bool(false);
          for (int axis = 0; axis < 2; ++axis) {  // height, width
            const auto a = static_cast<std::size_t>(axis);
            const Expr d = x->shape[a + 2], start = rounded(mul(number(2 - axis), constant(scale, w))),
                       end = rounded(mul(number(4 - axis), constant(scale, w)));
            const Expr bin = div(cast(idx::max(end - start + 1, 1), w), constant(static_cast<double>(pooled[a]), w));
            const auto edge = [&](Op round, const Expr& n) {
              return idx::min(idx::max(cast(unary(round, mul(cast(n, w), bin)), DType::kInt64) + start, 0), d);
            };
            const Expr first = edge(Op::kFloor, i[a + 2]), last = edge(Op::kCeil, i[a + 2] + 1);
            vars.push_back(loop_var(d));
            at.push_back(first + vars[a]);
            inside = logical_and(inside, compare(Op::kLt, at.back(), last));
            empty = logical_or(empty, compare(Op::kLe, last, first));
          }
          const Expr e = select(inside, cast(tensor::at(x, at), w), constant_float(-INFINITY, w));
          return cast(select(empty, constant(0, w), reduce(ReduceKind::kMax, vars, e)), x->dtype);
        }));
}

}  // namespace

void register_roi(OpRegistry& r) {
  r.add({.name = "RoiAlign",
         .lower = roi_align_op,
         .dtypes = "floats",
         .notes = "batch indices out of range are clamped; without sampling_ratio at most 1024 samples per axis"});
  r.add({.name = "MaxRoiPool",
         .lower = max_roi_pool_op,
         .dtypes = "floats",
         .notes = "batch indices out of range are clamped"});
}

}  // namespace sardonyx
