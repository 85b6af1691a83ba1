// Distance between a computed float and an exact value, in units of the last place (ulp).
#pragma once
#include "kernels.h"

using Exact = long double;  // 11 bits more than f64 on x86-64, 60 on aarch64

template <class F>
struct Format;
template <>
struct Format<f32> {
  static constexpr int mantissa = 23, smallest = -126, largest = 127;
  using Bits = u32;
};
template <>
struct Format<f64> {
  static constexpr int mantissa = 52, smallest = -1022, largest = 1023;
  using Bits = u64;
};

inline constexpr double kWrongClass = 1e30;  // NaN, infinity or the sign of zero differ

/// Distance of `got` from `want` in ulps of want; infinity counts as 2^(largest + 1). Where |want| < floor the ulp of
/// floor is the unit.
template <class F>
double ulps(F got, Exact want, Exact floor = 0) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : kWrongClass;
  const F rounded = static_cast<F>(want);
  if (got == 0 && rounded == 0) return std::signbit(got) == std::signbit(want) ? 0 : kWrongClass;
  const Exact top = std::ldexp(Exact(1), Format<F>::largest + 1);
  if (std::isinf(want)) return got == rounded ? 0 : kWrongClass;
  const auto bound = [&](Exact x) { return x > top ? top : x < -top ? -top : x; };
  const Exact unit = std::fmax(std::fabs(want), floor);
  int e = unit == 0 ? Format<F>::smallest : std::ilogb(unit);
  e = e < Format<F>::smallest ? Format<F>::smallest : e > Format<F>::largest ? Format<F>::largest : e;
  return static_cast<double>(std::fabs(bound(got) - bound(want)) / std::ldexp(Exact(1), e - Format<F>::mantissa));
}
