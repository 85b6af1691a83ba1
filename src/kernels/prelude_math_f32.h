// Elementary functions of f32. Accuracy is measured in tests/cpp/kernels/ (see docs there): at most 2 ulp everywhere.
//
// Each function reduces its argument with elementary identities, named where they are used, and evaluates a polynomial
// whose coefficients tools/fit_polynomials.py derives (the table's name stands beside it). Argument reduction by
// subtracting a constant in two parts: Cody and Waite, "Software Manual for the Elementary Functions".
#pragma once
#include "prelude_basic.h"

namespace sdx {
namespace detail {

/// c0 + z (c1 + z (...)), Horner's rule.
template <class F>
SDX_FN F poly(F, F c) {
  return c;
}
template <class F, class... C>
SDX_FN F poly(F z, F c0, C... c) {
  return fma(z, poly(z, c...), c0);
}

/// n / d for finite n and 2^-100 < d < 2^100 (quotient not below 2^-100): at most 1 ulp. On a GPU shorter than the
/// correctly rounded division: one Newton step on the hardware's reciprocal.
SDX_FN f32 quotient(f32 n, f32 d) {
#if SDX_GPU
#if defined(__AMDGCN__)
  const f32 r = __builtin_amdgcn_rcpf(d);
#else
  const f32 r = __nvvm_rcp_approx_ftz_f(d);
#endif
  const f32 q = n * r;
  return fma(fma(-d, q, n), r, q);
#else
  return n / d;
#endif
}
SDX_FN f64 quotient(f64 n, f64 d) { return n / d; }

inline constexpr f32 kLog2e32 = 0x1.715476p+0f;
// log 2 in two parts; the first has 15 bits, so that its product with an exponent is exact.
inline constexpr f32 kLn2Hi32 = 0x1.62e4p-1f, kLn2Lo32 = 0x1.7f7d1cp-20f;
inline constexpr f32 kHalfPiHi32 = 0x1.921fb6p+0f, kHalfPiLo32 = -0x1.777a5cp-25f;
// Adding it rounds |x| < 2^22 to the nearest integer, which then stands in the low bits.
inline constexpr f32 kRound32 = 0x1.8p23f;

// x * 2^n for |n| <= 252, in two steps, so that subnormal results round once and overflow gives infinity.
SDX_FN f32 scale(f32 x, i32 n) {
  const i32 a = n >> 1, b = n - a;
  return x * bit_cast<f32>(u32(a + 127) << 23) * bit_cast<f32>(u32(b + 127) << 23);
}

// exp(x) = (1 + r + r^2 q(r)) 2^n, x = n log 2 + r; x within [-104, 89]. Table exp24.
struct ExpParts32 {
  f32 r, tail;  // exp(r) - 1 = r + tail
  f32 nf;
  i32 n;
};
SDX_FN ExpParts32 exp_parts(f32 x) {
  const f32 t = x * kLog2e32 + kRound32;
  const f32 n = t - kRound32;
  const f32 r = fma(n, -kLn2Lo32, fma(n, -kLn2Hi32, x));
  const f32 q = poly(r, 0x1p-1f, 0x1.5554acp-3f, 0x1.5554fp-5f, 0x1.1229fcp-7f, 0x1.6d436ep-10f);
  return {r, r * r * q, n, bit_cast<i32>(t) - bit_cast<i32>(kRound32)};
}
// exp(x) 2^extra
SDX_FN f32 exp_scaled(f32 x, i32 extra) {
  const ExpParts32 p = exp_parts(clamp(x, -105.0f, 90.0f));
  return scale(1.0f + (p.r + p.tail), p.n + extra);
}

// log(1 + f) - f for 1 + f in [sqrt 1/2, sqrt 2]. Table log24.
SDX_FN f32 log1p_tail(f32 f) {
  const f32 p = poly(f, 0x1.555564p-2f, -0x1.00023cp-2f, 0x1.99986p-3f, -0x1.54679p-3f, 0x1.236438p-3f, -0x1.0e6826p-3f,
                     0x1.025beap-3f, -0x1.2d3636p-4f);
  const f32 f2 = f * f;
  return fma(f2 * f, p, -0.5f * f2);
}

// x = 2^k (1 + f), 1 + f in [sqrt 1/2, sqrt 2]; x positive, normal and finite.
struct LogParts32 {
  f32 f;
  i32 k;
};
SDX_FN LogParts32 log_parts_normal(f32 x) {
  constexpr u32 root = 0x3f3504f3;  // sqrt 1/2
  const u32 b = bit_cast<u32>(x) - root;
  return {bit_cast<f32>((b & 0x7fffffu) + root) - 1.0f, i32(b) >> 23};
}
// The same for subnormal x as well.
SDX_FN LogParts32 log_parts(f32 x) {
  const bool tiny = x < 0x1p-126f;
  const LogParts32 p = log_parts_normal(tiny ? x * 0x1p24f : x);
  return {p.f, p.k - (tiny ? 24 : 0)};
}
// k log 2 + log(1 + f)
SDX_FN f32 log_sum(f32 f, i32 k) {
  const f32 kf = f32(k);
  return fma(kf, kLn2Hi32, f + fma(kf, kLn2Lo32, log1p_tail(f)));
}
// Logarithms' results outside the positive numbers.
SDX_FN f32 log_special(f32 x, f32 r) {
  r = x < inf32() ? r : x;
  r = x < 0.0f ? nan32() : r;
  return x == 0.0f ? -inf32() : r;
}

// --- short f64 kernels, for f32 results that need a few bits more than f32 on the way ---

// log(2^k (1 + f)) / log 2 or natural, relative error 2^-40. log(1 + f) = 2 s + s^3 p(s^2), s = f / (2 + f). Table
// log_short.
SDX_FN f64 log1pf_short(f64 f) {
  const f64 s = f / (2.0 + f), z = s * s;
  const f64 p = poly(z, 0x1.55555556233dep-1, 0x1.9999969f0ea85p-2, 0x1.249415750994fp-2, 0x1.c62a14e4931f1p-3,
                     0x1.91225f900594dp-3);
  return fma(s * z, p, 2.0 * s);
}
struct LogParts64 {
  f64 m, k;
};
SDX_FN LogParts64 log_parts_short(f64 x) {
  constexpr u64 root = 0x3fe6a09e667f3bcd;  // sqrt 1/2
  const u64 b = bit_cast<u64>(x) - root;
  const i32 k = i32(b >> 32) >> 20;
  return {bit_cast<f64>((b & 0xfffffffffffffu) + root), f64(k)};
}
// log2(x) for x an f32 >= 0 (all are normal in f64).
SDX_FN f64 log2_short(f64 x) {
  const LogParts64 p = log_parts_short(x);
  const f64 r = fma(log1pf_short(p.m - 1.0), 0x1.71547652b82fep+0, p.k);
  return x == 0.0 ? -inf64() : x < inf64() ? r : x;
}
// log(1 + u) for u > -1 of the size of an f32 or its square.
SDX_FN f64 log1p_short(f64 u) {
  const LogParts64 p = log_parts_short(1.0 + u);
  const f64 scale = bit_cast<f64>(u64(1023 - i64(i32(p.k))) << 52);
  const f64 f = u * scale + (scale - 1.0);
  const f64 r = fma(p.k, 0x1.62e42fefa39efp-1, log1pf_short(f));
  return u == -1.0 ? -inf64() : u < inf64() ? r : u;
}
// 2^x, relative error 2^-34; clamps to what f32 can tell apart. Table exp2_short.
SDX_FN f64 exp2_short(f64 x) {
  constexpr f64 rounder = 0x1.8p52;
  const f64 y = clamp(x, -200.0, 200.0);
  const f64 t = y + rounder, r = y - (t - rounder);
  const f64 q = poly(r, 0x1.62e42fef84c0bp-1, 0x1.ebfbe07dbb4d2p-3, 0x1.c6b08dd7200b9p-5, 0x1.3b29eec9651ebp-7,
                     0x1.5d87457deecf7p-10, 0x1.445febb5b19c9p-13, 0x1.00dc657d19ccdp-16);
  return fma(r, q, 1.0) * bit_cast<f64>((bit_cast<u64>(t) + 1023) << 52);
}

}  // namespace detail

// --- exponentials and logarithms ---

#if SDX_GPU
// The hardware's 2^x (at most 2 ulp); what x / log 2 lost in rounding is multiplied in afterwards.
SDX_FN f32 exp2(f32 x) { return __builtin_elementwise_exp2(x); }
SDX_FN f32 exp(f32 x) {
  const f32 c = clamp(x, -105.0f, 90.0f);
  const f32 t = c * detail::kLog2e32;
  const f32 lost = fma(c, 0x1.4ae0cp-26f, fma(c, detail::kLog2e32, -t)) * 0x1.62e43p-1f;
  const f32 y = exp2(t);
  return y < inf32() ? fma(y, lost, y) : y;
}
#else
SDX_FN f32 exp(f32 x) { return detail::exp_scaled(x, 0); }

/// 2^x. Table exp2_24.
SDX_FN f32 exp2(f32 x) {
  const f32 y = clamp(x, -151.0f, 129.0f);
  const f32 t = y + detail::kRound32, r = y - (t - detail::kRound32);
  const f32 q =
      detail::poly(r, 0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6af72p-5f, 0x1.3b2a48p-7f, 0x1.5f0dd6p-10f, 0x1.4424b4p-13f);
  return detail::scale(fma(r, q, 1.0f), bit_cast<i32>(t) - bit_cast<i32>(detail::kRound32));
}
#endif

/// exp(x) - 1 = ((exp(r) - 1) + (1 - 2^-n)) 2^n.
SDX_FN f32 expm1(f32 x) {
  const detail::ExpParts32 p = detail::exp_parts(clamp(x, -20.0f, 90.0f));
  const f32 shift = 1.0f - bit_cast<f32>(u32(127 - clamp(p.n, -30, 126)) << 23);
  return copysign(detail::scale((p.r + shift) + p.tail, p.n), x);
}

SDX_FN f32 log(f32 x) {
  const detail::LogParts32 p = detail::log_parts(x);
  return detail::log_special(x, detail::log_sum(p.f, p.k));
}

SDX_FN f32 log2(f32 x) {
  const detail::LogParts32 p = detail::log_parts(x);
  // log2(e) = 1 + 0.4427, so that the largest term is exact.
  const f32 tail = detail::log1p_tail(p.f);
  const f32 low = fma(tail, detail::kLog2e32, p.f * 0x1.c551d9p-2f);
  return detail::log_special(x, f32(p.k) + (p.f + low));
}

/// log(x) / log(10).
SDX_FN f32 log10(f32 x) {
  return x < inf32() && x > 0.0f ? f32(detail::log2_short(x) * 0x1.34413509f79ffp-2) : detail::log_special(x, x);
}

/// log(1 + x); 1 + f = (1 + x) 2^-k, of which f = x 2^-k + (2^-k - 1) loses nothing. From 2^25 on 1 + x is x.
SDX_FN f32 log1p(f32 x) {
  const f32 u = 1.0f + x;
  const detail::LogParts32 p = detail::log_parts_normal(u);
  const f32 scale = bit_cast<f32>(u32(127 - p.k) << 23);
  const f32 f = p.k > 25 ? p.f : x * scale + (scale - 1.0f);
  return copysign(detail::log_special(u, detail::log_sum(f, p.k)), x);
}

SDX_FN f32 rsqrt(f32 x) { return 1.0f / sqrt(x); }

/// x^y with all special cases of IEEE 754 pow: 2^(y log2 |x|) evaluated in f64.
SDX_FN f32 pow(f32 x, f32 y) {
  const f64 product = f64(y) * detail::log2_short(f64(fabs(x)));
  f32 r = f32(detail::exp2_short(product));
  const bool integer = trunc(y) == y;
  const f32 half = y * 0.5f;
  const bool odd = integer && fabs(y) < 0x1p24f && trunc(half) != half;
  r = x < 0.0f && !integer && x != -inf32() ? nan32() : r;
  r = signbit(x) && odd ? -r : r;
  r = x == -1.0f && isinf(y) ? 1.0f : r;
  r = x != x || y != y ? nan32() : r;
  return x == 1.0f || y == 0.0f ? 1.0f : r;
}

// --- trigonometric functions ---

namespace detail {

// x = quadrant pi/2 + (hi + lo), |hi| <= pi/4, for finite x >= 0.
struct Reduced32 {
  f32 hi, lo;
  u32 quadrant;
};

// For any size of x: x is an integer m times a power of two, 2/pi a string of bits, of which those that make multiples
// of 4 with x are skipped and the next 96 taken; their product with m is the angle in quadrants, in fixed point.
// Source: Payne and Hanek, "Radian reduction for trigonometric functions" (1983).
SDX_FN Reduced32 reduce_quadrant_large(f32 x) {
  // 26 zeros, then 2/pi.
  constexpr u32 t0 = 0x28, t1 = 0xbe60db93, t2 = 0x91054a7f, t3 = 0x09d5f47d, t4 = 0x4d377036, t5 = 0xd8a5664f,
                t6 = 0x10e4107f, t7 = 0x9458eaf7;
  const u32 b = bit_cast<u32>(x);
  const u32 m = (b & 0x7fffffu) | 0x800000u;
  const i32 start = i32(b >> 23) - 126;  // of x = 1/2 it is 0
  const u32 at = u32(start < 0 ? 0 : start), word = at >> 5, shift = at & 31;
  const bool s4 = (word & 4) != 0, s2 = (word & 2) != 0, s1 = (word & 1) != 0;
  const u32 a0 = s4 ? t4 : t0, a1 = s4 ? t5 : t1, a2 = s4 ? t6 : t2, a3 = s4 ? t7 : t3;
  const u32 b0 = s2 ? a2 : a0, b1 = s2 ? a3 : a1, b2 = s2 ? t4 : a2, b3 = s2 ? t5 : a3, b4 = s2 ? t6 : t4;
  const u32 w0 = s1 ? b1 : b0, w1 = s1 ? b2 : b1, w2 = s1 ? b3 : b2, w3 = s1 ? b4 : b3;
  const u32 c0 = (w0 << shift) | ((w1 >> 1) >> (31 - shift));
  const u32 c1 = (w1 << shift) | ((w2 >> 1) >> (31 - shift));
  const u32 c2 = (w2 << shift) | ((w3 >> 1) >> (31 - shift));
  const u64 turn = (u64(m * c0) << 32) + u64(m) * c1 + ((u64(m) * c2) >> 32);  // 2^64 is a whole turn
  const i64 fraction = i64(turn << 2);                                         // of a quadrant, nearest one
  const f64 r = f64(fraction) * 0x1.921fb54442d18p-64;
  const f32 hi = f32(r);
  return {hi, f32(r - f64(hi)), u32(turn >> 62) + u32(fraction < 0)};
}

SDX_FN Reduced32 reduce_quadrant(f32 x) {
#if SDX_GPU
  // Here a branch is cheaper than what it skips. pi/2 in three parts; the first difference is exact.
  if (x < 16384.0f) {
    const f32 n = round(x * 0x1.45f306p-1f);
    const f32 a = fma(n, -kHalfPiHi32, x);
    const f32 hi = fma(n, -kHalfPiLo32, a);
    const f32 lo = fma(n, -kHalfPiLo32, a - hi);
    return {hi, fma(n, -0x1.ee59dap-50f, lo), u32(i32(n))};
  }
  return reduce_quadrant_large(x);
#else
  const Reduced32 r = reduce_quadrant_large(x);
  const bool small = x < 0.78f;
  return {small ? x : r.hi, small ? 0.0f : r.lo, small ? 0u : r.quadrant};
#endif
}

// A value and what its rounding lost. Sum of a large and a small number: Dekker (1971).
struct Pair32 {
  f32 hi, lo;
};
SDX_FN Pair32 fast_two_sum(f32 large, f32 small) {
  const f32 sum = large + small;
  return {sum, small - (sum - large)};
}

// sin and cos of hi + lo, |hi| <= pi/4. Tables sin24, cos24.
SDX_FN Pair32 sin_kernel(f32 hi, f32 lo) {
  const f32 z = hi * hi;
  const f32 p = poly(z, -0x1.555556p-3f, 0x1.111166p-7f, -0x1.a04a76p-13f, 0x1.7864f8p-19f);
  return fast_two_sum(hi, fma(hi * z, p, lo));
}
SDX_FN Pair32 cos_kernel(f32 hi, f32 lo) {
  const f32 z = hi * hi;
  const f32 p = poly(z, 0x1.55554ap-5f, -0x1.6c0c2cp-10f, 0x1.99e9d4p-16f);
  // 1 - z/2 loses bits that (1 - h) - z/2 brings back.
  const f32 h = 1.0f - 0.5f * z;
  return fast_two_sum(h, ((1.0f - h) - 0.5f * z) + fma(z * z, p, -hi * lo));
}

}  // namespace detail

SDX_FN f32 sin(f32 x) {
  const f32 a = fabs(x);
  const detail::Reduced32 r = detail::reduce_quadrant(a);
  const f32 s = detail::sin_kernel(r.hi, r.lo).hi, c = detail::cos_kernel(r.hi, r.lo).hi;
  const f32 y = (r.quadrant & 1) != 0 ? c : s;
  const u32 flip = ((r.quadrant & 2) << 30) ^ (bit_cast<u32>(x) & 0x80000000u);
  return a < inf32() ? bit_cast<f32>(bit_cast<u32>(y) ^ flip) : nan32();
}

SDX_FN f32 cos(f32 x) {
  const f32 a = fabs(x);
  const detail::Reduced32 r = detail::reduce_quadrant(a);
  const f32 s = detail::sin_kernel(r.hi, r.lo).hi, c = detail::cos_kernel(r.hi, r.lo).hi;
  const f32 y = (r.quadrant & 1) != 0 ? s : c;
  const u32 flip = ((r.quadrant + 1) & 2) << 30;
  return a < inf32() ? bit_cast<f32>(bit_cast<u32>(y) ^ flip) : nan32();
}

SDX_FN f32 tan(f32 x) {
  const f32 a = fabs(x);
  const detail::Reduced32 r = detail::reduce_quadrant(a);
  const detail::Pair32 s = detail::sin_kernel(r.hi, r.lo), c = detail::cos_kernel(r.hi, r.lo);
  const bool odd = (r.quadrant & 1) != 0;
  const f32 n = odd ? -c.hi : s.hi, d = odd ? s.hi : c.hi;
  const f32 q = n / d;
  const f32 y = q + ((odd ? -c.lo : s.lo) - q * (odd ? s.lo : c.lo)) / d;
  return a < inf32() ? bit_cast<f32>(bit_cast<u32>(y) ^ (bit_cast<u32>(x) & 0x80000000u)) : nan32();
}

namespace detail {
// asin(s) / s - 1 for s^2 = z <= 1/4. Table asin24.
SDX_FN f32 asin_tail(f32 z) {
  return z * poly(z, 0x1.5555cap-3f, 0x1.33019ep-4f, 0x1.7482dep-5f, 0x1.8c06f6p-6f, 0x1.59841ep-5f);
}
// What s = sqrt(z) lacks: (z - s^2) / 2s.
SDX_FN f32 sqrt_error(f32 z, f32 s) {
#if SDX_HAS_FMA
  const f32 e = fma(-s, s, z);
#else
  const f32 e = f32(f64(z) - f64(s) * f64(s));
#endif
  return s > 0.0f ? e / (s + s) : 0.0f;
}
}  // namespace detail

/// For |x| > 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)). NaN for |x| > 1.
SDX_FN f32 asin(f32 x) {
  const f32 a = fabs(x);
  const bool large = a > 0.5f;
  const f32 z = large ? 0.5f * (1.0f - a) : a * a;
  const f32 s = large ? sqrt(z) : a;
  const f32 tail = s * detail::asin_tail(z);
  const f32 minus = 2.0f * (tail + detail::sqrt_error(z, s)) - detail::kHalfPiLo32;
  const detail::Pair32 d = detail::fast_two_sum(detail::kHalfPiHi32, -2.0f * s);
  return copysign(large ? d.hi + (d.lo - minus) : s + tail, x);
}

SDX_FN f32 acos(f32 x) {
  const f32 a = fabs(x);
  const bool large = a > 0.5f;
  const f32 z = large ? 0.5f * (1.0f - a) : a * a;
  const f32 s = large ? sqrt(z) : x;
  const f32 tail = s * detail::asin_tail(z);
  const f32 p = s + (tail + (large ? detail::sqrt_error(z, s) : 0.0f));
  const f32 middle = detail::kHalfPiHi32 - (x - (detail::kHalfPiLo32 - tail));
  const f32 far = 2.0f * (detail::kHalfPiHi32 - (p - detail::kHalfPiLo32));
  return large ? (x > 0.0f ? 2.0f * p : far) : middle;
}

/// Above tan(pi/8) by atan(x) = pi/4 + atan((x - 1) / (x + 1)), above tan(3 pi/8) by pi/2 - atan(1/x). Table atan24.
SDX_FN f32 atan(f32 x) {
  const f32 a = fabs(x);
  const bool far = a > 0x1.3504f4p+1f, near = a <= 0x1.a8279ap-2f;
  const f32 n = far ? -1.0f : near ? a : a - 1.0f;
  const f32 d = far ? a : near ? 1.0f : a + 1.0f;
  const f32 hi = far ? detail::kHalfPiHi32 : near ? 0.0f : 0.5f * detail::kHalfPiHi32;
  const f32 lo = far ? detail::kHalfPiLo32 : near ? 0.0f : 0.5f * detail::kHalfPiLo32;
  const f32 t = n / d, z = t * t;
  const f32 p = detail::poly(z, -0x1.555548p-2f, 0x1.999126p-3f, -0x1.23ae1cp-3f, 0x1.b19052p-4f, -0x1.f04748p-5f);
  return copysign(hi + (t + fma(t * z, p, lo)), x);
}

// --- hyperbolic functions ---

/// Below 1 a polynomial (table sinh24), above (e^x - e^-x) / 2.
SDX_FN f32 sinh(f32 x) {
  const f32 a = fabs(x), z = x * x;
  const f32 p = detail::poly(z, 0x1.555556p-3f, 0x1.1110ecp-7f, 0x1.a01adp-13f, 0x1.76ac86p-19f);
  const f32 h = detail::exp_scaled(a, -1);
  return a < 1.0f ? fma(x * z, p, x) : copysign(h - 0.25f / h, x);
}

SDX_FN f32 cosh(f32 x) {
  const f32 h = detail::exp_scaled(fabs(x), -1);
  return h + 0.25f / h;
}

/// Below 0.625 a polynomial (table tanh24), above 1 - 2 / (e^2x + 1).
SDX_FN f32 tanh(f32 x) {
  const f32 a = fabs(x), z = x * x;
  const f32 p = detail::poly(z, -0x1.555532p-2f, 0x1.110708p-3f, -0x1.b8395ep-5f, 0x1.521744p-6f, -0x1.75a99p-8f);
  const f32 far = 1.0f - detail::quotient(2.0f, exp(a > 20.0f ? 40.0f : a + a) + 1.0f);
  return copysign(a < 0.625f ? fma(x * z, p, x) : far, x);
}

/// log(|x| + sqrt(x^2 + 1)), in f64.
SDX_FN f32 asinh(f32 x) {
  const f64 a = f64(fabs(x));
  return copysign(f32(detail::log1p_short(a + (sqrt(1.0 + a * a) - 1.0))), x);
}
/// log(x + sqrt(x^2 - 1)), in f64. NaN for x < 1.
SDX_FN f32 acosh(f32 x) {
  const f64 d = f64(x) - 1.0;
  const f32 r = f32(detail::log1p_short(d + sqrt(d * (f64(x) + 1.0))));
  return x < 1.0f ? nan32() : r;
}
/// log((1 + x) / (1 - x)) / 2, in f64. NaN for |x| > 1.
SDX_FN f32 atanh(f32 x) {
  const f64 a = f64(fabs(x));
  const f32 r = f32(0.5 * detail::log1p_short((a + a) / (1.0 - a)));
  return copysign(a > 1.0 ? nan32() : r, x);
}

// --- error function ---

namespace detail {
// erfc(u) for u >= 0, relative error a few 2^-24 times 1 + u^2: exp(-u^2) p(v) / (u + 1.5), v = (u - 1.5) / (u + 1.5).
// Table erfcx24.
SDX_FN f32 erfc_positive(f32 u) {
  const f32 c = u > 100.0f ? 100.0f : u;  // where the exponential is 0
  const f32 w = quotient(1.0f, c + 1.5f), v = (c - 1.5f) * w;
  const f32 p =
      poly(v, 0x1.edf488p-1f, -0x1.0404eep-1f, 0x1.35c00cp-4f, 0x1.87563ap-5f, -0x1.0a7ec4p-7f, -0x1.3697ep-7f,
           -0x1.860a98p-11f, 0x1.e1c64ap-10f, 0x1.8698c4p-11f, -0x1.7822bp-13f, -0x1.33bae8p-13f);
  return exp(-c * c) * (w * p);
}
}  // namespace detail

/// Up to 1 a polynomial (table erf24), above 1 - exp(-p(x)) (table erf_tail24).
SDX_FN f32 erf(f32 x) {
  const f32 a = fabs(x), z = x * x;
  const f32 near = fma(x,
                       detail::poly(z, 0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2d5p-4f, -0x1.b7fe8ep-6f, 0x1.542deep-8f,
                                    -0x1.a5099ep-11f, 0x1.4c2f4cp-14f),
                       x);
  const f32 c = a > 4.0f ? 4.0f : a;
  const f32 p = detail::poly(c, -0x1.aa3228p-13f, 0x1.21313p+0f, 0x1.441e9ap-1f, 0x1.bcf85p-4f, -0x1.9fb9c4p-6f,
                             0x1.18c2aap-8f, -0x1.e74d4p-12f, 0x1.ac84bcp-16f, -0x1.246bfcp-22f);
  const f32 far = 1.0f - exp(-p);
  return a < 1.0f ? near : copysign(x != x ? x : far, x);
}

}  // namespace sdx
