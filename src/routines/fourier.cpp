// fourier: discrete Fourier transforms along one dim.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "host/parallel.h"
#include "kernels/layout_fourier.h"
#include "routines/clones.h"
#include "routines/elements.h"
#include "routines/families.h"
#include "routines/fourier_passes.h"
#include "routines/fourier_side_by_side.h"

namespace sardonyx::routines {
namespace {

using namespace dft;

constexpr std::int64_t kMostSamples = 2 * sdx::layout::kMostFourier;

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

// Numbers of kLanes lines, of which `lanes` exist. Number k * components + part of a line is at k * step + part, lines
// are `line` apart.
template <typename T>
struct LinesOf {
  T* first;
  std::int64_t lanes, line, step, components;

  T* lane0(std::int64_t number) const { return first + number / components * step + number % components; }
  bool in_rows() const {
    return std::is_same_v<std::remove_const_t<T>, float> && lanes == kLanes && step == components;
  }
  bool in_columns() const { return std::is_same_v<std::remove_const_t<T>, float> && lanes == kLanes && line == 1; }
};

// Lanes of the first `count` numbers.
template <typename T>
void read_lines(const LinesOf<const T>& x, std::int64_t count, Vector* to) {
  std::int64_t k = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (x.in_rows()) {
      k = count / kLanes * kLanes;
      transpose_rows(x.first, x.line, k, to);
    } else if (x.in_columns()) {
      for (; k < count; ++k) std::memcpy(to + k, x.lane0(k), sizeof(Vector));
    }
  }
  for (; k < count; ++k) {
    const T* from = x.lane0(k);
    float lanes[kLanes] = {};
    for (std::int64_t lane = 0; lane < x.lanes; ++lane) lanes[lane] = number(from[lane * x.line]);
    std::memcpy(to + k, lanes, sizeof lanes);
  }
}

template <typename T>
void write_lines(const Vector* from, std::int64_t count, const LinesOf<T>& y) {
  std::int64_t k = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (y.in_rows()) {
      k = count / kLanes * kLanes;
      transpose_columns(from, k, y.line, y.first);
    } else if (y.in_columns()) {
      for (; k < count; ++k) std::memcpy(y.lane0(k), from + k, sizeof(Vector));
    }
  }
  for (; k < count; ++k) {
    T* to = y.lane0(k);
    float lanes[kLanes];
    std::memcpy(lanes, from + k, sizeof lanes);
    for (std::int64_t lane = 0; lane < y.lanes; ++lane)
      to[lane * y.line] = static_cast<T>(static_cast<compute_of<T>>(lanes[lane]));
  }
}

// kLanes lines at a time: rows, or columns that lie side by side.
template <typename T>
void transform_side_by_side(Call& c, const Transform& f, const Tables& tables) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const std::int64_t inner = x.dims[2], parts = y.dims[3], have = std::min(x.dims[1], f.inputs());
  const bool rows = inner == 1;
  const std::int64_t beside = rows ? x.dims[0] : inner, blocks = (beside + kLanes - 1) / kLanes;
  const auto lines_of = [&](auto* first, std::int64_t samples, std::int64_t components, std::int64_t unit) {
    const std::int64_t outer = unit / blocks, lane = unit % blocks * kLanes, size = samples * inner * components;
    const std::int64_t line = rows ? size : components;
    return LinesOf{first + outer * size + lane * line, std::min(kLanes, beside - lane), line, inner * components,
                   components};
  };
  host::parallel_for((rows ? 1 : x.dims[0]) * blocks, 1 + 65536 / (f.length * kLanes), c.threads,
                     [&](std::int64_t begin, std::int64_t end) {
                       SideBySide work(f, tables);
                       for (std::int64_t unit = begin; unit < end; ++unit) {
                         read_lines(lines_of(x.as<const T>(), x.dims[1], f.components, unit), have * f.components,
                                    work.numbers());
                         write_lines(work.run(have), f.bins() * parts, lines_of(y.as<T>(), f.bins(), parts, unit));
                       }
                     });
}

// Whether lines are transformed side by side: enough of them for most lanes, and so short that they stay in the L2
// cache.
bool side_by_side(const Tensor& x, const Transform& f) {
  constexpr std::int64_t kLeastLines = 8, kMostElements = 1024;
  return std::max(x.dims[0], x.dims[2]) >= kLeastLines && (x.dims[2] == 1 || x.dims[2] >= kLeastLines) &&
         f.elements() <= kMostElements;
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
    if constexpr (std::is_same_v<compute_of<T>, float>) {
      if (side_by_side(x, f))
        transform_side_by_side<T>(c, f, *tables);
      else
        transform_lines<T>(c, f, *tables);
    }
  });
}

}  // namespace

void register_fourier(Table& t) { t["fourier"] = fourier; }

}  // namespace sardonyx::routines
