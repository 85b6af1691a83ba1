// Trigonometric and hyperbolic functions of f32 and their inverses: at most 2 ulp, for arguments of any size.
#pragma once
#include "prelude_fast.h"
#include "prelude_math_f32.h"

SDX_STRICT_BEGIN
namespace sdx {

namespace detail {

// Knuth, TAOCP 2.
SDX_FN Pair32 two_sum(f32 a, f32 b) {
  const f32 sum = a + b, b2 = sum - a;
  return {sum, (a - (sum - b2)) + (b - b2)};
}

// x = quadrant pi/2 + (hi + lo), |hi| <= pi/4, for finite x >= 0.
struct Reduced32 {
  f32 hi, lo;
  u32 quadrant;
};

// For any size of x: x is an integer m times a power of two, 2/pi a string of bits, of which those that make multiples
// of 4 with x are skipped and the next 96 taken; their product with m is the angle in quadrants, in fixed point.
// Source: Payne and Hanek, "Radian reduction for trigonometric functions" (1983).
// NVIDIA: a call, as copies of this code in each element of an epilogue would not fit the instruction cache.
#ifdef __NVPTX__
inline __attribute__((noinline))
#else
SDX_FN
#endif
Reduced32 reduce_quadrant_large(f32 x) {
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

#if SDX_GPU || SDX_HAS_FMA
// For x below 2^14. pi/2 in three parts; x - n hi is exact, n lo is split into two parts.
SDX_FN Reduced32 reduce_quadrant_small(f32 x) {
  const f32 n = round(x * 0x1.45f306p-1f);
  const f32 a = fma(n, -kHalfPiHi32, x);
  const f32 p = n * kHalfPiLo32, e = fma(n, kHalfPiLo32, -p);
  const Pair32 d = two_sum(a, -p);
  const Pair32 r = fast_two_sum(d.hi, d.lo - fma(n, -0x1.ee59dap-50f, e));
  return {r.hi, r.lo, u32(i32(n))};
}
#endif

SDX_FN Reduced32 reduce_quadrant(f32 x) {
#if SDX_GPU
  // Here a branch is cheaper than what it skips.
  if (x < 16384.0f) return reduce_quadrant_small(x);
  return reduce_quadrant_large(x);
#else
  const Reduced32 r = reduce_quadrant_large(x);
#if SDX_HAS_FMA
  // The same as bounded_sin(), on which the choice between the two may not depend.
  const bool small = x < 16384.0f;
  const Reduced32 s = reduce_quadrant_small(small ? x : 0.0f);
#else
  const bool small = x < 0.78f;
  const Reduced32 s = {x, 0.0f, 0u};
#endif
  return {small ? s.hi : r.hi, small ? s.lo : r.lo, small ? s.quadrant : r.quadrant};
#endif
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

namespace detail {
// sin(x + quarter pi/2) for x of any size.
SDX_FN f32 sine_of_quarter(f32 x, u32 quarter) {
  const f32 a = fabs(x);
  const Reduced32 r = reduce_quadrant(a);
  const f32 s = sin_kernel(r.hi, r.lo).hi, c = cos_kernel(r.hi, r.lo).hi;
  const u32 quadrant = r.quadrant + quarter;
  const f32 y = (quadrant & 1) != 0 ? c : s;
  // cos is even.
  const u32 flip = ((quadrant & 2) << 30) ^ (quarter != 0 ? 0u : bit_cast<u32>(x) & 0x80000000u);
  return a < inf32() ? bit_cast<f32>(bit_cast<u32>(y) ^ flip) : nan32();
}
}  // namespace detail

#if SDX_GPU
// Up to kNearSines without branches: x = h pi + r, where h is an integer (of cos: 1/2 more), so that sin x is +- sin r.
// x - h hi is exact, h mid is subtracted with one rounding, and h lo where sin r is rounded. At most 1.6 ulp. Infinity
// gives NaN. Larger arguments take ten times the instructions. A kernel tests for them once for all elements that a
// thread has at a time (with_sines()): branches would keep it from computing these at the same time.
inline constexpr f32 kNearSines = 0x1p17f;

namespace detail {
inline constexpr f32 kPiHi32 = 0x1.921fb6p+1f, kPiMid32 = -0x1.777a5cp-24f, kPiLo32 = -0x1.ee59dap-49f;

struct HalfTurns32 {
  f32 r, h;  // r - h lo = x - h pi
  u32 sign;  // to be added to that of sin r
};
template <bool Cos>
SDX_FN HalfTurns32 half_turns(f32 x) {
  const f32 t = Cos ? fma(x, 0x1.45f306p-2f, -0.5f) + kRound32 : fma(x, 0x1.45f306p-2f, kRound32);
  const f32 h = Cos ? (t - kRound32) + 0.5f : t - kRound32;
  const u32 n = bit_cast<u32>(t);
  return {fma(h, -kPiMid32, fma(h, -kPiHi32, x)), h, (Cos ? ~n : n) << 31};
}
/// One of both.
SDX_FN HalfTurns32 half_turns(f32 x, bool cos) {
  const f32 shift = cos ? -0.5f : 0.0f, t = fma(x, 0x1.45f306p-2f, shift) + kRound32, h = (t - kRound32) - shift;
  return {fma(h, -kPiMid32, fma(h, -kPiHi32, x)), h, (bit_cast<u32>(t) ^ u32(cos)) << 31};
}
// Table sin_half24. The cube of r with what its two roundings lost, and the largest part of its factor in one fma.
SDX_FN f32 near_sine(HalfTurns32 t) {
  const f32 z = t.r * t.r, cube = t.r * z;
  const f32 lost = fma(t.r, fma(t.r, t.r, -z), fma(t.r, z, -cube));
  const f32 p = poly(z, -0x1.55554cp-3f + 0x1.5p-3f, 0x1.110ed6p-7f, -0x1.9f6f6p-13f, 0x1.5da796p-19f);
  const f32 tail = fma(cube, -0x1.5p-3f, fma(cube, p, fma(lost, -0x1.555556p-3f, t.h * -kPiLo32)));
  return bit_cast<f32>(bit_cast<u32>(t.r + tail) ^ t.sign);
}
// For results of 16 bits, relative error at most 2^-19. Table half_sin.
SDX_FN f32 near_half_sine(HalfTurns32 t) {
  const f32 r = fma(t.h, -kPiLo32, t.r), z = r * r;
  const f32 p = poly(z, -0x1.555128p-3f, 0x1.1071a8p-7f, -0x1.84cb68p-13f);
  return bit_cast<f32>(bit_cast<u32>(fma(r * z, p, r)) ^ t.sign);
}
// NVIDIA: a call, as copies of this code in each element of an epilogue would not fit the instruction cache.
#ifdef __NVPTX__
#define SDX_CALLED inline __attribute__((noinline))
#else
#define SDX_CALLED SDX_FN
#endif
SDX_CALLED f32 far_sine(f32 x, u32 quarter) { return sine_of_quarter(x, quarter); }
SDX_FN bool is_far(f32 x) { return __builtin_expect(fabs(x) >= kNearSines, false); }
}  // namespace detail

/// Of |x| < kNearSines.
SDX_FN f32 near_sin(f32 x) { return detail::near_sine(detail::half_turns<false>(x)); }
SDX_FN f32 near_cos(f32 x) { return detail::near_sine(detail::half_turns<true>(x)); }
SDX_FN f32 near_half_sin(f32 x) { return detail::near_half_sine(detail::half_turns<false>(x)); }
SDX_FN f32 near_half_cos(f32 x) { return detail::near_half_sine(detail::half_turns<true>(x)); }

/// With arguments of any size, for code that rarely runs: calls.
struct AllSines {};
/// Without large ones, which are noted.
struct NearSines {
  bool far = false;
};
#define SDX_SINE(name, near, quarter)                                                           \
  SDX_FN f32 name(f32 x) { return detail::is_far(x) ? detail::far_sine(x, quarter) : near(x); } \
  SDX_CALLED f32 called_##name(f32 x) { return name(x); }                                       \
  SDX_FN f32 name(f32 x, AllSines&) { return called_##name(x); }                                \
  SDX_FN f32 name(f32 x, NearSines& all) {                                                      \
    all.far |= fabs(x) >= kNearSines;                                                           \
    return near(x);                                                                             \
  }
SDX_SINE(sin, near_sin, 0)
SDX_SINE(cos, near_cos, 1)
SDX_SINE(half_sin, near_half_sin, 0)
SDX_SINE(half_cos, near_half_cos, 1)
#undef SDX_SINE

/// sin(x) or cos(x), for which neighbouring threads need not branch.
#define SDX_SINE(name, near)                                                                                 \
  SDX_FN f32 name(bool sine, f32 x) {                                                                        \
    return detail::is_far(x) ? detail::far_sine(x, u32(!sine)) : detail::near(detail::half_turns(x, !sine)); \
  }                                                                                                          \
  SDX_CALLED f32 called_##name(bool sine, f32 x) { return name(sine, x); }                                   \
  SDX_FN f32 name(bool sine, f32 x, AllSines&) { return called_##name(sine, x); }                            \
  SDX_FN f32 name(bool sine, f32 x, NearSines& all) {                                                        \
    all.far |= fabs(x) >= kNearSines;                                                                        \
    return detail::near(detail::half_turns(x, !sine));                                                       \
  }
SDX_SINE(sin_or_cos, near_sine)
SDX_SINE(half_sin_or_cos, near_half_sine)
#undef SDX_SINE
#undef SDX_CALLED

/// Calls compute(sines), which passes `sines` to sin and cos, and once more if an argument was large.
template <class Compute>
SDX_FN void with_sines(const Compute& compute) {
  NearSines near;
  compute(near);
  if (__builtin_expect(near.far, false)) {
    AllSines all;
    compute(all);
  }
}
#else
SDX_FN f32 sin(f32 x) { return detail::sine_of_quarter(x, 0); }
SDX_FN f32 cos(f32 x) { return detail::sine_of_quarter(x, 1); }
SDX_FN f32 near_sin(f32 x) { return sin(x); }
SDX_FN f32 near_cos(f32 x) { return cos(x); }
SDX_FN f32 half_sin(f32 x) { return sin(x); }
SDX_FN f32 half_cos(f32 x) { return cos(x); }
SDX_FN f32 near_half_sin(f32 x) { return sin(x); }
SDX_FN f32 near_half_cos(f32 x) { return cos(x); }
SDX_FN f32 sin_or_cos(bool sine, f32 x) { return sine ? sin(x) : cos(x); }
SDX_FN f32 half_sin_or_cos(bool sine, f32 x) { return sine ? sin(x) : cos(x); }
#endif

#if SDX_HAS_FMA && !SDX_GPU
/// Bits of 2^14. bounded_sin() and bounded_cos() are sin() and cos() of what is below it. A loop that has tested its
/// angles takes a quarter of the time.
constexpr u32 kBoundedAngle = 0x46800000u;

SDX_FN f32 bounded_sin(f32 x) {
  const detail::Reduced32 r = detail::reduce_quadrant_small(fabs(x));
  const f32 s = detail::sin_kernel(r.hi, r.lo).hi, c = detail::cos_kernel(r.hi, r.lo).hi;
  const f32 y = (r.quadrant & 1) != 0 ? c : s;
  return bit_cast<f32>(bit_cast<u32>(y) ^ ((r.quadrant & 2) << 30) ^ (bit_cast<u32>(x) & 0x80000000u));
}

SDX_FN f32 bounded_cos(f32 x) {
  const detail::Reduced32 r = detail::reduce_quadrant_small(fabs(x));
  const f32 s = detail::sin_kernel(r.hi, r.lo).hi, c = detail::cos_kernel(r.hi, r.lo).hi;
  const f32 y = (r.quadrant & 1) != 0 ? s : c;
  return bit_cast<f32>(bit_cast<u32>(y) ^ (((r.quadrant + 1) & 2) << 30));
}
#else
constexpr u32 kBoundedAngle = 0;  // no angle is below it
SDX_FN f32 bounded_sin(f32 x) { return sin(x); }
SDX_FN f32 bounded_cos(f32 x) { return cos(x); }
#endif

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
#if SDX_GPU
// sqrt(z) in two parts for z = 0, and for z > 0 that is not subnormal; NaN for z < 0. A GPU's rounded square root and
// division take branches or some twenty instructions. The low part makes up for what the approximation lacks: it is
// that of a step of Newton's method.
SDX_FN Pair32 root(Pair32 z) {
  const f32 r = fast_rsqrt(z.hi == 0.0f ? 1.0f : z.hi), s = z.hi * r;
  return {s, (fma(-s, s, z.hi) + z.lo) * (0.5f * r)};
}
SDX_FN Pair32 root(f32 z) { return root(Pair32{z, 0.0f}); }
#else
SDX_FN Pair32 root(f32 z) {
  const f32 s = sqrt(z);
#if SDX_HAS_FMA
  const f32 e = fma(-s, s, z);
#else
  const f32 e = f32(f64(z) - f64(s) * f64(s));
#endif
  return {s, s > 0.0f ? e / (s + s) : 0.0f};
}
#endif
}  // namespace detail

/// For |x| > 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)). NaN for |x| > 1.
SDX_FN f32 asin(f32 x) {
  const f32 a = fabs(x);
  const bool large = a > 0.5f;
  const f32 z = large ? 0.5f * (1.0f - a) : a * a;
  const detail::Pair32 root = detail::root(z);
  const f32 s = large ? root.hi : a;
  const f32 tail = s * detail::asin_tail(z);
  const f32 minus = 2.0f * (tail + root.lo) - detail::kHalfPiLo32;
  const detail::Pair32 d = detail::fast_two_sum(detail::kHalfPiHi32, -2.0f * s);
  return copysign(large ? d.hi + (d.lo - minus) : s + tail, x);
}

SDX_FN f32 acos(f32 x) {
  const f32 a = fabs(x);
  const bool large = a > 0.5f;
  const f32 z = large ? 0.5f * (1.0f - a) : a * a;
  const detail::Pair32 root = detail::root(z);
  const f32 s = large ? root.hi : x;
  const f32 tail = s * detail::asin_tail(z);
  const f32 p = s + (tail + (large ? root.lo : 0.0f));
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

#if SDX_GPU
// In two f32, since many GPUs compute f64 at a 16th to a 64th of the rate.
namespace detail {
SDX_FN Pair32 two_product(f32 x, f32 y) {
  const f32 hi = x * y;
  return {hi, fma(x, y, -hi)};
}
// n / d for d as quotient(f32, f32) has it.
SDX_FN Pair32 quotient(Pair32 n, Pair32 d) {
  const f32 q = quotient(n.hi, d.hi);
  return {q, quotient(fma(-q, d.hi, n.hi) + (n.lo - q * d.lo), d.hi)};
}
// log(1 + u) for 0 <= u < 2^26, as log1p(f32) has it.
SDX_FN f32 log1p_pair(Pair32 u) {
  const LogParts32 p = log_parts_normal(1.0f + u.hi);
  const f32 scale = bit_cast<f32>(u32(127 - p.k) << 23), k = f32(p.k);
  const f32 f = u.hi * scale + (scale - 1.0f), lo = quotient(u.lo * scale, 1.0f + f);
  return fma(k, kLn2Hi32, f + (fma(k, kLn2Lo32, log1p_tail(f)) + lo));
}
// log(2 x), which asinh and acosh are from 2^14 on: what they lack, 1 / 4x^2, is below 2^-33 of it.
SDX_FN f32 log_twice(f32 x) {
  const LogParts32 p = log_parts_normal(x);
  return x < inf32() ? log_sum(p.f, p.k + 1) : x;
}
}  // namespace detail

/// log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))).
SDX_FN f32 asinh(f32 x) {
  const f32 a = fabs(x), bounded = a < 0x1p14f ? a : 0.0f;
  const detail::Pair32 square = detail::two_product(bounded, bounded), sum = detail::two_sum(1.0f, square.hi);
  const detail::Pair32 s = detail::root(detail::Pair32{sum.hi, sum.lo + square.lo});
  const detail::Pair32 d = detail::fast_two_sum(s.hi, 1.0f);
  const detail::Pair32 q = detail::quotient(square, detail::Pair32{d.hi, d.lo + s.lo});
  const detail::Pair32 u = detail::fast_two_sum(bounded, q.hi);
  const f32 near = detail::log1p_pair(detail::Pair32{u.hi, u.lo + q.lo});
  return copysign(a < 0x1p14f ? near : detail::log_twice(a), x);
}
/// log(1 + d + sqrt(d (x + 1))), d = x - 1. NaN for x < 1.
SDX_FN f32 acosh(f32 x) {
  const f32 bounded = x < 0x1p14f ? x : 1.0f;
  const detail::Pair32 d = detail::two_sum(bounded, -1.0f), e = detail::two_sum(bounded, 1.0f);
  const detail::Pair32 z = detail::two_product(d.hi, e.hi);
  const detail::Pair32 s = detail::root(detail::Pair32{z.hi, z.lo + fma(d.hi, e.lo, d.lo * e.hi)});
  const detail::Pair32 u = detail::fast_two_sum(s.hi, d.hi);
  const f32 near = detail::log1p_pair(detail::Pair32{u.hi, u.lo + (s.lo + d.lo)});
  const f32 r = x < 0x1p14f ? near : detail::log_twice(x);
  return x < 1.0f ? nan32() : r;
}
/// log(1 + 2 |x| / (1 - |x|)) / 2. NaN for |x| > 1.
SDX_FN f32 atanh(f32 x) {
  const f32 a = fabs(x), bounded = a < 1.0f ? a : 0.0f;
  const detail::Pair32 d = detail::fast_two_sum(1.0f, -bounded);
  const f32 r = 0.5f * detail::log1p_pair(detail::quotient(detail::Pair32{bounded + bounded, 0.0f}, d));
  return copysign(a < 1.0f ? r : a == 1.0f ? inf32() : nan32(), x);
}
#else
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

#endif

}  // namespace sdx
SDX_STRICT_END
