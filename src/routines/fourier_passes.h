// Passes of Fourier transforms: their factors, and butterflies in each lane of a vector.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace sardonyx::routines::dft {

inline constexpr std::int64_t kLanes = 16;  ///< of a vector: butterflies, or vectors, that are transformed together
inline constexpr double kTurn = 2 * M_PI;

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

inline Complex turn_of(std::int64_t k, std::int64_t n, bool inverse) {
  const double angle = kTurn * static_cast<double>(k) / static_cast<double>(n);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(inverse ? std::sin(angle) : -std::sin(angle))};
}

inline Complex operator*(Complex a, Complex b) { return {a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]}; }
inline Complex operator+(Complex a, Complex b) { return {a[0] + b[0], a[1] + b[1]}; }
inline Complex operator-(Complex a, Complex b) { return {a[0] - b[0], a[1] - b[1]}; }
inline Complex conjugate(Complex a) { return {a[0], -a[1]}; }

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

}  // namespace sardonyx::routines::dft
