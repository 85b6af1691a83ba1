// CUDA's mathematical functions, by the prelude's, with the same results on every target. The fast forms (__expf) are
// the chip's instructions.
#pragma once
#include "custom_half.h"
#include "custom_std.h"

namespace sdx::custom {

SDX_FN f32 exp10(f32 x) { return f32(sdx::exp(f64(x) * 2.30258509299404568402)); }
SDX_FN f64 exp10(f64 x) { return sdx::pow(10.0, x); }
template <class F>
SDX_FN F cbrt(F x) {
  if (x == 0 || sdx::isinf(x) || x != x) return x;
  const f64 root = sdx::pow(sdx::fabs(f64(x)), 1.0 / 3.0);
  const f64 better = root - (root * root * root - sdx::fabs(f64(x))) / (3 * root * root);
  return F(x < 0 ? -better : better);
}
template <class F>
SDX_FN F atan2(F y, F x) {
  constexpr F pi = F(3.14159265358979323846);
  if (x != x || y != y) return x + y;
  const F ax = sdx::fabs(x), ay = sdx::fabs(y);
  const F least = ax < ay ? ax : ay, most = ax < ay ? ay : ax;
  F a = most == 0 ? F(0) : least == most ? pi / 4 : sdx::atan(least / most);
  if (ay > ax) a = pi / 2 - a;
  if (sdx::signbit(x)) a = pi - a;
  return sdx::copysign(a, y);
}
SDX_FN f32 hypot(f32 x, f32 y) {
  if (sdx::isinf(x) || sdx::isinf(y)) return sdx::inf32();
  return f32(sdx::sqrt(f64(x) * x + f64(y) * y));
}
SDX_FN f64 hypot(f64 x, f64 y) {
  if (sdx::isinf(x) || sdx::isinf(y)) return sdx::inf64();
  const f64 ax = sdx::fabs(x), ay = sdx::fabs(y), most = ax < ay ? ay : ax, least = ax < ay ? ax : ay;
  return most == 0 ? most : most * sdx::sqrt(1 + (least / most) * (least / most));
}
SDX_FN f32 root_of(f64 x) { return f32(sdx::sqrt(x)); }
/// x as a fraction in [0.5, 1) and a power of two.
template <class F>
SDX_FN F fraction(F x, int* exponent) {
  const f64 wide = f64(x);
  *exponent = 0;
  if (wide == 0 || wide - wide != 0) return x;
  const f64 normal = sdx::fabs(wide) < 0x1p-1022 ? wide * 0x1p54 : wide;
  const u64 bits = bit_cast<u64>(normal);
  *exponent = int(bits >> 52 & 0x7ff) - 1022 - (normal == wide ? 0 : 54);
  return F(bit_cast<f64>((bits & 0x800fffffffffffffu) | 0x3fe0000000000000u));
}
/// The next number after x in the direction of y.
template <class F, class Bits>
SDX_FN F next_after(F x, F y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  if (x == 0) return sdx::copysign(bit_cast<F>(Bits(1)), y);
  return bit_cast<F>(Bits(bit_cast<Bits>(x) + ((x < y) == (x > 0) ? Bits(1) : Bits(-1))));
}
/// To the nearest integer, ties away from zero.
template <class F>
SDX_FN F round_away(F x) {
  const F t = sdx::trunc(x);
  return sdx::fabs(x - t) >= F(0.5) ? t + sdx::copysign(F(1), x) : sdx::copysign(t, x);
}
template <class F>
SDX_FN F erfc(F x) {
  return F(1.0 - sdx::erf(f64(x)));
}
template <>
SDX_FN f64 erfc(f64 x) {
  if (x != x) return x;
  if (sdx::fabs(x) < 0.5) return 1.0 - sdx::erf(x);
  const f64 tail = sdx::detail::erfc_positive(sdx::fabs(x));
  return x < 0 ? 2.0 - tail : tail;
}
template <class F>
SDX_FN F scaled(F x, int n) {  // in two steps, so that both factors are normal
  n = n > 2200 ? 2200 : n < -2200 ? -2200 : n;
  f64 y = f64(x);
  for (int k = 0; k < 3; ++k) {
    const int part = n > 1000 ? 1000 : n < -1000 ? -1000 : n;
    y *= bit_cast<f64>(u64(part + 1023) << 52);
    n -= part;
  }
  return F(y);
}
/// The larger (smaller) of two numbers; of a number and NaN the number.
template <class F>
SDX_FN F larger(F x, F y) {
#if SDX_CUSTOM_GPU
  if constexpr (sizeof(F) == 4) return __builtin_fmaxf(x, y);
  return F(__builtin_fmax(x, y));
#else
  return x != x ? y : (y > x ? y : x);
#endif
}
template <class F>
SDX_FN F smaller(F x, F y) {
#if SDX_CUSTOM_GPU
  if constexpr (sizeof(F) == 4) return __builtin_fminf(x, y);
  return F(__builtin_fmin(x, y));
#else
  return x != x ? y : (y < x ? y : x);
#endif
}

}  // namespace sdx::custom

// clang-format off
// name(double), namef(float), and name(float) as C++ has it.
#define SDX_MATH1(name, expression)                                        \
  SDX_FN double name(double x) { using F = double; return F(expression); } \
  SDX_FN float name(float x) { using F = float; return F(expression); }    \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>      \
  SDX_FN double name(T x) { return name(double(x)); }                      \
  SDX_FN float name##f(float x) { using F = float; return F(expression); }
#define SDX_MATH2(name, expression)                                                  \
  SDX_FN double name(double x, double y) { using F = double; return F(expression); } \
  SDX_FN float name(float x, float y) { using F = float; return F(expression); }     \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>                \
  SDX_FN double name(double x, T y) { return name(x, double(y)); }                   \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>                \
  SDX_FN float name(float x, T y) { return name(x, float(y)); }                      \
  template <class T, class U, class = std::enable_if_t<std::is_integral_v<T>>, class = std::enable_if_t<std::is_arithmetic_v<U>>> \
  SDX_FN double name(T x, U y) { return name(double(x), double(y)); }                \
  SDX_FN float name##f(float x, float y) { using F = float; return F(expression); }
SDX_MATH1(exp, sdx::exp(x)) SDX_MATH1(exp2, sdx::exp2(x)) SDX_MATH1(exp10, sdx::custom::exp10(x)) SDX_MATH1(expm1, sdx::expm1(x))
SDX_MATH1(log, sdx::log(x)) SDX_MATH1(log2, sdx::log2(x)) SDX_MATH1(log10, sdx::log10(x)) SDX_MATH1(log1p, sdx::log1p(x))
SDX_MATH1(sin, sdx::sin(x)) SDX_MATH1(cos, sdx::cos(x)) SDX_MATH1(tan, sdx::tan(x))
SDX_MATH1(asin, sdx::asin(x)) SDX_MATH1(acos, sdx::acos(x)) SDX_MATH1(atan, sdx::atan(x))
SDX_MATH1(sinh, sdx::sinh(x)) SDX_MATH1(cosh, sdx::cosh(x)) SDX_MATH1(tanh, sdx::tanh(x))
SDX_MATH1(asinh, sdx::asinh(x)) SDX_MATH1(acosh, sdx::acosh(x)) SDX_MATH1(atanh, sdx::atanh(x))
SDX_MATH1(erf, sdx::erf(x)) SDX_MATH1(erfc, sdx::custom::erfc<F>(x)) SDX_MATH1(normcdf, F(0.5) * sdx::custom::erfc<F>(x * F(-0.70710678118654752440)))
SDX_MATH1(sqrt, sdx::sqrt(x)) SDX_MATH1(rsqrt, sdx::rsqrt(x)) SDX_MATH1(cbrt, sdx::custom::cbrt(x)) SDX_MATH1(rcbrt, F(1) / sdx::custom::cbrt(x))
SDX_MATH1(floor, sdx::floor(x)) SDX_MATH1(ceil, sdx::ceil(x)) SDX_MATH1(trunc, sdx::trunc(x))
SDX_MATH1(rint, sdx::round(x)) SDX_MATH1(nearbyint, sdx::round(x)) SDX_MATH1(round, sdx::custom::round_away(x))
SDX_MATH1(fabs, sdx::fabs(x)) SDX_MATH1(logb, x == 0 ? -F(sdx::inf32()) : sdx::floor(sdx::log2(sdx::fabs(x))))
SDX_MATH1(sinpi, sdx::sin(F(3.14159265358979323846) * (x - 2 * sdx::floor(x / 2)))) SDX_MATH1(cospi, sdx::cos(F(3.14159265358979323846) * (x - 2 * sdx::floor(x / 2))))
SDX_MATH2(pow, sdx::pow(x, y)) SDX_MATH2(fmod, sdx::fmod(x, y)) SDX_MATH2(atan2, sdx::custom::atan2(x, y)) SDX_MATH2(hypot, sdx::custom::hypot(x, y))
SDX_MATH2(fmax, sdx::custom::larger(x, y)) SDX_MATH2(fmin, sdx::custom::smaller(x, y)) SDX_MATH2(copysign, sdx::copysign(x, y))
SDX_MATH2(fdim, x > y ? x - y : x != x || y != y ? x + y : F(0)) SDX_MATH2(remainder, x - y * sdx::round(x / y))
#undef SDX_MATH1
#undef SDX_MATH2
    // clang-format on
    SDX_FN float rhypotf(float x, float y) {
  return 1.0f / sdx::custom::hypot(x, y);
}
SDX_FN float fdividef(float x, float y) { return x / y; }
SDX_FN float fmaf(float x, float y, float z) { return sdx::fma(x, y, z); }
SDX_FN float fma(float x, float y, float z) { return sdx::fma(x, y, z); }
SDX_FN double fma(double x, double y, double z) { return sdx::fma(x, y, z); }
SDX_FN float ldexpf(float x, int n) { return sdx::custom::scaled(x, n); }
SDX_FN double ldexp(double x, int n) { return sdx::custom::scaled(x, n); }
SDX_FN float scalbnf(float x, int n) { return sdx::custom::scaled(x, n); }
SDX_FN float scalblnf(float x, long n) { return sdx::custom::scaled(x, n > 4000 ? 4000 : n < -4000 ? -4000 : int(n)); }
SDX_FN double rhypot(double x, double y) { return 1.0 / sdx::custom::hypot(x, y); }
SDX_FN float norm3df(float x, float y, float z) {
  return sdx::custom::root_of(double(x) * x + double(y) * y + double(z) * z);
}
SDX_FN float norm4df(float x, float y, float z, float w) {
  return sdx::custom::root_of(double(x) * x + double(y) * y + double(z) * z + double(w) * w);
}
SDX_FN float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
SDX_FN float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
SDX_FN float nanf(const char*) { return __builtin_nanf(""); }
SDX_FN double nan(const char*) { return __builtin_nan(""); }
SDX_FN long lrintf(float x) { return long(sdx::round(x)); }
SDX_FN long lrint(double x) { return long(sdx::round(x)); }
SDX_FN long long llrintf(float x) { return (long long)sdx::round(x); }
SDX_FN long lroundf(float x) { return long(sdx::custom::round_away(x)); }
SDX_FN long lround(double x) { return long(sdx::custom::round_away(x)); }
SDX_FN long long llrint(double x) { return (long long)sdx::round(x); }
SDX_FN long long llroundf(float x) { return (long long)sdx::custom::round_away(x); }
SDX_FN long long llround(double x) { return (long long)sdx::custom::round_away(x); }
SDX_FN float frexpf(float x, int* exponent) { return sdx::custom::fraction(x, exponent); }
SDX_FN float frexp(float x, int* exponent) { return sdx::custom::fraction(x, exponent); }
SDX_FN double frexp(double x, int* exponent) { return sdx::custom::fraction(x, exponent); }
SDX_FN float nextafterf(float x, float y) { return sdx::custom::next_after<float, sdx::u32>(x, y); }
SDX_FN double nextafter(double x, double y) { return sdx::custom::next_after<double, sdx::u64>(x, y); }
SDX_FN int ilogbf(float x) {
  int exponent;
  sdx::custom::fraction(x, &exponent);
  return x == 0 ? INT_MIN : x - x != 0 ? INT_MAX : exponent - 1;
}
SDX_FN double modf(double x, double* whole) {
  *whole = sdx::trunc(x);
  return sdx::isinf(x) ? sdx::copysign(0.0, x) : sdx::copysign(x - *whole, x);
}
SDX_FN float modff(float x, float* whole) {
  *whole = sdx::trunc(x);
  return sdx::isinf(x) ? sdx::copysign(0.0f, x) : sdx::copysign(x - *whole, x);
}
SDX_FN void sincosf(float x, float* s, float* c) {
  *s = sdx::sin(x);
  *c = sdx::cos(x);
}
SDX_FN void sincos(double x, double* s, double* c) {
  *s = sdx::sin(x);
  *c = sdx::cos(x);
}
SDX_FN void sincospif(float x, float* s, float* c) {
  *s = sinpif(x);
  *c = cospif(x);
}
// clang-format off
SDX_FN bool isnan(float x) { return x != x; }
SDX_FN bool isnan(double x) { return x != x; }
SDX_FN bool isinf(float x) { return sdx::isinf(x); }
SDX_FN bool isinf(double x) { return sdx::isinf(x); }
SDX_FN bool isfinite(float x) { return x - x == 0; }
SDX_FN bool isfinite(double x) { return x - x == 0; }
SDX_FN bool signbit(float x) { return sdx::signbit(x); }
SDX_FN bool signbit(double x) { return sdx::signbit(x); }
SDX_FN int abs(int x) { return x < 0 ? -x : x; }
SDX_FN long abs(long x) { return x < 0 ? -x : x; }
SDX_FN long long abs(long long x) { return x < 0 ? -x : x; }
SDX_FN float abs(float x) { return sdx::fabs(x); }
SDX_FN double abs(double x) { return sdx::fabs(x); }
SDX_FN long labs(long x) { return x < 0 ? -x : x; }
SDX_FN long long llabs(long long x) { return x < 0 ? -x : x; }
// clang-format on

/// CUDA's min and max: of numbers of any two types; floats as fmin and fmax.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
SDX_FN constexpr auto min(A a, B b) {
  using T = decltype(a + b);
  if constexpr (std::is_floating_point_v<T>)
    return sdx::custom::smaller(T(a), T(b));
  else
    return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
SDX_FN constexpr auto max(A a, B b) {
  using T = decltype(a + b);
  if constexpr (std::is_floating_point_v<T>)
    return sdx::custom::larger(T(a), T(b));
  else
    return T(a) < T(b) ? T(b) : T(a);
}
SDX_FN unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
SDX_FN unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }

// --- fast forms
SDX_FN float __expf(float x) { return sdx::fast_exp2(x * 0x1.715476p+0f); }
SDX_FN float __exp2f(float x) { return sdx::fast_exp2(x); }
SDX_FN float __exp10f(float x) { return sdx::fast_exp2(x * 0x1.a934fp+1f); }
SDX_FN float __logf(float x) { return sdx::fast_log2(x) * 0x1.62e43p-1f; }
SDX_FN float __log2f(float x) { return sdx::fast_log2(x); }
SDX_FN float __log10f(float x) { return sdx::fast_log2(x) * 0x1.344136p-2f; }
SDX_FN float __powf(float x, float y) { return sdx::fast_exp2(y * sdx::fast_log2(x)); }
SDX_FN float __sinf(float x) { return sdx::sin(x); }
SDX_FN float __cosf(float x) { return sdx::cos(x); }
SDX_FN float __tanf(float x) { return sdx::tan(x); }
SDX_FN float __tanhf(float x) { return sdx::tanh(x); }
SDX_FN void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
SDX_FN float __fdividef(float x, float y) { return x * sdx::fast_rcp(y); }
SDX_FN float __frcp_rn(float x) { return 1.0f / x; }
SDX_FN float __fsqrt_rn(float x) { return sdx::sqrt(x); }
SDX_FN float __frsqrt_rn(float x) { return sdx::rsqrt(x); }
SDX_FN float __fdiv_rn(float x, float y) { return x / y; }
SDX_FN float __fmaf_rn(float x, float y, float z) { return sdx::fma(x, y, z); }
SDX_FN double __fma_rn(double x, double y, double z) { return sdx::fma(x, y, z); }
SDX_FN double __ddiv_rn(double x, double y) { return x / y; }
SDX_FN double __drcp_rn(double x) { return 1.0 / x; }
SDX_FN double __dsqrt_rn(double x) { return sdx::sqrt(x); }
/// Clamps to [0, 1]; NaN gives 0.
SDX_FN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
// Never fused with a neighbouring operation.
SDX_FN float __fadd_rn(float x, float y) {
#pragma clang fp contract(off)
  return x + y;
}
SDX_FN float __fsub_rn(float x, float y) {
#pragma clang fp contract(off)
  return x - y;
}
SDX_FN float __fmul_rn(float x, float y) {
#pragma clang fp contract(off)
  return x * y;
}
SDX_FN double __dadd_rn(double x, double y) {
#pragma clang fp contract(off)
  return x + y;
}
SDX_FN double __dsub_rn(double x, double y) {
#pragma clang fp contract(off)
  return x - y;
}
SDX_FN double __dmul_rn(double x, double y) {
#pragma clang fp contract(off)
  return x * y;
}

namespace std {
// clang-format off
using ::abs; using ::acos; using ::acosf; using ::acosh; using ::asin; using ::asinf; using ::asinh; using ::atan;
using ::atan2; using ::atan2f; using ::atanf; using ::atanh; using ::cbrt; using ::ceil; using ::ceilf;
using ::copysign; using ::cos; using ::cosf; using ::cosh; using ::coshf; using ::erf; using ::erfc; using ::erfcf;
using ::erff; using ::exp; using ::exp2; using ::exp2f; using ::expf; using ::expm1; using ::expm1f; using ::fabs;
using ::fabsf; using ::fdim; using ::floor; using ::floorf; using ::fma; using ::fmaf; using ::fmax; using ::fmaxf;
using ::fmin; using ::fminf; using ::fmod; using ::fmodf; using ::frexp; using ::hypot; using ::isfinite;
using ::isinf; using ::isnan; using ::ldexp; using ::log; using ::log10; using ::log10f; using ::log1p;
using ::log1pf; using ::log2; using ::log2f; using ::logb; using ::logf; using ::lrint; using ::lround;
using ::modf; using ::nearbyint; using ::nextafter; using ::pow; using ::powf; using ::remainder; using ::rint;
using ::rintf; using ::round; using ::roundf; using ::signbit; using ::sin; using ::sinf; using ::sinh;
using ::sinhf; using ::sqrt; using ::sqrtf; using ::tan; using ::tanf; using ::tanh; using ::tanhf; using ::trunc;
using ::truncf;
// clang-format on
}  // namespace std
