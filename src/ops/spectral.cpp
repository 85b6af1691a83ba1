// DFT and STFT. Transforms of known lengths with small prime factors are routines. Others, and short ones, are products
// with a matrix of cosines and sines; long ones of known composite length are split in two (Cooley and Tukey, "An
// algorithm for the machine calculation of complex Fourier series", 1965).
#include <cmath>

#include "kernels/layout_fourier.h"
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr DType kF64 = DType::kFloat64;
constexpr int kRoutineFrom = 64;                           // complex elements: fewer are one matrix product,
constexpr std::int64_t kSplitFrom = 512;                   // and so are transforms up to here that are no routine
constexpr std::int64_t kMaxTable = std::int64_t{1} << 22;  // elements of a matrix kept as a constant

using el::mul;

// cos and sin of 2 pi (product mod n) / n in fp64; sign -1 conjugates.
Expr wave(Op op, const Expr& product, const Expr& n, double sign) {
  const Expr turn = binary(Op::kDiv, cast(idx::mod(product, n), kF64), cast(n, kF64));
  return unary(op, mul(constant(sign * 2 * M_PI, kF64), turn));
}

// A constant table, computed here.
Value* constant_table(Graph& g, std::int64_t rows, std::int64_t columns, DType t,
                      const std::function<double(std::int64_t, std::int64_t)>& f) {
  std::byte* bytes;
  Data data = make_data(static_cast<std::size_t>(rows * columns) * size_of(t), &bytes);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < columns; ++k) {
      const double v = f(r, k);
      if (t == kF64)
        reinterpret_cast<double*>(bytes)[r * columns + k] = v;
      else
        reinterpret_cast<float*>(bytes)[r * columns + k] = static_cast<float>(v);
    }
  return g.add_constant(t, {rows, columns}, std::move(data));
}

// What multiplies component `in` (0 real, 1 imaginary) of sample n in component `out` of bin k. Onesided inverses take
// the bins that are not there as conjugates: every bin but the first and, for even lengths, the middle one counts
// twice.
struct Transform {
  Expr length;
  bool inverse = false, onesided = false;
  int components = 1;  // of the input

  bool to_real() const { return inverse && onesided; }
  Expr inputs() const { return to_real() ? idx::floordiv(length, 2) + 1 : length; }
  Expr bins() const { return onesided && !inverse ? idx::floordiv(length, 2) + 1 : length; }
  int out_components() const { return to_real() ? 1 : 2; }
};

double weight(const Transform& x, std::int64_t length, std::int64_t row, std::int64_t column) {
  const std::int64_t n = row / x.components, in = row % x.components, k = column / x.out_components(),
                     out = column % x.out_components();
  const auto reduced = static_cast<std::int64_t>(static_cast<unsigned __int128>(n) * static_cast<unsigned __int128>(k) %
                                                 static_cast<unsigned __int128>(length));
  const double angle = (x.inverse ? 2 : -2) * M_PI * static_cast<double>(reduced) / static_cast<double>(length);
  const double w = in == out ? std::cos(angle) : in == 0 ? std::sin(angle) : -std::sin(angle);
  const double twice = x.to_real() && n != 0 && 2 * n != length ? 2 : 1;
  return x.inverse ? w * twice / static_cast<double>(length) : w;
}

Expr weight(const Transform& x, const Expr& row, const Expr& column) {
  const Expr n = idx::floordiv(row, x.components), in = idx::mod(row, x.components),
             k = idx::floordiv(column, x.out_components()), out = idx::mod(column, x.out_components());
  const double sign = x.inverse ? 1 : -1;
  const Expr cosine = wave(Op::kCos, n * k, x.length, sign), sine = wave(Op::kSin, n * k, x.length, sign);
  Expr w = select(compare(Op::kEq, in, out), cosine, select(compare(Op::kEq, in, 0), sine, unary(Op::kNeg, sine)));
  if (!x.inverse) return w;
  if (x.to_real()) {
    const Expr once = logical_or(compare(Op::kEq, n, 0), compare(Op::kEq, n * 2, x.length));
    w = mul(w, select(once, constant(1, kF64), constant(2, kF64)));
  }
  return binary(Op::kDiv, w, cast(x.length, kF64));
}

// x [m, inputs, components] -> [m, bins, out components] by one product.
Value* direct(Graph& g, Value* x, const Transform& f) {
  const Expr rows = f.inputs() * f.components, columns = f.bins() * f.out_components();
  std::int64_t r, k, n;
  Value* w;
  if (is_const_int(rows, r) && is_const_int(columns, k) && is_const_int(f.length, n) && r <= kMaxTable &&
      k <= kMaxTable && r * k <= kMaxTable)
    w = constant_table(g, r, k, x->dtype, [&](std::int64_t i, std::int64_t j) { return weight(f, n, i, j); });
  else
    w = tensor::generate(g, {rows, columns}, [&](const Exprs& i) { return cast(weight(f, i[0], i[1]), x->dtype); });
  const Exprs shape = {x->shape[0], f.bins(), f.out_components()};
  return tensor::reshape(g, tensor::matmul(g, tensor::reshape(g, x, {x->shape[0], rows}), w), shape);
}

// Complex elements that the routine transforms, 0 if there is no such form: half as many as real samples of an even
// length.
int routine_elements(const Transform& f, DType t) {
  std::int64_t n;
  if (!is_const_int(f.length, n) || n < kRoutineFrom || n > 2 * sdx::layout::kMostFourier) return 0;
  if (t != DType::kFloat32 && t != DType::kFloat16 && t != DType::kBFloat16) return 0;
  if (f.onesided && !f.inverse && f.components != 1) return 0;
  const bool real = f.to_real() || (!f.inverse && f.components == 1);
  const int elements = static_cast<int>(real && n % 2 == 0 ? n / 2 : n);
  return elements >= kRoutineFrom && sdx::layout::fourier_passes(elements).count > 0 ? elements : 0;
}

// x [outer, samples, inner, components] -> [outer, bins, inner, out components].
Value* routine(Graph& g, Value* x, const Transform& f) {
  const Exprs shape = {x->shape[0], f.bins(), x->shape[2], f.out_components()};
  return tensor::routine(g, "fourier", {x}, {f.length, f.inverse ? 1 : 0, f.onesided ? 1 : 0}, {},
                         {{x->dtype, shape}})[0];
}

std::int64_t factor_near_root(std::int64_t n) {
  for (auto f = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n))); f > 1; --f)
    if (n % f == 0) return f;
  return 1;
}

// Two-sided transforms to complex bins: with n = b i + j and k = p + a q for a length of a b,
// X[p + a q] = sum_j e(j p / (a b)) [sum_i x[b i + j] e(i p / a)] e(j q / b).
Value* transform(Graph& g, Value* x, const Transform& f) {
  std::int64_t n;
  if (routine_elements(f, x->dtype) > 0) {
    const Exprs rows = {x->shape[0], x->shape[1], 1, f.components};
    return tensor::reshape(g, routine(g, tensor::reshape(g, x, rows), f), {x->shape[0], f.bins(), f.out_components()});
  }
  if (!is_const_int(f.length, n) || n < kSplitFrom || f.onesided) return direct(g, x, f);
  const std::int64_t a = factor_near_root(n), b = n / a;
  if (a < 8) return direct(g, x, f);
  const Expr m = x->shape[0];
  Value* v = tensor::reshape(g, x, {m, a, b, f.components});
  v = tensor::reshape(g, tensor::transpose(g, v, {0, 2, 1, 3}), {m * b, a, f.components});
  v = tensor::reshape(g, transform(g, v, {a, f.inverse, false, f.components}), {m, b, a, 2});
  const auto turn = [&](std::int64_t p, std::int64_t column) {
    const std::int64_t steps = p * (column / 2);
    const double angle = (f.inverse ? 2 : -2) * M_PI * static_cast<double>(steps) / static_cast<double>(n);
    return column % 2 == 0 ? std::cos(angle) : std::sin(angle);
  };
  Value* twiddle = tensor::reshape(g, constant_table(g, a, b * 2, x->dtype, turn), {a, b, 2});
  Value* turned = tensor::generate(g, {m, a, b, 2}, [&](const Exprs& i) {
    const Expr re = tensor::at(v, {i[0], i[2], i[1], 0}), im = tensor::at(v, {i[0], i[2], i[1], 1});
    const Expr c = tensor::at(twiddle, {i[1], i[2], 0}), s = tensor::at(twiddle, {i[1], i[2], 1});
    return select(compare(Op::kEq, i[3], 0), binary(Op::kSub, mul(re, c), mul(im, s)),
                  binary(Op::kAdd, mul(re, s), mul(im, c)));
  });
  v = tensor::reshape(g, transform(g, tensor::reshape(g, turned, {m * a, b, 2}), {b, f.inverse, false, 2}),
                      {m, a, b, 2});
  return tensor::reshape(g, tensor::transpose(g, v, {0, 2, 1, 3}), {m, n, 2});
}

// The transform of x [m, n, components], n cut or filled with zeros to the transform's inputs, in the dtype to compute
// in or, as a routine, of x.
Value* fourier(Graph& g, Value* x, Transform f) {
  if (routine_elements(f, x->dtype) > 0) return transform(g, x, f);
  const DType w = tensor::accumulator(x->dtype);
  const Expr want = f.inputs(), have = x->shape[1];
  const int components = f.components;
  if (!idx::provably_equal(want, have) || w != x->dtype)
    x = tensor::generate(g, {x->shape[0], want, components}, [&](const Exprs& i) {
      return select(compare(Op::kLt, i[1], have), cast(tensor::at(x, i), w), constant(0, w));
    });
  std::int64_t n;
  if (f.onesided && !f.inverse && is_const_int(f.length, n) && n >= kSplitFrom) {
    const Expr bins = f.bins();
    f.onesided = false;
    return tensor::slice(g, transform(g, x, f), 1, 0, bins);
  }
  return transform(g, x, f);
}

int components_of(OpContext& c, const Value* x) {
  std::int64_t d;
  if (!is_const_int(x->shape.back(), d))
    c.refuse("a last dim, {}, that is not known when compiling (1 for real, 2 for complex)",
             to_string(x->shape.back()));
  c.require(d == 1 || d == 2, "a last dim of {}; 1 stands for real and 2 for complex numbers", d);
  return static_cast<int>(d);
}

// The transform along an axis that dims other than the components follow, if a routine transforms columns: null
// otherwise.
Value* columns(Graph& g, Value* x, int axis, const Transform& f) {
  const int elements = routine_elements(f, x->dtype);
  if (axis + 2 == x->rank() || elements == 0 || sdx::layout::fourier_layout(elements, true).lines == 0) return nullptr;
  Exprs shape = x->shape;
  const auto middle = shape.begin() + axis;
  const Expr outer = idx::product(Exprs(shape.begin(), middle)),
             inner = idx::product(Exprs(middle + 1, shape.end() - 1));
  Value* y = routine(g, tensor::reshape(g, x, {outer, *middle, inner, f.components}), f);
  *middle = f.bins();
  shape.back() = f.out_components();
  return tensor::reshape(g, y, shape);
}

void dft_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  c.require(x->rank() >= 2, "an input of rank {}", x->rank());
  std::int64_t given = c.opset() >= 20 ? -2 : c.attr("axis", 1);
  if (c.opset() >= 20 && c.has(2)) {
    const std::vector<std::int64_t> axes = c.const_ints(c.in(2), "the axis");
    c.require(axes.size() == 1, "{} axes are given", axes.size());
    given = axes[0];
  }
  const int axis = c.axis(given, x->rank());
  c.require(axis < x->rank() - 1, "the axis of the complex components can't be transformed");
  Transform f;
  f.inverse = c.attr("inverse", 0) != 0;
  f.onesided = c.attr("onesided", 0) != 0;
  f.components = components_of(c, x);
  const Expr d = x->shape[static_cast<std::size_t>(axis)];
  f.length = c.has(1) ? int_input(c, 1, true) : f.to_real() ? (d - 1) * 2 : d;
  g.add_check(compare(Op::kGt, f.length, 0), "a transform of length 0");
  if (Value* y = columns(g, x, axis, f)) return c.out(0, y);
  // [others, axis, components]
  std::vector<int> perm, back(static_cast<std::size_t>(x->rank()));
  for (int k = 0; k + 1 < x->rank(); ++k)
    if (k != axis) perm.push_back(k);
  perm.push_back(axis);
  perm.push_back(x->rank() - 1);
  Value* v = tensor::transpose(g, x, perm);
  Exprs shape = v->shape;
  const Expr others = idx::product(Exprs(shape.begin(), shape.end() - 2));
  v = fourier(g, tensor::reshape(g, v, {others, d, f.components}), f);
  shape[shape.size() - 2] = f.bins();
  shape[shape.size() - 1] = f.out_components();
  for (std::size_t k = 0; k < perm.size(); ++k) back[static_cast<std::size_t>(perm[k])] = static_cast<int>(k);
  c.out(0, tensor::cast(g, tensor::transpose(g, tensor::reshape(g, v, shape), back), x->dtype));
}

void stft_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *window = c.opt(2);
  c.require(x->rank() == 3, "a signal of rank {}, not 3", x->rank());
  c.require(!window || window->rank() == 1, "a window that is not a vector");
  const Expr step = int_input(c, 1, true), signal = x->shape[1];
  g.add_check(compare(Op::kGt, step, 0), "frame_step is 0");
  const Expr length = c.has(3) ? int_input(c, 3, true) : window ? window->shape[0] : signal;
  if (window) g.add_check(compare(Op::kEq, length, window->shape[0]), "frame_length and window differ in length");
  g.add_check(logical_and(compare(Op::kGt, length, 0), compare(Op::kLe, length, signal)),
              "the frames are empty or longer than the signal");
  const Expr frames = idx::floordiv(signal - length, step) + 1;
  Transform f;
  f.length = length;
  f.onesided = c.attr("onesided", 1) != 0;
  f.components = components_of(c, x);
  const DType w = tensor::accumulator(x->dtype);
  Value* cut = tensor::generate(g, {x->shape[0], frames, length, f.components}, [&](const Exprs& i) {
    const Expr e = cast(tensor::at(x, {i[0], i[1] * step + i[2], i[3]}), w);
    return window ? mul(e, cast(tensor::at(window, {i[2]}), w)) : e;
  });
  Value* v = fourier(g, tensor::reshape(g, cut, {x->shape[0] * frames, length, f.components}), f);
  c.out(0, tensor::cast(g, tensor::reshape(g, v, {x->shape[0], frames, f.bins(), 2}), x->dtype));
}

}  // namespace

void register_spectral(OpRegistry& r) {
  const char* notes = "fast if the length is known when compiling and has only small prime factors";
  r.add({.name = "DFT", .lower = dft_op, .dtypes = "floats", .notes = notes});
  r.add({.name = "STFT", .lower = stft_op, .dtypes = "floats", .notes = notes});
}

}  // namespace sardonyx
