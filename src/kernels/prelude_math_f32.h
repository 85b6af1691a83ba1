// Elementary functions of f32: at most 2 ulp for arguments of any size, as tests/cpp/kernels/math_test.cpp measures for
// each. On a GPU exp and exp2 are the hardware's, which on NVIDIA adds up to 1.75 ulp to them and to functions that use
// them (measured on an H200: exp 2.4, exp2 2.1, sigmoid 4).
//
// Each function reduces its argument with elementary identities, named where they are used, and evaluates a polynomial
// whose coefficients tools/fit_polynomials.py derives (the comment names its table). Argument reduction by subtracting
// a constant in two parts: Cody and Waite, "Software Manual for the Elementary Functions".
#pragma once
#include "prelude_basic.h"

SDX_STRICT_BEGIN
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

// A value and what its rounding lost. A sum without error: Dekker (1971), with |large| >= |small| or large = 0.
struct Pair32 {
  f32 hi, lo;
};
SDX_FN Pair32 fast_two_sum(f32 large, f32 small) {
  const f32 sum = large + small;
  return {sum, small - (sum - large)};
}

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
// log(1 + u) for u > -1 of the size of an f32 or its square.
SDX_FN f64 log1p_short(f64 u) {
  const LogParts64 p = log_parts_short(1.0 + u);
  const f64 scale = bit_cast<f64>(u64(1023 - i64(i32(p.k))) << 52);
  const f64 f = u * scale + (scale - 1.0);
  const f64 r = fma(p.k, 0x1.62e42fefa39efp-1, log1pf_short(f));
  return u == -1.0 ? -inf64() : u < inf64() ? r : u;
}
// --- logarithms and powers with a few bits more than f32 ---

#if SDX_HAS_FMA
// In two f32, since many GPUs compute f64 at a 16th to a 64th of the rate. log2(x) for finite x > 0, relative error
// 2^-34: log2(1 + f) = s (c + z (p + z q(z))), s = f / (2 + f), z = s^2, with c and p in two parts. Table log2_pair.
SDX_FN Pair32 log2_pair(f32 x) {
  const LogParts32 a = log_parts(x);
  const f32 d = 2.0f + a.f, d_lo = a.f - (d - 2.0f);
  const f32 s = quotient(a.f, d), s_lo = quotient(fma(-s, d_lo, fma(-s, d, a.f)), d);
  const f32 z = s * s, z_lo = fma(2.0f * s, s_lo, fma(s, s, -z));
  const Pair32 u = fast_two_sum(0x1.ec709ep-1f, z * poly(z, 0x1.27771p-1f, 0x1.a5baa4p-2f, 0x1.5a09b2p-2f));
  const f32 w = z * u.hi, w_lo = fma(z, u.hi, -w) + fma(z_lo, u.hi, z * (u.lo - 0x1.e2fe02p-28f));
  const Pair32 v = fast_two_sum(0x1.715476p+1f, w);
  const f32 v_lo = v.lo + (w_lo + 0x1.4ae0cp-25f);
  const f32 hi = s * v.hi, lo = fma(s, v.hi, -hi) + fma(s_lo, v.hi, s * v_lo);
  const Pair32 sum = fast_two_sum(f32(a.k), hi);
  return {sum.hi, sum.lo + lo};
}
// x^y for x > 0, infinity and 0: 2^(y log2 x). Table exp2_24.
SDX_FN f32 power(f32 x, f32 y) {
  const bool finite = x > 0.0f && x < inf32();
  const Pair32 l = log2_pair(finite ? x : 1.0f);
  const f32 log = finite ? l.hi : x == 0.0f ? -inf32() : x, product = y * log;
  const bool within = fabs(product) < 200.0f;  // beyond, the result is 0 or infinity
  const f32 hi = within ? product : copysign(200.0f, product), lo = within ? fma(y, log, -product) + y * l.lo : 0.0f;
  const f32 t = hi + kRound32, r = (hi - (t - kRound32)) + lo;
  const f32 q = poly(r, 0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6af72p-5f, 0x1.3b2a48p-7f, 0x1.5f0dd6p-10f, 0x1.4424b4p-13f);
  return scale(fma(r, q, 1.0f), bit_cast<i32>(t) - bit_cast<i32>(kRound32));
}
/// log2(x) log(2) / log(10) for finite x > 0.
SDX_FN f32 log10_positive(f32 x) {
  const Pair32 l = log2_pair(x);
  return fma(l.hi, 0x1.344136p-2f, fma(l.hi, -0x1.ec10cp-27f, l.lo * 0x1.344136p-2f));
}
#else
// log2(x) for x an f32 >= 0 (all are normal in f64).
SDX_FN f64 log2_short(f64 x) {
  const LogParts64 p = log_parts_short(x);
  const f64 r = fma(log1pf_short(p.m - 1.0), 0x1.71547652b82fep+0, p.k);
  return x == 0.0 ? -inf64() : x < inf64() ? r : x;
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
SDX_FN f32 power(f32 x, f32 y) { return f32(exp2_short(f64(y) * log2_short(f64(x)))); }
SDX_FN f32 log10_positive(f32 x) { return f32(log2_short(x) * 0x1.34413509f79ffp-2); }
#endif

}  // namespace detail

// --- exponentials and logarithms ---

#if SDX_GPU
// The hardware's 2^x (AMD 1 ulp, NVIDIA 2); what x / log 2 lost in rounding is multiplied in afterwards.
SDX_FN f32 exp2(f32 x) { return __builtin_elementwise_exp2(x); }
#if defined(__AMDGCN__)
/// 2^n 2^r, where x / log 2 = n + r and r is within [-1/2, 1/2]: its instruction flushes what is below 2^-126.
SDX_FN f32 exp(f32 x) {
  const f32 c = __builtin_amdgcn_fmed3f(x, -105.0f, 90.0f);  // not a NaN
  const f32 n = __builtin_elementwise_roundeven(c * detail::kLog2e32);
  const f32 r = fma(c, 0x1.4ae0cp-26f, fma(c, detail::kLog2e32, -n));
  const f32 y = __builtin_amdgcn_ldexpf(__builtin_amdgcn_exp2f(r), i32(n));
  return x != x ? x : y;
}
#else
SDX_FN f32 exp(f32 x) {
  const f32 c = clamp(x, -105.0f, 90.0f);
  const f32 t = c * detail::kLog2e32;
  const f32 lost = fma(c, 0x1.4ae0cp-26f, fma(c, detail::kLog2e32, -t)) * 0x1.62e43p-1f;
  const f32 y = exp2(t);
  return y < inf32() ? fma(y, lost, y) : y;
}
#endif
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
SDX_FN f32 log10(f32 x) { return x < inf32() && x > 0.0f ? detail::log10_positive(x) : detail::log_special(x, x); }

/// log(1 + x); 1 + f = (1 + x) 2^-k, of which f = x 2^-k + (2^-k - 1) loses nothing. From 2^25 on 1 + x is x.
SDX_FN f32 log1p(f32 x) {
  const f32 u = 1.0f + x;
  const detail::LogParts32 p = detail::log_parts_normal(u);
  const f32 scale = bit_cast<f32>(u32(127 - p.k) << 23);
  const f32 f = p.k > 25 ? p.f : x * scale + (scale - 1.0f);
  return copysign(detail::log_special(u, detail::log_sum(f, p.k)), x);
}

SDX_FN f32 rsqrt(f32 x) { return 1.0f / sqrt(x); }

/// x^y with all special cases of IEEE 754 pow.
SDX_FN f32 pow(f32 x, f32 y) {
  f32 r = detail::power(fabs(x), y);
  const bool integer = trunc(y) == y;
  const f32 half = y * 0.5f;
  const bool odd = integer && fabs(y) < 0x1p24f && trunc(half) != half;
  r = x < 0.0f && !integer && x != -inf32() ? nan32() : r;
  r = signbit(x) && odd ? -r : r;
  r = x == -1.0f && isinf(y) ? 1.0f : r;
  r = x != x || y != y ? nan32() : r;
  return x == 1.0f || y == 0.0f ? 1.0f : r;
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
SDX_STRICT_END
