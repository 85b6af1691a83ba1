// Tensors from little or no data: ConstantOfShape, Range, EyeLike, Trilu, OneHot, windows, MelWeightMatrix.
#include <cmath>

#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

void constant_of_shape_op(OpContext& c) {
  Graph& g = c.graph();
  Value* fill = tensor::scalar(g, 0, DType::kFloat32);
  if (const model::Tensor* t = c.node().get_tensor("value")) {
    t->require();
    c.require(t->elements() == 1, "a value of {} elements", t->elements());
    fill = g.add_constant(t->dtype, {}, {t->owner, t->data, t->bytes});
  }
  Exprs shape;
  // A shape tensor without elements stands for a scalar.
  if (!is_const(c.in(0)->elements(), 0)) shape = c.ints(c.in(0), true);
  const Expr e = scalar_element(c, fill);
  c.out(0, tensor::generate(g, shape, [&](const Exprs&) { return Expr(e); }));
}

// Elements of an integer range: how many, and each as an expression of the position.
void integer_range(OpContext& c, DType t) {
  Graph& g = c.graph();
  const Expr start = int_input(c, 0), limit = int_input(c, 1);
  const Expr delta = c.has(2) ? int_input(c, 2) : Expr(1);
  g.add_check(compare(Op::kNe, delta, 0), "delta is 0");
  std::int64_t d;
  Expr n;
  if (is_const_int(delta, d)) {
    n = d > 0 ? idx::ceildiv(idx::max(limit - start, 0), d) : idx::ceildiv(idx::max(start - limit, 0), -d);
  } else {
    const Expr up = idx::ceildiv(idx::max(limit - start, 0), idx::max(delta, 1));
    const Expr down = idx::ceildiv(idx::max(start - limit, 0), idx::max(0 - delta, 1));
    n = select(compare(Op::kGt, delta, 0), up, down);
  }
  c.out(0, tensor::generate(g, {n}, [&](const Exprs& i) { return cast(start + i[0] * delta, t); }));
}

void range_op(OpContext& c) {
  Graph& g = c.graph();
  const DType t = c.in(0)->dtype;
  c.require(c.in(1)->dtype == t && (!c.has(2) || c.in(2)->dtype == t), "operands of different dtypes");
  if (is_integer(t)) return integer_range(c, t);
  c.require(is_float(t), "a range of dtype {}", name(t));
  const DType w = tensor::accumulator(t);
  const Expr start = cast(scalar_element(c, c.in(0)), w), limit = cast(scalar_element(c, c.in(1)), w),
             delta = c.has(2) ? cast(scalar_element(c, c.in(2)), w) : constant(1, w);
  // How many: computed on the device, since the operands may be, and read back.
  const Expr steps = unary(Op::kCeil, binary(Op::kDiv, binary(Op::kSub, limit, start), delta));
  const Expr positive = compare(Op::kGt, steps, constant(0, w));  // also false for NaN
  Value* count = g.add_loop({}, select(positive, cast(steps, DType::kInt64), Expr(0)));
  const Expr n = c.int_scalar(count, true);
  c.out(0, tensor::generate(g, {n}, [&](const Exprs& i) {
          return cast(binary(Op::kAdd, start, binary(Op::kMul, cast(i[0], w), delta)), t);
        }));
}

void eye_like_op(OpContext& c) {
  Value* x = c.in(0);
  c.require(x->rank() == 2, "an input of rank {}, not 2", x->rank());
  const DType t = dtype_attr(c, "dtype", x->dtype);
  const std::int64_t k = c.attr("k", 0);
  c.require(k > -(std::int64_t{1} << 48) && k < (std::int64_t{1} << 48), "k is {}", k);
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          return select(compare(Op::kEq, i[0] + k, i[1]), constant(1, t), constant(0, t));
        }));
}

// Keeps one triangle of the last two dims.
void trilu_op(OpContext& c) {
  Value* x = c.in(0);
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  const bool upper = c.attr("upper", 1) != 0;
  const Expr k =
      c.has(1) ? idx::max(idx::min(int_input(c, 1), std::int64_t{1} << 48), -(std::int64_t{1} << 48)) : Expr(0);
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          const Expr row = i[i.size() - 2] + k;
          const Expr& column = i.back();
          const Expr kept = compare(Op::kLe, upper ? row : column, upper ? column : row);
          return select(kept, tensor::at(x, i), constant(0, x->dtype));
        }));
}

// Indices outside of [-depth, depth) give no hot element.
void one_hot_op(OpContext& c) {
  Graph& g = c.graph();
  Value *indices = c.in(0), *depth_in = one_element(c, 1), *values = c.in(2);
  c.require(values->rank() == 1, "values of rank {}", values->rank());
  g.add_check(compare(Op::kEq, values->shape[0], 2), "values must be [off, on]");
  const Expr depth = c.int_scalar(tensor::cast(g, depth_in, DType::kInt64), true);
  const int axis = c.axis(c.attr("axis", -1), indices->rank() + 1);
  Exprs shape = indices->shape;
  shape.insert(shape.begin() + axis, depth);
  c.out(0, tensor::generate(g, shape, [&](const Exprs& i) {
          Exprs at = i;
          at.erase(at.begin() + axis);
          const Expr hot = tensor::wrap_index(cast(tensor::at(indices, at), DType::kInt64), depth);
          const Expr off = tensor::at(values, {0}), on = tensor::at(values, {1});
          return select(compare(Op::kEq, hot, i[static_cast<std::size_t>(axis)]), on, off);
        }));
}

// w[n] = a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), with N the size, or one less for symmetric windows.
void window_op(OpContext& c, double a0, double a1, double a2) {
  const Expr size = int_input(c, 0, true);
  const DType t = dtype_attr(c, "output_datatype", DType::kFloat32);
  const Expr period = c.attr("periodic", 1) != 0 ? size : size - 1;
  const DType w = DType::kFloat64;
  c.out(0, tensor::generate(c.graph(), {size}, [&](const Exprs& i) {
          const Expr turn = binary(Op::kDiv, cast(i[0], w), cast(period, w));
          auto wave = [&](double amplitude, double turns) {
            return binary(Op::kMul, constant(amplitude, w),
                          unary(Op::kCos, binary(Op::kMul, constant(2 * M_PI * turns, w), turn)));
          };
          Expr y = binary(Op::kSub, constant(a0, w), wave(a1, 1));
          if (a2 != 0) y = binary(Op::kAdd, y, wave(a2, 2));
          return cast(select(compare(Op::kEq, period, 0), constant(1, w), y), t);  // a symmetric window of one element
        }));
}

void hann_op(OpContext& c) { window_op(c, 0.5, 0.5, 0); }
void hamming_op(OpContext& c) { window_op(c, 25.0 / 46, 21.0 / 46, 0); }
void blackman_op(OpContext& c) { window_op(c, 0.42, 0.5, 0.08); }

// Triangles between the spectrum's bins of equidistant points on the mel scale: mel(f) = 2595 log10(1 + f / 700).
void mel_op(OpContext& c) {
  Graph& g = c.graph();
  const Expr mels = int_input(c, 0, true), length = int_input(c, 1, true), rate = int_input(c, 2, true);
  const DType t = dtype_attr(c, "output_datatype", DType::kFloat32), w = DType::kFloat64;
  g.add_check(compare(Op::kGt, rate, 0), "sample_rate is 0");
  auto mul = [](const Expr& a, const Expr& b) { return binary(Op::kMul, a, b); };
  auto div = [](const Expr& a, const Expr& b) { return binary(Op::kDiv, a, b); };
  auto mel = [&](Value* hertz) {
    const Expr f = div(cast(scalar_element(c, hertz), w), constant(700, w));
    return div(mul(constant(2595, w), unary(Op::kLog1p, f)), constant(std::log(10.0), w));
  };
  const Expr low = mel(c.in(3)), high = mel(c.in(4));
  Value* bins = tensor::generate(g, {mels + 2}, [&](const Exprs& i) {
    const Expr step = div(binary(Op::kSub, high, low), cast(mels + 2, w));
    const Expr at = binary(Op::kAdd, mul(cast(i[0], w), step), low);
    const Expr hertz =
        mul(constant(700, w), unary(Op::kExpm1, mul(div(at, constant(2595, w)), constant(std::log(10.0), w))));
    return cast(unary(Op::kFloor, div(mul(cast(length + 1, w), hertz), cast(rate, w))), DType::kInt64);
  });
  c.out(0, tensor::generate(g, {idx::floordiv(length, 2) + 1, mels}, [&](const Exprs& i) {
          const Expr left = tensor::at(bins, {i[1]}), centre = tensor::at(bins, {i[1] + 1}),
                     right = tensor::at(bins, {i[1] + 2});
          const Expr falling = div(cast(right - i[0], w), cast(right - centre, w));
          const Expr width = centre - left;
          const Expr rising =
              select(compare(Op::kEq, width, 0), constant(1, w), div(cast(i[0] - left, w), cast(width, w)));
          const Expr in_fall = logical_and(compare(Op::kGe, i[0], centre), compare(Op::kLt, i[0], right));
          const Expr in_rise = logical_and(compare(Op::kGe, i[0], left), compare(Op::kLe, i[0], centre));
          return cast(select(in_fall, falling, select(in_rise, rising, constant(0, w))), t);
        }));
}

}  // namespace

void register_generators(OpRegistry& r) {
  r.add({.name = "ConstantOfShape", .lower = constant_of_shape_op, .dtypes = "numbers, bool"});
  r.add({.name = "Range", .lower = range_op, .dtypes = "numbers"});
  // The same, but its delta may be left out. tf2onnx writes it in loops.
  r.add({.name = "Range", .domain = "com.microsoft", .lower = range_op, .dtypes = "numbers"});
  r.add({.name = "EyeLike", .lower = eye_like_op, .dtypes = "numbers, bool"});
  r.add({.name = "Trilu", .lower = trilu_op, .dtypes = "numbers, bool"});
  r.add({.name = "OneHot", .lower = one_hot_op});
  r.add({.name = "HannWindow", .lower = hann_op, .dtypes = "numbers"});
  r.add({.name = "HammingWindow", .lower = hamming_op, .dtypes = "numbers"});
  r.add({.name = "BlackmanWindow", .lower = blackman_op, .dtypes = "numbers"});
  r.add({.name = "MelWeightMatrix", .lower = mel_op, .dtypes = "numbers"});
}

}  // namespace sardonyx
