// fourier: discrete Fourier transforms along one dim.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "host/parallel.h"
#include "kernels/layout_fourier.h"
#include "routines/clones.h"
#include "routines/elements.h"
#include "routines/families.h"

namespace sardonyx::routines {
namespace {

constexpr std::int64_t kLanes = 16;  // butterflies that are computed together, one in each lane of a vector
constexpr double kTurn = 2 * M_PI;
constexpr std::int64_t kMostSamples = 2 * sdx::layout::kMostFourier;

using Complex = std::array<float, 2>;

// Complex numbers, one in each lane.
// Of any alignment, because operator new gives 16 bytes.
using Vector = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));
struct Lanes {
  Vector re, im;
};

struct Transform {
  std::int64_t length;
  bool inverse, onesided;
  int components;  // of the input

  std::int64_t bins() const { return onesided && !inverse ? length / 2 + 1 : length; }
  bool to_real() const { return inverse && onesided; }
  bool from_real() const { return !inverse && components == 1; }
  // Real samples of an even length are the real and imaginary parts of half as many complex ones.
  bool half() const { return (to_real() || from_real()) && length % 2 == 0; }
  std::int64_t elements() const { return half() ? length / 2 : length; }
  std::int64_t inputs() const { return to_real() ? length / 2 + 1 : length; }
};

Complex turn_of(std::int64_t k, std::int64_t n, bool inverse) {
  const double angle = kTurn * static_cast<double>(k) / static_cast<double>(n);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(inverse ? std::sin(angle) : -std::sin(angle))};
}

Complex operator*(Complex a, Complex b) { return {a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]}; }
Complex operator+(Complex a, Complex b) { return {a[0] + b[0], a[1] + b[1]}; }
Complex operator-(Complex a, Complex b) { return {a[0] - b[0], a[1] - b[1]}; }
Complex conjugate(Complex a) { return {a[0], -a[1]}; }

// One pass of a transform: after it, `done` times `radix` elements are transformed.
struct Pass {
  std::int64_t radix, done;
  std::vector<Complex> roots;  // e(j k / radix): [j, k]
  std::vector<float> turn_re,
      turn_im;  // e(at r / (done radix)): [r, at], `at` up to done and repeated, for whole vectors
};

// What depends on the length only.
struct Tables {
  std::vector<Pass> passes;
  std::vector<Complex> turns;  // e(k / length) for k up to half the length, where that is transformed

  explicit Tables(const Transform& f) {
    std::vector<std::int64_t> radices;
    std::int64_t n = f.elements();
    for (; n % 4 == 0; n /= 4) radices.push_back(4);
    for (std::int64_t r = 2; n > 1; ++r)
      for (; n % r == 0; n /= r) radices.push_back(r);
    // The largest first: fewer passes have results that are not next to each other.
    std::sort(radices.begin(), radices.end(), std::greater<>());
    std::int64_t done = 1;
    for (const std::int64_t r : radices) {
      passes.push_back(pass(r, done, f.inverse));
      done *= r;
    }
    if (f.half())
      for (std::int64_t k = 0; k <= f.elements(); ++k) turns.push_back(turn_of(k, f.length, f.inverse));
  }

 private:
  static Pass pass(std::int64_t radix, std::int64_t done, bool inverse) {
    Pass p{radix, done, {}, {}, {}};
    for (std::int64_t k = 0; k < radix * radix; ++k)
      p.roots.push_back(turn_of(k / radix * (k % radix) % radix, radix, inverse));
    for (std::int64_t r = 0; r < radix; ++r)
      for (std::int64_t at = 0; at < done + kLanes; ++at) {
        const Complex t = turn_of(at % done * r, done * radix, inverse);
        p.turn_re.push_back(t[0]), p.turn_im.push_back(t[1]);
      }
    return p;
  }
};

// Tables are kept, because those of long transforms take longer than a transform.
std::shared_ptr<const Tables> tables_of(const Transform& f) {
  constexpr std::size_t kMost = 64;
  static std::mutex mutex;
  static std::map<std::array<std::int64_t, 4>, std::shared_ptr<const Tables>> known;
  const std::lock_guard lock(mutex);
  const std::array<std::int64_t, 4> key = {f.length, f.inverse, f.onesided, f.components};
  if (known.size() >= kMost && known.count(key) == 0) known.clear();
  std::shared_ptr<const Tables>& t = known[key];
  if (!t) t = std::make_shared<Tables>(f);
  return t;
}

[[gnu::always_inline]] inline void butterfly2(Lanes& a, Lanes& b) {
  const Vector re = a.re - b.re, im = a.im - b.im;
  a.re += b.re, a.im += b.im;
  b.re = re, b.im = im;
}

// The transform of 4 elements. quarter: 1 for inverse transforms, else -1.
[[gnu::always_inline]] inline void butterfly4(Lanes* x, float quarter) {
  butterfly2(x[0], x[2]);
  butterfly2(x[1], x[3]);
  const Vector re = x[3].im * -quarter;
  x[3].im = x[3].re * quarter;
  x[3].re = re;
  butterfly2(x[0], x[1]);
  butterfly2(x[2], x[3]);
  std::swap(x[1], x[2]);
}

// The transform of an odd number of elements: opposite ones share their products. y: as many, for intermediate results.
[[gnu::always_inline]] inline void butterfly_odd(Lanes* x, Lanes* y, const Complex* roots, std::int64_t radix) {
  const std::int64_t half = radix / 2;
  Lanes *sum = y, *difference = y + half;
  Lanes all = x[0];
  for (std::int64_t j = 0; j < half; ++j) {
    const Lanes &a = x[j + 1], &b = x[radix - 1 - j];
    sum[j].re = a.re + b.re, sum[j].im = a.im + b.im;
    difference[j].re = a.re - b.re, difference[j].im = a.im - b.im;
    all.re += sum[j].re, all.im += sum[j].im;
  }
  for (std::int64_t k = 1; k <= half; ++k) {
    Vector a_re = x[0].re, a_im = x[0].im, b_re{}, b_im{};
    for (std::int64_t j = 0; j < half; ++j) {
      const Complex w = roots[(j + 1) * radix + k];
      a_re += sum[j].re * w[0], a_im += sum[j].im * w[0];
      b_re -= difference[j].im * w[1], b_im += difference[j].re * w[1];
    }
    x[k].re = a_re + b_re, x[k].im = a_im + b_im;
    x[radix - k].re = a_re - b_re, x[radix - k].im = a_im - b_im;
  }
  x[0] = all;
}

// n complex numbers, the real parts first, with kLanes more that are not used.
struct Numbers {
  float *re, *im;
  Complex at(std::int64_t k) const { return {re[k], im[k]}; }
  void set(std::int64_t k, Complex z) const { re[k] = z[0], im[k] = z[1]; }
};

[[gnu::always_inline]] inline void get(const float* from, Vector& v) { std::memcpy(&v, from, sizeof v); }
[[gnu::always_inline]] inline void put(const Vector& v, float* to) { std::memcpy(to, &v, sizeof v); }

// Where a pass is: at butterfly j of `count`, whose place among those that are done is `at`.
struct Place {
  std::int64_t j, at, count;
};

// Element r of kLanes butterflies, times its factor.
[[gnu::always_inline]] inline void load(Numbers x, const Pass& p, const Place& i, std::int64_t r, Lanes& e) {
  const std::int64_t from = i.j + r * i.count, table = r * (p.done + kLanes) + i.at;
  get(x.re + from, e.re);
  get(x.im + from, e.im);
  if (p.done == 1 || r == 0) return;
  Vector re, im;
  get(p.turn_re.data() + table, re);
  get(p.turn_im.data() + table, im);
  const Vector product = e.re * re - e.im * im;
  e.im = e.re * im + e.im * re;
  e.re = product;
}

// Results of kLanes butterflies from number j on in the first pass.
template <std::int64_t Radix>
[[gnu::always_inline]] inline void interleave(const Lanes* e, Numbers y, std::int64_t j) {
  float *re = y.re + j * Radix, *im = y.im + j * Radix;
  for (std::int64_t l = 0; l < kLanes; ++l)
    for (std::int64_t r = 0; r < Radix; ++r) re[l * Radix + r] = e[r].re[l], im[l * Radix + r] = e[r].im[l];
}

// Results of kLanes butterflies, or of those before the last.
[[gnu::always_inline]] inline void store(const Lanes* e, const Pass& p, const Place& i, Numbers y) {
  const std::int64_t first = (i.j - i.at) * p.radix;
  if (i.at + kLanes <= p.done && i.j + kLanes <= i.count) {
    for (std::int64_t r = 0; r < p.radix; ++r) {
      put(e[r].re, y.re + first + i.at + r * p.done);
      put(e[r].im, y.im + first + i.at + r * p.done);
    }
    return;
  }
  if (p.done == 1 && i.j + kLanes <= i.count) {
    if (p.radix == 4) return interleave<4>(e, y, i.j);
    if (p.radix == 5) return interleave<5>(e, y, i.j);
  }
  const std::int64_t lanes = std::min(kLanes, i.count - i.j);
  std::int64_t to = first, at = i.at;
  for (std::int64_t l = 0; l < lanes; ++l) {
    for (std::int64_t r = 0; r < p.radix; ++r) y.set(to + at + r * p.done, {e[r].re[l], e[r].im[l]});
    if (++at == p.done) at = 0, to += p.done * p.radix;
  }
}

// Transforms x in passes whose results are in order (Stockham's form); y is as long. Returns where the results are.
SARDONYX_CLONES Numbers transform(Numbers x, Numbers y, std::int64_t n, const std::vector<Pass>& passes,
                                  std::vector<Lanes>& elements) {
  for (const Pass& p : passes) {
    Lanes* e = elements.data();
    for (Place i{0, 0, n / p.radix}; i.j < i.count; i.j += kLanes, i.at = (i.at + kLanes) % p.done) {
      for (std::int64_t r = 0; r < p.radix; ++r) load(x, p, i, r, e[r]);
      if (p.radix == 2)
        butterfly2(e[0], e[1]);
      else if (p.radix == 4)
        butterfly4(e, p.roots[5][1]);
      else if (p.radix == 3)
        butterfly_odd(e, e + 3, p.roots.data(), 3);
      else if (p.radix == 5)
        butterfly_odd(e, e + 5, p.roots.data(), 5);
      else
        butterfly_odd(e, e + p.radix, p.roots.data(), p.radix);
      store(e, p, i, y);
    }
    std::swap(x, y);
  }
  return x;
}

template <typename T>
float number(T x) {
  return static_cast<float>(static_cast<compute_of<T>>(x));
}

// The samples or bins of one transform, which are `step` numbers apart.
template <typename T>
struct Source {
  const T* x;
  std::int64_t have, step;
  int components;

  Complex at(std::int64_t k) const {
    if (k >= have) return {0, 0};
    const T* p = x + k * step * components;
    return {number(p[0]), components == 2 ? number(p[1]) : 0};
  }
  float real(std::int64_t k) const { return k < have ? number(x[k * step]) : 0; }
};

template <typename T>
void read(const Source<T>& x, const Transform& f, const std::vector<Complex>& turns, Numbers to) {
  // The bins of the mean and of alternating samples are real.
  const auto bin = [&](std::int64_t k) {
    const Complex z = x.at(k);
    return k == 0 || 2 * k == f.length ? Complex{z[0], 0} : z;
  };
  const std::int64_t n = f.elements();
  if (f.from_real() && f.half())
    for (std::int64_t k = 0; k < n; ++k) to.set(k, {x.real(2 * k), x.real(2 * k + 1)});
  else if (f.to_real() && f.half())
    for (std::int64_t k = 0; k < n; ++k) {
      const Complex a = bin(k), b = conjugate(bin(n - k)), odd = (a - b) * turns[static_cast<std::size_t>(k)];
      const Complex sum = a + b + Complex{-odd[1], odd[0]};
      to.set(k, {0.5F * sum[0], 0.5F * sum[1]});
    }
  else if (f.to_real())
    for (std::int64_t k = 0; k < n; ++k) to.set(k, 2 * k > f.length ? conjugate(bin(f.length - k)) : bin(k));
  else
    for (std::int64_t k = 0; k < n; ++k) to.set(k, x.at(k));
}

template <typename T>
void write(Numbers from, const Transform& f, const std::vector<Complex>& turns, T* y, std::int64_t step) {
  const std::int64_t n = f.elements();
  const float scale = f.inverse ? 1 / static_cast<float>(n) : 1;
  const auto real = [&](std::int64_t k, float v) {
    y[k * step] = static_cast<T>(static_cast<compute_of<T>>(v * scale));
  };
  const auto bin = [&](std::int64_t k, Complex z) {
    y[2 * k * step] = static_cast<T>(static_cast<compute_of<T>>(z[0] * scale));
    y[2 * k * step + 1] = static_cast<T>(static_cast<compute_of<T>>(z[1] * scale));
  };
  if (f.from_real() && f.half())
    for (std::int64_t k = 0; k < f.bins(); ++k) {
      const std::int64_t m = k <= n ? k : f.length - k;
      const Complex z = from.at(m == n ? 0 : m), o = conjugate(from.at(m == 0 ? 0 : n - m)), difference = z - o;
      const Complex odd = Complex{difference[1], -difference[0]} * turns[static_cast<std::size_t>(m)];
      const Complex x = {0.5F * (z[0] + o[0] + odd[0]), 0.5F * (z[1] + o[1] + odd[1])};
      bin(k, k <= n ? x : conjugate(x));
    }
  else if (f.to_real())
    for (std::int64_t k = 0; k < n; ++k) {
      real(f.half() ? 2 * k : k, from.re[k]);
      if (f.half()) real(2 * k + 1, from.im[k]);
    }
  else
    for (std::int64_t k = 0; k < f.bins(); ++k) bin(k, from.at(k));
}

template <typename T>
void transform_lines(Call& c, const Transform& f, const Tables& tables) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const std::int64_t lines = x.dims[0] * x.dims[2], inner = x.dims[2], n = f.elements(), stride = n + kLanes;
  const std::int64_t largest = tables.passes.empty() ? 1 : tables.passes.front().radix;
  host::parallel_for(lines, 1 + 65536 / f.length, c.threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> memory(static_cast<std::size_t>(4 * stride));
    std::vector<Lanes> elements(static_cast<std::size_t>(2 * std::max<std::int64_t>(largest, 4)));
    const Numbers a{memory.data(), memory.data() + stride}, b{a.im + stride, a.im + 2 * stride};
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t outer = line / inner, column = line % inner, parts = y.dims[3];
      const Source<T> from{x.as<T>() + (outer * x.dims[1] * inner + column) * f.components,
                           std::min(x.dims[1], f.inputs()), inner, f.components};
      read(from, f, tables.turns, a);
      write(transform(a, b, n, tables.passes, elements), f, tables.turns,
            y.as<T>() + (outer * f.bins() * inner + column) * parts, inner);
    }
  });
}

// fourier
//   inputs:  x [outer, samples, inner, 1 (real) or 2 (complex)], float32, float16 or bfloat16
//   outputs: y [outer, bins, inner, components] of the same dtype, computed in float32
//   params:  length, inverse, onesided: as of ONNX's DFT, with `length` whole and known. Missing samples are 0. bins is
//            length / 2 + 1 if onesided and not inverse, else length; components is 1 if onesided and inverse, else 2.
void fourier(Call& c) {
  check(c.inputs.size() == 1 && c.outputs.size() == 1 && c.params.size() == 3 && c.inputs[0].dims.size() == 4,
        "fourier: {} inputs, {} params", c.inputs.size(), c.params.size());
  const Tensor& x = c.inputs[0];
  check(c.params[0] >= 1 && c.params[0] <= kMostSamples && (x.dims[3] == 1 || x.dims[3] == 2),
        "fourier: {} samples of {} components", c.params[0], x.dims[3]);
  const Transform f{c.params[0], c.params[1] != 0, c.params[2] != 0, static_cast<int>(x.dims[3])};
  const std::vector<std::int64_t> dims = {x.dims[0], f.bins(), x.dims[2], f.to_real() ? 1 : 2};
  check(c.outputs[0].dims == dims && c.outputs[0].dtype == x.dtype, "fourier: a result of another shape or type");
  const std::shared_ptr<const Tables> tables = tables_of(f);
  dispatch(x.dtype, "a Fourier transform", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<compute_of<T>, float>) transform_lines<T>(c, f, *tables);
  });
}

}  // namespace

void register_fourier(Table& t) { t["fourier"] = fourier; }

}  // namespace sardonyx::routines
