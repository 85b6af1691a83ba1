// GridSample and AffineGrid.
#include "ops/families.h"
#include "ops/sampling.h"

namespace sardonyx {
namespace {

using namespace sampling;  // NOLINT: arithmetic on float expressions

// x mirrored at lo and hi until it lies between them.
Expr mirrored(const Expr& x, const Expr& lo, const Expr& hi) {
  const Expr range = sub(hi, lo), t = unary(Op::kAbs, sub(x, lo)), n = unary(Op::kFloor, div(t, range)),
             rest = sub(t, mul(n, range));
  const Expr half = mul(n, k(0.5, x)), even = compare(Op::kEq, unary(Op::kFloor, half), half);
  const Expr inside = logical_and(compare(Op::kGe, x, lo), compare(Op::kLe, x, hi));
  const Expr y = select(inside, x, select(even, add(lo, rest), sub(hi, rest)));
  return select(compare(Op::kGt, range, k(0, x)), y, lo);
}

// Integer position i mirrored into [0, d).
Expr mirrored_index(const Expr& i, const Expr& d, bool align) {
  const Expr period = align ? idx::max((d - 1) * 2, 1) : idx::max(d * 2, 1), m = idx::mod(i, period);
  return clamp_index(idx::min(m, period - m - (align ? 0 : 1)), d);
}

struct Mode {
  std::string interpolation, padding;
  bool align = false;
};

// The normalised position g in [-1, 1] along an axis of size d as a coordinate, brought inside if the padding says so.
Expr coordinate(const Mode& m, const Expr& g, const Expr& d) {
  const Expr one = k(1, g), half = k(0.5, g), size = cast(d, g->dtype);
  Expr x = m.align ? mul(mul(add(g, one), half), sub(size, one)) : mul(sub(mul(add(g, one), size), one), half);
  if (m.interpolation == "nearest") x = unary(Op::kRound, x);
  // Cubic taps are held inside one by one, as onnxruntime and PyTorch do; clamping the position itself would give other
  // weights.
  if (m.padding == "border" && m.interpolation != "cubic")
    x = binary(Op::kMin, binary(Op::kMax, x, k(0, g)), sub(size, one));
  if (m.padding == "reflection")
    x = m.align ? mirrored(x, k(0, g), sub(size, one)) : mirrored(x, k(-0.5, g), sub(size, half));
  return x;
}

void grid_sample_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *grid = c.in(1);
  const int r = x->rank() - 2;
  c.require(r >= 1 && grid->rank() == r + 2, "an input of rank {} and a grid of rank {}", x->rank(), grid->rank());
  g.add_check(compare(Op::kEq, grid->shape.back(), r), fmt::format("the grid's last dim is not {}", r));
  g.add_check(compare(Op::kEq, grid->shape[0], x->shape[0]), "input and grid differ in the batch");
  Mode m;
  m.interpolation = c.attr_s("mode", c.opset() < 20 ? "bilinear" : "linear");
  if (m.interpolation == "bilinear") m.interpolation = "linear";
  if (m.interpolation == "bicubic") m.interpolation = "cubic";
  c.require(m.interpolation == "linear" || m.interpolation == "cubic" || m.interpolation == "nearest", "mode is '{}'",
            m.interpolation);
  m.padding = c.attr_s("padding_mode", "zeros");
  c.require(m.padding == "zeros" || m.padding == "border" || m.padding == "reflection", "padding_mode is '{}'",
            m.padding);
  m.align = c.attr("align_corners", 0) != 0;
  const DType t = x->dtype, w = m.interpolation == "nearest" ? DType::kFloat32 : compute_type(t);
  Exprs shape = {x->shape[0], x->shape[1]};
  shape.insert(shape.end(), grid->shape.begin() + 1, grid->shape.end() - 1);
  for (int a = 0; a < r; ++a)
    g.add_check(logical_or(compare(Op::kGt, x->shape[static_cast<std::size_t>(a) + 2], 0),
                           compare(Op::kEq, idx::product(shape), 0)),
                "samples of an empty image");
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          std::vector<std::vector<Tap>> taps;
          for (int a = 0; a < r; ++a) {
            Exprs at = {i[0]};
            at.insert(at.end(), i.begin() + 2, i.end());
            at.push_back(r - 1 - a);  // positions are listed from the innermost axis
            const Expr given = cast(tensor::at(grid, at), w);
            // As onnxruntime does, and PyTorch's documentation says.
            const Expr position = select(unary(Op::kIsNaN, given), k(-1, given), given);
            const Expr p = coordinate(m, position, x->shape[static_cast<std::size_t>(a) + 2]);
            if (m.interpolation == "nearest")
              taps.push_back({{cast(p, DType::kInt64), Expr()}});
            else
              taps.push_back(m.interpolation == "linear" ? linear_taps(p) : cubic_taps(p, -0.75));
          }
          const auto element = [&](const Exprs& j) {
            Exprs at = {i[0], i[1]};
            Expr inside = constant_bool(true);
            for (std::size_t a = 0; a < j.size(); ++a) {
              const Expr d = x->shape[a + 2];
              if (m.padding == "zeros")
                inside = logical_and(inside, logical_and(compare(Op::kGe, j[a], 0), compare(Op::kLt, j[a], d)));
              at.push_back(m.padding == "reflection" ? mirrored_index(j[a], d, m.align)
                           : m.padding == "border"   ? clamp_index(j[a], d)
                                                     : j[a]);
            }
            const Expr e = tensor::at(x, at);
            return select(inside, e, constant(0, t));
          };
          if (m.interpolation != "nearest")
            return cast(interpolate(taps, [&](const Exprs& j) { return cast(element(j), w); }), t);
          Exprs j;
          for (const auto& tap : taps) j.push_back(tap[0].index);
          return element(j);
        }));
}

// Positions i of an axis of size d, spread evenly over [-1, 1].
Expr spread(const Expr& i, const Expr& d, bool align, DType w) {
  const Expr x = cast(i, w), n = cast(d, w), one = constant(1, w), two = constant(2, w);
  if (!align) return sub(div(add(mul(x, two), one), n), one);
  return select(compare(Op::kEq, d, 1), constant(-1, w), sub(mul(x, div(two, sub(n, one))), one));
}

void affine_grid_op(OpContext& c) {
  Value* theta = c.in(0);
  const Exprs size = c.ints(c.in(1), true);
  c.require(size.size() == 4 || size.size() == 5, "a size of {} elements; 4 or 5 are possible", size.size());
  const auto r = static_cast<std::int64_t>(size.size()) - 2;
  c.require(theta->rank() == 3, "theta of rank {}", theta->rank());
  c.graph().add_check(logical_and(compare(Op::kEq, theta->shape[1], r), compare(Op::kEq, theta->shape[2], r + 1)),
                      fmt::format("theta is not of shape [n, {}, {}]", r, r + 1));
  c.graph().add_check(compare(Op::kEq, theta->shape[0], size[0]), "theta and size differ in the batch");
  const bool align = c.attr("align_corners", 0) != 0;
  const DType t = theta->dtype, w = tensor::accumulator(t);
  Exprs shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(r);
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          const Expr &n = i[0], &row = i.back();
          Expr sum = cast(tensor::at(theta, {n, row, r}), w);
          for (std::int64_t j = 0; j < r; ++j) {  // x is the innermost axis
            const auto axis = static_cast<std::size_t>(r - j);
            sum = add(sum, mul(cast(tensor::at(theta, {n, row, j}), w), spread(i[axis], shape[axis], align, w)));
          }
          return cast(sum, t);
        }));
}

}  // namespace

void register_grid_sample(OpRegistry& r) {
  r.add({.name = "GridSample", .lower = grid_sample_op, .dtypes = "numbers"});
  r.add({.name = "AffineGrid", .lower = affine_grid_op, .dtypes = "floats"});
}

}  // namespace sardonyx
