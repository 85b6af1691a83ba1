// Small binary floats by their definitions: a table of every code's value, and rounding by searching the table. Shares
// no code with src/kernels/.
#pragma once
#include <algorithm>

#include "kernels.h"

/// A format with `exponent` and `mantissa` bits. infinities: the largest exponent means infinity and NaN, as in IEEE
/// 754; nan_code: the one magnitude that is NaN (E4M3FN); negative_zero_is_nan: the FNUZ formats.
struct SmallFloat {
  int exponent, mantissa, bias;
  bool infinities;
  int nan_code;
  bool negative_zero_is_nan;
  bool nan_exists;

  int sign_code() const { return 1 << (exponent + mantissa); }
  double magnitude(int code) const {
    const int e = code >> mantissa, m = code & ((1 << mantissa) - 1);
    if (infinities && e == (1 << exponent) - 1) return m == 0 ? INFINITY : NAN;
    if (code == nan_code) return NAN;
    return e == 0 ? std::ldexp(m, 1 - bias - mantissa) : std::ldexp(m + (1 << mantissa), e - bias - mantissa);
  }
  double value(int code) const {
    if (negative_zero_is_nan && code == sign_code()) return NAN;
    return code >= sign_code() ? -magnitude(code - sign_code()) : magnitude(code);
  }
  /// The largest code of a finite magnitude.
  int largest() const {
    int code = sign_code() - 1;
    while (!std::isfinite(magnitude(code))) code--;
    return code;
  }
  /// Code nearest to x, ties to the even one. -1 stands for any NaN.
  int round(long double x, bool saturate) const {
    if (std::isnan(x)) return -1;
    const int sign = std::signbit(x) ? sign_code() : 0, top = largest();
    const long double a = std::fabs(x);
    int code;
    // Beyond the largest code the next one would stand an equal step away.
    const long double step = static_cast<long double>(magnitude(top)) - magnitude(top - 1);
    const long double limit = magnitude(top) + step / 2;
    if (a > limit || (a == limit && top % 2 == 1)) {
      if (saturate)
        code = top;
      else if (infinities)
        code = top + 1;
      else
        return -1;
    } else {
      int low = 0, high = top + 1;  // magnitude(low) <= a, magnitude(high) > a
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (magnitude(middle) <= a ? low : high) = middle;
      }
      code = low;
      if (low < top) {
        const long double half = (static_cast<long double>(magnitude(low)) + magnitude(low + 1)) / 2;
        if (a > half || (a == half && low % 2 == 1)) code = low + 1;
      }
    }
    if (negative_zero_is_nan && code == 0) return 0;
    return code + sign;
  }
};
