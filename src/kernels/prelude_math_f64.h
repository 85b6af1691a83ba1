// Elementary functions of f64, built like those of f32 (prelude_math_f32.h names the methods): at most 4 ulp
// everywhere.
#pragma once
#include "prelude_math_f32.h"

SDX_STRICT_BEGIN
namespace sdx {
namespace detail {

inline constexpr f64 kLog2e64 = 0x1.71547652b82fep+0;
// log 2 in two parts; the first has 41 bits, so that its product with an exponent is exact.
inline constexpr f64 kLn2Hi64 = 0x1.62e42fefa3p-1, kLn2Lo64 = 0x1.3de6af278ece6p-42;
inline constexpr f64 kHalfPiHi64 = 0x1.921fb54442d18p+0, kHalfPiLo64 = 0x1.1a62633145c07p-54;
// Adding it rounds |x| < 2^51 to the nearest integer, which then stands in the low bits.
inline constexpr f64 kRound64 = 0x1.8p52;

// A value and what its rounding lost; sums and products without error. Source: Dekker, "A floating-point technique for
// extending the available precision" (1971).
struct Pair64 {
  f64 hi, lo;
};
SDX_FN Pair64 fast_two_sum(f64 large, f64 small) {
  const f64 sum = large + small;
  return {sum, small - (sum - large)};
}
SDX_FN Pair64 two_sum(f64 a, f64 b) {  // Knuth, TAOCP 2
  const f64 sum = a + b, b2 = sum - a;
  return {sum, (a - (sum - b2)) + (b - b2)};
}
SDX_FN Pair64 two_product(f64 a, f64 b) {
  const f64 p = a * b;
#if SDX_HAS_FMA
  return {p, fma(a, b, -p)};
#else
  const f64 sa = a * 0x1.0000002p27, sb = b * 0x1.0000002p27;
  const f64 ah = sa - (sa - a), al = a - ah, bh = sb - (sb - b), bl = b - bh;
  return {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
#endif
}
SDX_FN Pair64 pair_product(Pair64 a, Pair64 b) {
  const Pair64 p = two_product(a.hi, b.hi);
  return fast_two_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

// x * 2^n, |n| <= 2000, n given as kRound64 + n, in two steps (see the f32 one).
SDX_FN f64 scale(f64 x, f64 rounded, i32 extra) {
  const u64 n = bit_cast<u64>(rounded) - bit_cast<u64>(kRound64) + u64(i64(2048 + extra));
  const u64 a = n >> 1, b = n - a;
  return x * bit_cast<f64>((a - 1) << 52) * bit_cast<f64>((b - 1) << 52);
}

// exp(x) = (1 + r + tail) 2^n, rounded = kRound64 + n; |x| < 2000. Table exp53.
struct ExpParts64 {
  f64 r, tail, rounded;
};
SDX_FN f64 exp_tail(f64 r) {
  return r * r *
         poly(r, 0x1p-1, 0x1.5555555555559p-3, 0x1.5555555555557p-5, 0x1.111111110f65p-7, 0x1.6c16c16c1577dp-10,
              0x1.a01a01b00610cp-13, 0x1.a01a01ab13cadp-16, 0x1.71ddf808b6aep-19, 0x1.27e4d14428d45p-22,
              0x1.af5f37267188dp-26, 0x1.1f83e1c58be04p-29);
}
SDX_FN ExpParts64 exp_parts(f64 x) {
  const f64 t = x * kLog2e64 + kRound64, n = t - kRound64;
  const f64 r = fma(n, -kLn2Lo64, fma(n, -kLn2Hi64, x));
  return {r, exp_tail(r), t};
}
// exp(x) 2^extra
SDX_FN f64 exp_scaled(f64 x, i32 extra) {
  const ExpParts64 p = exp_parts(clamp(x, -750.0, 712.0));
  return scale(1.0 + (p.r + p.tail), p.rounded, extra);
}

// x = 2^k (1 + f), 1 + f in [sqrt 1/2, sqrt 2]; x positive, normal and finite.
struct FullLogParts64 {
  f64 f;
  i32 k;
};
SDX_FN FullLogParts64 log_parts_normal(f64 x) {
  constexpr u64 root = 0x3fe6a09e667f3bcd;  // sqrt 1/2
  const u64 b = bit_cast<u64>(x) - root;
  return {bit_cast<f64>((b & 0xfffffffffffffu) + root) - 1.0, i32(b >> 32) >> 20};
}
// The same for subnormal x as well.
SDX_FN FullLogParts64 log_parts(f64 x) {
  const bool tiny = x < 0x1p-1022;
  const FullLogParts64 p = log_parts_normal(tiny ? x * 0x1p54 : x);
  return {p.f, p.k - (tiny ? 54 : 0)};
}
// log(1 + f) = f - (f^2/2 - s (f^2/2 + s^2 p(s^2))), s = f / (2 + f), which follows from f = 2s + s f. Table log53.
struct Log1pParts64 {
  f64 square, rest;  // log(1 + f) = f - (square - rest)
};
SDX_FN Log1pParts64 log1p_parts(f64 f) {
  const f64 s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
  const f64 p = poly(z, 0x1.5555555555594p-1, 0x1.999999997f73p-2, 0x1.249249423c2bcp-2, 0x1.c71c51d55c12ep-3,
                     0x1.7466484ea67e8p-3, 0x1.39a0e026e5d1ap-3, 0x1.2f0d45c86f51ap-3);
  return {square, s * fma(z, p, square)};
}
// k log 2 + log(1 + f)
SDX_FN f64 log_sum(f64 f, i32 k) {
  const f64 kf = f64(k);
  const Log1pParts64 p = log1p_parts(f);
  return fma(kf, kLn2Hi64, f - (p.square - fma(kf, kLn2Lo64, p.rest)));
}
SDX_FN f64 log_special(f64 x, f64 r) {
  r = x < inf64() ? r : x;
  r = x < 0.0 ? nan64() : r;
  return x == 0.0 ? -inf64() : r;
}

}  // namespace detail

SDX_FN f64 exp(f64 x) { return detail::exp_scaled(x, 0); }

/// 2^x = 2^n exp(r log 2).
SDX_FN f64 exp2(f64 x) {
  const f64 y = clamp(x, -1080.0, 1025.0);
  const f64 t = y + detail::kRound64;
  const f64 r = (y - (t - detail::kRound64)) * 0x1.62e42fefa39efp-1;
  return detail::scale(1.0 + (r + detail::exp_tail(r)), t, 0);
}

SDX_FN f64 expm1(f64 x) {
  const detail::ExpParts64 p = detail::exp_parts(clamp(x, -40.0, 712.0));
  const f64 n = clamp(p.rounded - detail::kRound64, -64.0, 1000.0);
  const f64 shift = 1.0 - bit_cast<f64>((1023 - bit_cast<u64>(n + detail::kRound64)) << 52);
  return copysign(detail::scale((p.r + shift) + p.tail, p.rounded, 0), x);
}

SDX_FN f64 log(f64 x) {
  const detail::FullLogParts64 p = detail::log_parts(x);
  return detail::log_special(x, detail::log_sum(p.f, p.k));
}

SDX_FN f64 log2(f64 x) {
  const detail::FullLogParts64 p = detail::log_parts(x);
  return detail::log_special(x, fma(detail::log_sum(p.f, 0), detail::kLog2e64, f64(p.k)));
}

/// k log10(2) + log(1 + f) / log(10), the first in two parts.
SDX_FN f64 log10(f64 x) {
  const detail::FullLogParts64 p = detail::log_parts(x);
  const f64 k = f64(p.k);
  const f64 low = fma(detail::log_sum(p.f, 0), 0x1.bcb7b1526e50ep-2, k * 0x1.cff7988f8959bp-41);
  return detail::log_special(x, fma(k, 0x1.34413509f4p-2, low));
}

SDX_FN f64 log1p(f64 x) {
  const f64 u = 1.0 + x;
  const detail::FullLogParts64 p = detail::log_parts_normal(u);
  const f64 scale = bit_cast<f64>(u64(1023 - i64(p.k)) << 52);
  const f64 f = p.k > 54 ? p.f : x * scale + (scale - 1.0);
  return copysign(detail::log_special(u, detail::log_sum(f, p.k)), x);
}

SDX_FN f64 rsqrt(f64 x) { return 1.0 / sqrt(x); }

namespace detail {
// log2(x) in two parts, relative error 2^-64, for finite x > 0: log(1 + f) = 2 s (1 + z/3 + z^2 p(z)), z = s^2, with s
// and the first two terms in two parts. Table pow53.
SDX_FN Pair64 log2_pair(f64 x) {
  const FullLogParts64 a = log_parts(x);
  const Pair64 d = fast_two_sum(2.0, a.f);
  const f64 quotient = a.f / d.hi;
  const Pair64 back = two_product(quotient, d.hi);
  const Pair64 s = {quotient, ((a.f - back.hi) - back.lo - quotient * d.lo) / d.hi};
  const Pair64 z = pair_product(s, s);
  const f64 p = poly(z.hi, 0x1.9999999999995p-3, 0x1.249249249314fp-3, 0x1.c71c71c564719p-4, 0x1.745d183dd3c16p-4,
                     0x1.3b13600679b8fp-4, 0x1.112111974905fp-4, 0x1.de264c665fef6p-5, 0x1.eb74c1db78bdbp-5);
  const Pair64 third = pair_product(z, {0x1.5555555555555p-2, 0x1.5555555555555p-56});
  const Pair64 w = fast_two_sum(third.hi, fma(z.hi * z.hi, p, third.lo));
  const Pair64 one = fast_two_sum(1.0, w.hi);
  const Pair64 l = pair_product({2.0 * s.hi, 2.0 * s.lo}, {one.hi, one.lo + w.lo});
  const Pair64 l2 = pair_product(l, {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56});
  const Pair64 sum = fast_two_sum(f64(a.k), l2.hi);
  // fast_two_sum needs the larger term first: k is, unless it is 0.
  return a.k == 0 ? l2 : fast_two_sum(sum.hi, sum.lo + l2.lo);
}
}  // namespace detail

/// x^y with all special cases of IEEE 754 pow: 2^(y log2 |x|), the exponent in two parts.
SDX_FN f64 pow(f64 x, f64 y) {
  const f64 a = fabs(x);
  const bool plain = a > 0.0 && a < inf64();
  const detail::Pair64 l = detail::log2_pair(plain ? a : 1.0);
  const detail::Pair64 e = detail::two_product(l.hi, y);
  const f64 hi = plain ? l.hi * y : (a == 0.0 ? -inf64() : a) * y;
  const f64 c = clamp(hi, -1200.0, 1200.0);
  const f64 lo = fabs(hi) < 1200.0 && plain ? fma(l.lo, y, e.lo) : 0.0;
  const f64 t = c + detail::kRound64;
  const f64 r = ((c - (t - detail::kRound64)) + lo) * 0x1.62e42fefa39efp-1;
  f64 v = detail::scale(1.0 + (r + detail::exp_tail(r)), t, 0);
  const bool integer = trunc(y) == y;
  const f64 half = y * 0.5;
  const bool odd = integer && fabs(y) < 0x1p53 && trunc(half) != half;
  v = x < 0.0 && !integer && x != -inf64() ? nan64() : v;
  v = signbit(x) && odd ? -v : v;
  v = x == -1.0 && isinf(y) ? 1.0 : v;
  v = x != x || y != y ? nan64() : v;
  return x == 1.0 || y == 0.0 ? 1.0 : v;
}

// --- error function ---

namespace detail {
// erfc(u) for u >= 0, relative error a few 2^-53 times 1 + u^2: exp(-u^2) p(v) / (u + 3.75), v = (u - 3.75) / (u
// + 3.75). Table erfcx53.
SDX_FN f64 erfc_positive(f64 u) {
  const f64 c = u > 100.0 ? 100.0 : u;  // where the exponential is 0
  const f64 w = 1.0 / (c + 2.0), v = (c - 2.0) * w;
  const f64 p = poly(v, 0x1.058671b52c776p+0, -0x1.5fd386754eff9p-1, 0x1.1e2deea6b1104p-2, -0x1.2a88e6107d395p-5,
                     -0x1.606e41550f09fp-6, 0x1.a89eaff83c64cp-8, 0x1.9517bb5c73f79p-9, -0x1.b6fbf9795b99ep-11,
                     -0x1.5ba4346571908p-11, 0x1.2053fac76c64bp-15, 0x1.2ef9b60a7f42ap-13, 0x1.1e76f4d91004bp-15,
                     -0x1.6bf0279877dbfp-16, -0x1.0e7ccb45ec471p-16, -0x1.3175f8f12ce32p-20, 0x1.e98224456144fp-19,
                     0x1.1072b56f1ca28p-19, -0x1.4a499d4316be6p-29, -0x1.4a5ad7997454fp-21, -0x1.5a2b1c9f07a3ap-22,
                     0x1.79b26e136f023p-25, 0x1.e6716f7a8f071p-24, 0x1.b0c9caf260a84p-26, -0x1.057a3fd9d5d21p-26,
                     -0x1.a50872c5f584dp-28);
  return exp_scaled(-c * c, 0) * (w * p);
}
}  // namespace detail

/// Up to 1 a polynomial (table erf53), above 1 - exp(-p(x)) (table erf_tail53).
SDX_FN f64 erf(f64 x) {
  const f64 a = fabs(x), z = x * x;
  const f64 q = detail::poly(z, 0x1.06eba8214db69p-3, -0x1.812746b0379fdp-2, 0x1.ce2f21a04362dp-4,
                             -0x1.b82ce312abefep-6, 0x1.565bcd1298e84p-8, -0x1.c02db49afb8cbp-11, 0x1.f9a335368c5f6p-14,
                             -0x1.f4d3335ad34d6p-17, 0x1.b9ee92f3c52p-20, -0x1.5f9810fc0cc3fp-23, 0x1.fc77ba102e001p-27,
                             -0x1.4675d488fef9fp-30, 0x1.296e609a1cbd9p-34);
  const f64 c = a > 6.0 ? 6.0 : a;
  const f64 p =
      detail::poly(c, 0x1.023cba03f9p-21, 0x1.20dd23349f45p+0, 0x1.45f60a6bfbbb1p-1, 0x1.a4aebead16f53p-4,
                   -0x1.3733f2241f965p-6, -0x1.a8c83a264ab55p-12, 0x1.f4c9874c8ccc1p-10, -0x1.91bd6aad984fdp-11,
                   0x1.15908f7c29c28p-13, 0x1.69f912cd35033p-16, -0x1.874ce3ad6e1dbp-16, 0x1.27ddc1b4484dap-17,
                   -0x1.2356c0090ba2p-19, 0x1.97749c81f3952p-22, -0x1.959efe56fbf98p-25, 0x1.1340e70ca7e51p-28,
                   -0x1.ca4fe7dd284e3p-33, 0x1.61df725a1c694p-38);
  const f64 far = 1.0 - exp(-p);
  return a < 1.0 ? fma(x, q, x) : copysign(x != x ? x : far, x);
}

}  // namespace sdx
SDX_STRICT_END
