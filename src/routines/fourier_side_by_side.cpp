// See fourier_side_by_side.h.
#include "routines/fourier_side_by_side.h"

#include <cstring>

#include "routines/clones.h"

namespace sardonyx::routines::dft {
namespace {

// Alternating elements of the lower halves of two rows, and of their upper halves.
[[gnu::always_inline]] inline void interleave(const Vector& a, const Vector& b, Vector& low, Vector& high) {
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Each round interleaves rows whose numbers differ in the highest bit, which rotates the bits of an element's position
// by one.
[[gnu::always_inline]] inline void transpose(Vector* rows) {
  for (int round = 1; round < kLanes; round *= 2) {
    Vector next[kLanes];
    for (int k = 0; k < kLanes / 2; ++k) interleave(rows[k], rows[k + kLanes / 2], next[2 * k], next[2 * k + 1]);
    std::memcpy(rows, next, sizeof next);
  }
}

// The butterflies of a pass, with Radix elements (0: any number).
template <std::int64_t Radix>
[[gnu::always_inline]] inline void pass_of(const Pass& p, const Lanes* x, Lanes* y, std::int64_t n, Lanes* elements) {
  const std::int64_t radix = Radix ? Radix : p.radix, count = n / radix;
  Lanes own[Radix ? 2 * Radix : 1];
  Lanes* e = Radix ? own : elements;
  for (std::int64_t j = 0, at = 0; j < count; ++j, at = at + 1 == p.done ? 0 : at + 1) {
    for (std::int64_t r = 0; r < radix; ++r) e[r] = x[j + r * count];
    for (std::int64_t r = 1; r < radix && p.done > 1; ++r) {
      const auto t = static_cast<std::size_t>(r * (p.done + kLanes) + at);
      const float re = p.turn_re[t], im = p.turn_im[t];
      e[r] = {e[r].re * re - e[r].im * im, e[r].re * im + e[r].im * re};
    }
    if constexpr (Radix == 2)
      butterfly2(e[0], e[1]);
    else if constexpr (Radix == 4)
      butterfly4(e, p.roots[5][1]);
    else
      butterfly_odd(e, e + radix, p.roots.data(), radix);
    Lanes* to = y + (j - at) * radix + at;
    for (std::int64_t r = 0; r < radix; ++r) to[r * p.done] = e[r];
  }
}

// Returns where the results are: x or y.
SARDONYX_CLONES Lanes* transform(Lanes* x, Lanes* y, std::int64_t n, const std::vector<Pass>& passes, Lanes* elements) {
  for (const Pass& p : passes) {
    if (p.radix == 2)
      pass_of<2>(p, x, y, n, elements);
    else if (p.radix == 3)
      pass_of<3>(p, x, y, n, elements);
    else if (p.radix == 4)
      pass_of<4>(p, x, y, n, elements);
    else if (p.radix == 5)
      pass_of<5>(p, x, y, n, elements);
    else
      pass_of<0>(p, x, y, n, elements);
    std::swap(x, y);
  }
  return x;
}

[[gnu::always_inline]] inline Lanes conjugate(const Lanes& a) { return {a.re, -a.im}; }
[[gnu::always_inline]] inline Lanes times(const Lanes& a, Complex b) {
  return {a.re * b[0] - a.im * b[1], a.re * b[1] + a.im * b[0]};
}

// The samples or bins of lines, of which there are `have`.
struct Given {
  const Vector* x;
  std::int64_t have, length;
  int components;

  [[gnu::always_inline]] Lanes number(std::int64_t k) const {
    if (k >= have) return {Vector{}, Vector{}};
    return {x[k * components], components == 2 ? x[k * components + 1] : Vector{}};
  }
  // The bins of the mean and of alternating samples are real.
  [[gnu::always_inline]] Lanes bin(std::int64_t k) const {
    Lanes z = number(k);
    if (k == 0 || 2 * k == length) z.im = Vector{};
    return z;
  }
};

// The complex numbers that are transformed.
SARDONYX_CLONES void arrange(const Transform& f, const std::vector<Complex>& turns, const Given& x, Lanes* to) {
  const std::int64_t n = f.elements();
  for (std::int64_t k = 0; k < n; ++k) {
    if (!f.to_real()) {
      to[k] = x.number(k);
    } else if (!f.half()) {
      to[k] = 2 * k > f.length ? conjugate(x.bin(f.length - k)) : x.bin(k);
    } else {
      const Lanes a = x.bin(k), b = conjugate(x.bin(n - k));
      const Lanes odd = times({a.re - b.re, a.im - b.im}, turns[static_cast<std::size_t>(k)]);
      to[k] = {0.5F * ((a.re + b.re) - odd.im), 0.5F * ((a.im + b.im) + odd.re)};
    }
  }
}

// The bins of real samples, of which z are the transformed pairs.
SARDONYX_CLONES void bins_of_pairs(const Transform& f, const std::vector<Complex>& turns, const Lanes* z, Lanes* to) {
  const std::int64_t n = f.elements();
  for (std::int64_t k = 0; k < f.bins(); ++k) {
    const std::int64_t m = k <= n ? k : f.length - k;
    const Lanes &a = z[m == n ? 0 : m], b = conjugate(z[m == 0 ? 0 : n - m]);
    const Lanes odd = times({a.im - b.im, -(a.re - b.re)}, turns[static_cast<std::size_t>(m)]);
    const Lanes x = {0.5F * ((a.re + b.re) + odd.re), 0.5F * ((a.im + b.im) + odd.im)};
    to[k] = k <= n ? x : conjugate(x);
  }
}

SARDONYX_CLONES void scale(Vector* x, std::int64_t count, float by) {
  for (std::int64_t k = 0; k < count; ++k) x[k] *= by;
}

}  // namespace

SARDONYX_CLONES void transpose_rows(const float* from, std::int64_t row, std::int64_t count, Vector* to) {
  for (std::int64_t k = 0; k < count; k += kLanes) {
    Vector rows[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) std::memcpy(rows + i, from + i * row + k, sizeof(Vector));
    transpose(rows);
    std::memcpy(to + k, rows, sizeof rows);
  }
}

SARDONYX_CLONES void transpose_columns(const Vector* from, std::int64_t count, std::int64_t row, float* to) {
  for (std::int64_t k = 0; k < count; k += kLanes) {
    Vector rows[kLanes];
    std::memcpy(rows, from + k, sizeof rows);
    transpose(rows);
    for (std::int64_t i = 0; i < kLanes; ++i) std::memcpy(to + i * row + k, rows + i, sizeof(Vector));
  }
}

SideBySide::SideBySide(const Transform& f, const Tables& tables)
    : f_(f),
      tables_(tables),
      a_(static_cast<std::size_t>(f.length + 1)),
      b_(a_.size()),
      elements_(tables.passes.empty() ? 1 : static_cast<std::size_t>(2 * tables.passes.front().radix)) {}

const Vector* SideBySide::run(std::int64_t have) {
  const std::int64_t n = f_.elements();
  Lanes *x = a_.data(), *y = b_.data();
  // Pairs of real samples, and complex numbers, are in order already.
  const std::int64_t given = have * f_.components, needed = 2 * n;
  if (!f_.to_real() && (f_.from_real() ? f_.half() : f_.components == 2)) {
    for (std::int64_t k = given; k < needed; ++k) numbers()[k] = Vector{};
  } else {
    arrange(f_, tables_.turns, {numbers(), have, f_.length, f_.components}, y);
    std::swap(x, y);
  }
  Lanes* z = transform(x, y, n, tables_.passes, elements_.data());
  if (f_.from_real() && f_.half()) {
    Lanes* bins = z == x ? y : x;
    bins_of_pairs(f_, tables_.turns, z, bins);
    return &bins->re;
  }
  if (f_.inverse) scale(&z->re, 2 * n, 1 / static_cast<float>(n));
  if (!f_.to_real() || f_.half()) return &z->re;
  for (std::int64_t k = 0; k < n; ++k) (&z->re)[k] = z[k].re;
  return &z->re;
}

}  // namespace sardonyx::routines::dft
