// Trigonometric and hyperbolic functions of f64 and their inverses: at most 4 ulp, for arguments of any size.
#pragma once
#include "prelude_math_f64.h"

SDX_STRICT_BEGIN
namespace sdx {
namespace detail {

// x = quadrant pi/2 + (hi + lo), |hi| <= pi/4, for finite x >= 0.
struct Reduced64 {
  f64 hi, lo;
  u32 quadrant;
};

// Payne and Hanek's reduction as for f32 (prelude_trig_f32.h), with 192 bits of 2/pi and 128 bits of the product.
SDX_FN Reduced64 reduce_quadrant_large(f64 x) {
  // 55 zeros, then 2/pi.
  constexpr u64 t[20] = {0x0000000000000145, 0xf306dc9c882a53f8, 0x4eafa3ea69bb81b6, 0xc52b3278872083fc,
                         0xa2c757bd778ac36e, 0x48dc74849ba5c00c, 0x925dd413a32439fc, 0x3bd63962534e7dd1,
                         0x046bea5d768909d3, 0x38e04d68befc8273, 0x23ac7306a673e939, 0x08bf177bf250763f,
                         0xf12fffbc0b301fde, 0x5e2316b414da3eda, 0x6cfd9e4f96136e9e, 0x8c7ecd3cbfd45aea,
                         0x4f758fd7cbe2f67a, 0x0e73ef14a525d4d7, 0xf6bf623f1aba10ac, 0x06608df8f6d757e1};
  const u64 b = bit_cast<u64>(x);
  const u64 m = (b & 0xfffffffffffffu) | 0x10000000000000u;
  const u64 exponent = b >> 52;
  const u64 at = exponent < 1022 ? 0 : exponent - 1022, word = at >> 6, shift = at & 63;
  // The four words from `word` on, by halving steps: indices are constants, so that no look-up is left.
  const bool s16 = (word & 16) != 0, s8 = (word & 8) != 0, s4 = (word & 4) != 0, s2 = (word & 2) != 0,
             s1 = (word & 1) != 0;
#define SDX_STEP(i) const u64 a##i = s8 ? t[i + 8] : t[i]
  SDX_STEP(0);
  SDX_STEP(1);
  SDX_STEP(2);
  SDX_STEP(3);
  SDX_STEP(4);
  SDX_STEP(5);
  SDX_STEP(6);
  SDX_STEP(7);
  SDX_STEP(8);
  SDX_STEP(9);
  SDX_STEP(10);
#undef SDX_STEP
  const u64 b0 = s4 ? a4 : a0, b1 = s4 ? a5 : a1, b2 = s4 ? a6 : a2, b3 = s4 ? a7 : a3, b4 = s4 ? a8 : a4,
            b5 = s4 ? a9 : a5, b6 = s4 ? a10 : a6;
  const u64 c0 = s2 ? b2 : b0, c1 = s2 ? b3 : b1, c2 = s2 ? b4 : b2, c3 = s2 ? b5 : b3, c4 = s2 ? b6 : b4;
  const u64 d0 = s1 ? c1 : c0, d1 = s1 ? c2 : c1, d2 = s1 ? c3 : c2, d3 = s1 ? c4 : c3;
  const u64 e0 = s16 ? t[16] : d0, e1 = s16 ? t[17] : d1, e2 = s16 ? t[18] : d2, e3 = s16 ? t[19] : d3;
  const u64 w2 = (e0 << shift) | ((e1 >> 1) >> (63 - shift));
  const u64 w1 = (e1 << shift) | ((e2 >> 1) >> (63 - shift));
  const u64 w0 = (e2 << shift) | ((e3 >> 1) >> (63 - shift));
  // The product of m and w, bits 64 to 191, in 32-bit limbs.
  constexpr u64 low = 0xffffffffu;
  const u64 m0 = m & low, m1 = m >> 32;
  const u64 p01 = m0 * (w0 >> 32), p10 = m1 * (w0 & low);
  const u64 p02 = m0 * (w1 & low), p11 = m1 * (w0 >> 32);
  const u64 p03 = m0 * (w1 >> 32), p12 = m1 * (w1 & low);
  const u64 p04 = m0 * (w2 & low), p13 = m1 * (w1 >> 32);
  const u64 p05 = m0 * (w2 >> 32), p14 = m1 * (w2 & low);
  const u64 l2 = (p01 >> 32) + (p10 >> 32) + (p02 & low) + (p11 & low);
  const u64 l3 = (l2 >> 32) + (p02 >> 32) + (p11 >> 32) + (p03 & low) + (p12 & low);
  const u64 l4 = (l3 >> 32) + (p03 >> 32) + (p12 >> 32) + (p04 & low) + (p13 & low);
  const u64 l5 = (l4 >> 32) + (p04 >> 32) + (p13 >> 32) + p05 + p14;
  const u64 turn_hi = (l5 << 32) | (l4 & low), turn_lo = (l3 << 32) | (l2 & low);  // 2^128 is a whole turn
  // The fraction of a quadrant around the nearest one, as sign and magnitude.
  const u64 hi = (turn_hi << 2) | (turn_lo >> 62), lo = turn_lo << 2;
  const bool negative = i64(hi) < 0;
  const u64 abs_hi = negative ? ~hi : hi, abs_lo = negative ? ~lo : lo;  // -x is ~x + 1; that 1 is 2^-128 of a quadrant
  const f64 top = f64(i64(abs_hi & ~u64(0x7ff))) * 0x1p-64;
  const f64 rest = f64(i64(((abs_hi & 0x7ff) << 52) | (abs_lo >> 12))) * 0x1p-116;
  const Pair64 f = fast_two_sum(top, rest);
  const Pair64 r = pair_product(f, {kHalfPiHi64, kHalfPiLo64});
  return {negative ? -r.hi : r.hi, negative ? -r.lo : r.lo, u32(turn_hi >> 62) + u32(negative)};
}

SDX_FN Reduced64 reduce_quadrant(f64 x) {
#if SDX_GPU
  // Here a branch is cheaper than what it skips. pi/2 in three parts; x - n hi is exact, n lo is split into two parts.
  if (x < 65536.0) {
    const f64 n = round(x * 0x1.45f306dc9c883p-1);
    const f64 a = fma(n, -kHalfPiHi64, x);
    const Pair64 p = two_product(n, kHalfPiLo64);
    const Pair64 d = two_sum(a, -p.hi);
    const Pair64 r = fast_two_sum(d.hi, d.lo - fma(n, -0x1.f1976b7ed8fbcp-110, p.lo));
    return {r.hi, r.lo, u32(i32(n))};
  }
  return reduce_quadrant_large(x);
#else
  const Reduced64 r = reduce_quadrant_large(x);
  const bool small = x < 0.78;
  return {small ? x : r.hi, small ? 0.0 : r.lo, small ? 0u : r.quadrant};
#endif
}

// sin and cos of hi + lo, |hi| <= pi/4. Tables sin53, cos53.
SDX_FN f64 sin_kernel(f64 hi, f64 lo) {
  const f64 z = hi * hi;
  const f64 p = poly(z, -0x1.5555555555555p-3, 0x1.1111111111064p-7, -0x1.a01a019ff9dd4p-13, 0x1.71de3a2616affp-19,
                     -0x1.ae6409d786a66p-26, 0x1.60dee0567fc6p-33, -0x1.6c4ebe0cfab07p-41, -0x1.8338e15bb4c84p-45);
  return hi + fma(hi * z, p, fma(-0.5 * z, lo, lo));
}
SDX_FN f64 cos_kernel(f64 hi, f64 lo) {
  const f64 z = hi * hi;
  const f64 p = poly(z, 0x1.5555555555555p-5, -0x1.6c16c16c16b46p-10, 0x1.a01a01a001577p-16, -0x1.27e4fb6005e6cp-22,
                     0x1.1eed76b55db19p-29, -0x1.937cd3aaecdfep-37, 0x1.a1939a309d42bp-45);
  const f64 h = 1.0 - 0.5 * z;
  return h + (((1.0 - h) - 0.5 * z) + fma(z * z, p, -hi * lo));
}
// y with its sign flipped by bit 1 of quadrant and by the sign of x; NaN for infinite x.
SDX_FN f64 flip_quadrant(f64 y, u32 quadrant, f64 x) {
  const u64 flip = (u64(quadrant & 2) << 62) ^ (bit_cast<u64>(x) & 0x8000000000000000u);
  return fabs(x) < inf64() ? bit_cast<f64>(bit_cast<u64>(y) ^ flip) : nan64();
}

}  // namespace detail

SDX_FN f64 sin(f64 x) {
  const detail::Reduced64 r = detail::reduce_quadrant(fabs(x));
  const f64 s = detail::sin_kernel(r.hi, r.lo), c = detail::cos_kernel(r.hi, r.lo);
  return detail::flip_quadrant((r.quadrant & 1) != 0 ? c : s, r.quadrant, x);
}
SDX_FN f64 cos(f64 x) {
  const detail::Reduced64 r = detail::reduce_quadrant(fabs(x));
  const f64 s = detail::sin_kernel(r.hi, r.lo), c = detail::cos_kernel(r.hi, r.lo);
  return detail::flip_quadrant((r.quadrant & 1) != 0 ? s : c, r.quadrant + 1, fabs(x));
}
SDX_FN f64 tan(f64 x) {
  const detail::Reduced64 r = detail::reduce_quadrant(fabs(x));
  const f64 s = detail::sin_kernel(r.hi, r.lo), c = detail::cos_kernel(r.hi, r.lo);
  const bool odd = (r.quadrant & 1) != 0;
  return detail::flip_quadrant((odd ? -c : s) / (odd ? s : c), 0, x);
}

namespace detail {
// asin(s) / s - 1 for s^2 = z <= 1/4. Table asin53.
SDX_FN f64 asin_tail(f64 z) {
  return z * poly(z, 0x1.5555555555577p-3, 0x1.333333332e1b5p-4, 0x1.6db6db7209136p-5, 0x1.f1c71a992177dp-6,
                  0x1.6e8bde5eef66dp-6, 0x1.1c49f9e9a13dep-6, 0x1.ca1ea227054eep-7, 0x1.758d268ee4417p-7,
                  0x1.6111c74a88316p-7, 0x1.e878ce55107adp-9, 0x1.62daa950786bap-6, -0x1.56eedd53cbf7dp-6,
                  0x1.0af379e651188p-5);
}
}  // namespace detail

SDX_FN f64 asin(f64 x) {
  const f64 a = fabs(x);
  const bool large = a > 0.5;
  const f64 z = large ? 0.5 * (1.0 - a) : a * a;
  const f64 s = large ? sqrt(z) : a;
  const f64 tail = s * detail::asin_tail(z);
  const f64 far = (detail::kHalfPiHi64 - 2.0 * s) - (2.0 * tail - detail::kHalfPiLo64);
  return copysign(large ? far : s + tail, x);
}
SDX_FN f64 acos(f64 x) {
  const f64 a = fabs(x);
  const bool large = a > 0.5;
  const f64 z = large ? 0.5 * (1.0 - a) : a * a;
  const f64 s = large ? sqrt(z) : x;
  const f64 tail = s * detail::asin_tail(z);
  const f64 p = s + tail;
  const f64 middle = detail::kHalfPiHi64 - (x - (detail::kHalfPiLo64 - tail));
  const f64 far = 2.0 * (detail::kHalfPiHi64 - (p - detail::kHalfPiLo64));
  return large ? (x > 0.0 ? 2.0 * p : far) : middle;
}
/// Table atan53.
SDX_FN f64 atan(f64 x) {
  const f64 a = fabs(x);
  const bool far = a > 0x1.3504f333f9de6p+1, near = a <= 0x1.a827999fcef33p-2;
  const f64 n = far ? -1.0 : near ? a : a - 1.0;
  const f64 d = far ? a : near ? 1.0 : a + 1.0;
  const f64 hi = far ? detail::kHalfPiHi64 : near ? 0.0 : 0.5 * detail::kHalfPiHi64;
  const f64 lo = far ? detail::kHalfPiLo64 : near ? 0.0 : 0.5 * detail::kHalfPiLo64;
  const f64 t = n / d, z = t * t;
  const f64 p = detail::poly(z, -0x1.555555555553bp-2, 0x1.99999999954c3p-3, -0x1.249249229966ep-3,
                             0x1.c71c70df04ef9p-4, -0x1.745cf8215e887p-4, 0x1.3b110ceaec1c3p-4, -0x1.10eb34d70bcc8p-4,
                             0x1.df0826977b624p-5, -0x1.9cb3c64e96ae6p-5, 0x1.37899517e38f8p-5, -0x1.24c8a07651b9ap-6);
  return copysign(hi + (t + fma(t * z, p, lo)), x);
}

/// Below 1 a polynomial (table sinh53), above (e^x - e^-x) / 2.
SDX_FN f64 sinh(f64 x) {
  const f64 a = fabs(x), z = x * x;
  const f64 p = detail::poly(z, 0x1.5555555555556p-3, 0x1.111111111104p-7, 0x1.a01a01a0318c3p-13, 0x1.71de3a4058655p-19,
                             0x1.ae646b4b21f1bp-26, 0x1.6118e07ffded2p-33, 0x1.b52e61175a1d4p-41);
  const f64 h = detail::exp_scaled(a, -1);
  return copysign(a < 1.0 ? fma(x * z, p, x) : h - 0.25 / h, x);
}
SDX_FN f64 cosh(f64 x) {
  const f64 h = detail::exp_scaled(fabs(x), -1);
  return h + 0.25 / h;
}
/// (e^2x - 1) / (e^2x + 1).
SDX_FN f64 tanh(f64 x) {
  const f64 a = fabs(x);
  const f64 t = expm1(2.0 * (a > 22.0 ? 22.0 : a));
  return copysign(x != x ? x : t / (t + 2.0), x);
}
/// log(|x| + sqrt(x^2 + 1)); from 2^28 on log(2 |x|).
SDX_FN f64 asinh(f64 x) {
  const f64 a = fabs(x);
  const bool large = a > 0x1p28;
  const f64 b = large ? 1.0 : a, square = b * b;
  const f64 near = log1p(b + square / (1.0 + sqrt(1.0 + square)));
  return copysign(large ? log(a) + 0x1.62e42fefa39efp-1 : x != x ? x : near, x);
}
/// log(x + sqrt(x^2 - 1)); from 2^28 on log(2 x). NaN for x < 1.
SDX_FN f64 acosh(f64 x) {
  const bool large = x > 0x1p28;
  const f64 d = large ? 1.0 : x - 1.0;
  const f64 near = log1p(d + sqrt(2.0 * d + d * d));
  return large ? log(x) + 0x1.62e42fefa39efp-1 : x < 1.0 ? nan64() : near;
}
/// log(1 + 2x / (1 - x)) / 2. NaN for |x| > 1.
SDX_FN f64 atanh(f64 x) {
  const f64 a = fabs(x);
  const f64 r = 0.5 * log1p((a + a) / (1.0 - a));
  return copysign(a > 1.0 ? nan64() : r, x);
}

}  // namespace sdx
SDX_STRICT_END
