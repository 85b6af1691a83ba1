// __half, __nv_bfloat16 and their pairs. Arithmetic is done in float and rounded once, which for one addition,
// multiplication, division or square root gives the same as arithmetic in 16 bits.
#pragma once
#include "custom_vectors.h"
#include "prelude.h"

struct __half;
struct __nv_bfloat16;

namespace sdx::custom {
template <class T>
struct BitsOf;
template <>
struct BitsOf<__half> {
  using Element = f16;
};
template <>
struct BitsOf<__nv_bfloat16> {
  using Element = bf16;
};
template <class Half>
SDX_FN f32 widened(u16 bits) {
  return cast<f32>(bit_cast<typename BitsOf<Half>::Element>(bits));
}
template <class Half, class From>
SDX_FN u16 narrowed(From x) {
  return bit_cast<u16>(cast<typename BitsOf<Half>::Element>(x));
}
}  // namespace sdx::custom

// clang-format off
// What follows an addition, a multiplication or an fma of halves and of pairs.
#define SDX_HALF_LIMITED(Half, Pair, suffix, limited)                                                               \
  SDX_FN Half __hadd_##suffix(Half a, Half b) { const Half x = a + b; return limited; }                             \
  SDX_FN Half __hsub_##suffix(Half a, Half b) { const Half x = a - b; return limited; }                             \
  SDX_FN Half __hmul_##suffix(Half a, Half b) { const Half x = a * b; return limited; }                             \
  SDX_FN Half __hfma_##suffix(Half a, Half b, Half c) { const Half x = __hfma(a, b, c); return limited; }           \
  SDX_FN Pair __hadd2_##suffix(Pair a, Pair b) { return {__hadd_##suffix(a.x, b.x), __hadd_##suffix(a.y, b.y)}; }   \
  SDX_FN Pair __hsub2_##suffix(Pair a, Pair b) { return {__hsub_##suffix(a.x, b.x), __hsub_##suffix(a.y, b.y)}; }   \
  SDX_FN Pair __hmul2_##suffix(Pair a, Pair b) { return {__hmul_##suffix(a.x, b.x), __hmul_##suffix(a.y, b.y)}; }   \
  SDX_FN Pair __hfma2_##suffix(Pair a, Pair b, Pair c) {                                                            \
    return {__hfma_##suffix(a.x, b.x, c.x), __hfma_##suffix(a.y, b.y, c.y)};                                        \
  }
// Comparisons of pairs: 1 or 0 for each, whether both hold (__hb), all bits of each as a mask; and of halves and pairs
// that hold for NaN too (u).
#define SDX_HALF_COMPARE(Half, Pair, name)                                                                           \
  SDX_FN bool __h##name##u(Half a, Half b) { return a != a || b != b || __h##name(a, b); }                           \
  SDX_FN Pair __h##name##2(Pair a, Pair b) { return {Half(float(__h##name(a.x, b.x))), Half(float(__h##name(a.y, b.y)))}; } \
  SDX_FN bool __hb##name##2(Pair a, Pair b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }                   \
  SDX_FN bool __hb##name##u2(Pair a, Pair b) { return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y); }            \
  SDX_FN unsigned __h##name##2_mask(Pair a, Pair b) {                                                                \
    return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);                          \
  }
#define SDX_HALF(Half, Pair)                                                                                        \
  struct __attribute__((aligned(2))) Half {                                                                         \
    unsigned short bits;                                                                                            \
    Half() = default;                                                                                               \
    SDX_FN Half(float x) : bits(sdx::custom::narrowed<Half>(x)) {}                                                  \
    SDX_FN Half(double x) : bits(sdx::custom::narrowed<Half>(x)) {}                                                 \
    SDX_FN Half(int x) : bits(sdx::custom::narrowed<Half>(x)) {}                                                    \
    SDX_FN Half(unsigned x) : bits(sdx::custom::narrowed<Half>(x)) {}                                               \
    SDX_FN Half(long x) : bits(sdx::custom::narrowed<Half>(x)) {}                                                   \
    SDX_FN Half(unsigned long x) : bits(sdx::custom::narrowed<Half>(x)) {}                                          \
    SDX_FN Half(long long x) : bits(sdx::custom::narrowed<Half>(x)) {}                                              \
    SDX_FN Half(unsigned long long x) : bits(sdx::custom::narrowed<Half>(x)) {}                                     \
    SDX_FN operator float() const { return sdx::custom::widened<Half>(bits); }                                      \
    SDX_FN Half operator-() const { Half h; h.bits = bits ^ 0x8000; return h; }                                     \
    SDX_FN Half operator+() const { return *this; }                                                                 \
  };                                                                                                                \
  SDX_FN Half operator+(Half a, Half b) { return Half(float(a) + float(b)); }                                       \
  SDX_FN Half operator-(Half a, Half b) { return Half(float(a) - float(b)); }                                       \
  SDX_FN Half operator*(Half a, Half b) { return Half(float(a) * float(b)); }                                       \
  SDX_FN Half operator/(Half a, Half b) { return Half(float(a) / float(b)); }                                       \
  SDX_FN Half& operator+=(Half& a, Half b) { return a = a + b; }                                                    \
  SDX_FN Half& operator-=(Half& a, Half b) { return a = a - b; }                                                    \
  SDX_FN Half& operator*=(Half& a, Half b) { return a = a * b; }                                                    \
  SDX_FN Half& operator/=(Half& a, Half b) { return a = a / b; }                                                    \
  SDX_FN bool operator==(Half a, Half b) { return float(a) == float(b); }                                           \
  SDX_FN bool operator!=(Half a, Half b) { return float(a) != float(b); }                                           \
  SDX_FN bool operator<(Half a, Half b) { return float(a) < float(b); }                                             \
  SDX_FN bool operator>(Half a, Half b) { return float(a) > float(b); }                                             \
  SDX_FN bool operator<=(Half a, Half b) { return float(a) <= float(b); }                                           \
  SDX_FN bool operator>=(Half a, Half b) { return float(a) >= float(b); }                                           \
  struct __attribute__((aligned(4))) Pair {                                                                         \
    Half x, y;                                                                                                      \
    Pair() = default;                                                                                               \
    SDX_FN Pair(Half x, Half y) : x(x), y(y) {}                                                                     \
  };                                                                                                                \
  SDX_FN Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }                                          \
  SDX_FN Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }                                          \
  SDX_FN Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }                                          \
  SDX_FN Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }                                          \
  SDX_FN Pair operator-(Pair a) { return {-a.x, -a.y}; }                                                            \
  SDX_FN Pair& operator+=(Pair& a, Pair b) { return a = a + b; }                                                    \
  SDX_FN Pair& operator-=(Pair& a, Pair b) { return a = a - b; }                                                    \
  SDX_FN Pair& operator*=(Pair& a, Pair b) { return a = a * b; }                                                    \
  SDX_FN Half __hadd(Half a, Half b) { return a + b; }                                                              \
  SDX_FN Half __hsub(Half a, Half b) { return a - b; }                                                              \
  SDX_FN Half __hmul(Half a, Half b) { return a * b; }                                                              \
  SDX_FN Half __hdiv(Half a, Half b) { return a / b; }                                                              \
  SDX_FN Half __hneg(Half a) { return -a; }                                                                         \
  SDX_FN Half __habs(Half a) { a.bits &= 0x7fff; return a; }                                                        \
  SDX_FN Half __hfma(Half a, Half b, Half c) { return Half(sdx::fma(float(a), float(b), float(c))); }               \
  SDX_FN bool __heq(Half a, Half b) { return a == b; }                                                              \
  SDX_FN bool __hne(Half a, Half b) { return a < b || a > b; }                                                              \
  SDX_FN bool __hlt(Half a, Half b) { return a < b; }                                                               \
  SDX_FN bool __hle(Half a, Half b) { return a <= b; }                                                              \
  SDX_FN bool __hgt(Half a, Half b) { return a > b; }                                                               \
  SDX_FN bool __hge(Half a, Half b) { return a >= b; }                                                              \
  SDX_FN bool __hisnan(Half a) { return a != a; }                                                                   \
  SDX_FN Half __hmax(Half a, Half b) { return a != a || a < b ? b : a; }                                            \
  SDX_FN Half __hmin(Half a, Half b) { return a != a || b < a ? b : a; }                                            \
  SDX_FN Half hexp(Half a) { return Half(sdx::exp(float(a))); }                                                     \
  SDX_FN Half hexp2(Half a) { return Half(sdx::exp2(float(a))); }                                                   \
  SDX_FN Half hlog(Half a) { return Half(sdx::log(float(a))); }                                                     \
  SDX_FN Half hlog2(Half a) { return Half(sdx::log2(float(a))); }                                                   \
  SDX_FN Half hsqrt(Half a) { return Half(sdx::sqrt(float(a))); }                                                   \
  SDX_FN Half hrsqrt(Half a) { return Half(sdx::rsqrt(float(a))); }                                                 \
  SDX_FN Half hrcp(Half a) { return Half(1.0f / float(a)); }                                                        \
  SDX_FN Half hsin(Half a) { return Half(sdx::sin(float(a))); }                                                     \
  SDX_FN Half hcos(Half a) { return Half(sdx::cos(float(a))); }                                                     \
  SDX_FN Half htanh(Half a) { return Half(sdx::tanh(float(a))); }                                                   \
  SDX_FN Half hfloor(Half a) { return Half(sdx::floor(float(a))); }                                                 \
  SDX_FN Half hceil(Half a) { return Half(sdx::ceil(float(a))); }                                                   \
  SDX_FN Half hrint(Half a) { return Half(sdx::round(float(a))); }                                                  \
  SDX_FN Half htrunc(Half a) { return Half(sdx::trunc(float(a))); }                                                 \
  SDX_FN Pair __hadd2(Pair a, Pair b) { return a + b; }                                                             \
  SDX_FN Pair __hsub2(Pair a, Pair b) { return a - b; }                                                             \
  SDX_FN Pair __hmul2(Pair a, Pair b) { return a * b; }                                                             \
  SDX_FN Pair __h2div(Pair a, Pair b) { return a / b; }                                                             \
  SDX_FN Pair __hneg2(Pair a) { return -a; }                                                                        \
  SDX_FN Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }                                                \
  SDX_FN Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }            \
  SDX_FN Pair __hmax2(Pair a, Pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                              \
  SDX_FN Pair __hmin2(Pair a, Pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                              \
  SDX_FN Pair h2exp(Pair a) { return {hexp(a.x), hexp(a.y)}; }                                                      \
  SDX_FN Pair h2exp2(Pair a) { return {hexp2(a.x), hexp2(a.y)}; }                                                   \
  SDX_FN Pair h2log(Pair a) { return {hlog(a.x), hlog(a.y)}; }                                                      \
  SDX_FN Pair h2sqrt(Pair a) { return {hsqrt(a.x), hsqrt(a.y)}; }                                                   \
  SDX_FN Pair h2rsqrt(Pair a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }                                                \
  SDX_FN Pair h2rcp(Pair a) { return {hrcp(a.x), hrcp(a.y)}; }                                                      \
  SDX_FN Pair h2tanh(Pair a) { return {htanh(a.x), htanh(a.y)}; }                                                   \
  SDX_FN Pair h2sin(Pair a) { return {hsin(a.x), hsin(a.y)}; }                                                       \
  SDX_FN Pair h2cos(Pair a) { return {hcos(a.x), hcos(a.y)}; }                                                       \
  SDX_FN Pair h2log2(Pair a) { return {hlog2(a.x), hlog2(a.y)}; }                                                    \
  SDX_FN Half hlog10(Half a) { return Half(sdx::log10(float(a))); }                                                  \
  SDX_FN Pair h2log10(Pair a) { return {hlog10(a.x), hlog10(a.y)}; }                                                 \
  SDX_FN Half hexp10(Half a) { return Half(sdx::exp(double(float(a)) * 2.30258509299404568402)); }                   \
  SDX_FN Pair h2exp10(Pair a) { return {hexp10(a.x), hexp10(a.y)}; }                                                 \
  SDX_FN Pair h2floor(Pair a) { return {hfloor(a.x), hfloor(a.y)}; }                                                 \
  SDX_FN Pair h2ceil(Pair a) { return {hceil(a.x), hceil(a.y)}; }                                                    \
  SDX_FN Pair h2rint(Pair a) { return {hrint(a.x), hrint(a.y)}; }                                                    \
  SDX_FN Pair h2trunc(Pair a) { return {htrunc(a.x), htrunc(a.y)}; }                                                 \
  SDX_FN Half __hmax_nan(Half a, Half b) { return a != a || b < a ? a : b; }                                         \
  SDX_FN Half __hmin_nan(Half a, Half b) { return a != a || a < b ? a : b; }                                         \
  SDX_FN int __hisinf(Half a) { return float(a) - float(a) == 0 || a != a ? 0 : float(a) > 0 ? 1 : -1; }             \
  SDX_FN Half __hadd_rn(Half a, Half b) { return a + b; }                                                            \
  SDX_FN Half __hsub_rn(Half a, Half b) { return a - b; }                                                            \
  SDX_FN Half __hmul_rn(Half a, Half b) { return a * b; }                                                            \
  SDX_HALF_LIMITED(Half, Pair, sat, float(x) > 0.0f ? (float(x) < 1.0f ? x : Half(1.0f)) : Half(0.0f))               \
  SDX_FN Half __hfma_relu(Half a, Half b, Half c) { const Half x = __hfma(a, b, c); return x != x || float(x) > 0 ? x : Half(0.0f); } \
  SDX_FN Pair __hfma2_relu(Pair a, Pair b, Pair c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; } \
  SDX_HALF_COMPARE(Half, Pair, eq)                                                                               \
  SDX_HALF_COMPARE(Half, Pair, ne)                                                                               \
  SDX_HALF_COMPARE(Half, Pair, lt)                                                                                \
  SDX_HALF_COMPARE(Half, Pair, le)                                                                               \
  SDX_HALF_COMPARE(Half, Pair, gt)                                                                                \
  SDX_HALF_COMPARE(Half, Pair, ge)                                                                               \
  SDX_FN Pair __hisnan2(Pair a) { return {Half(float(a.x != a.x)), Half(float(a.y != a.y))}; }                       \
  SDX_FN Pair __lowhigh2highlow(Pair a) { return {a.y, a.x}; }                                                      \
  SDX_FN float __low2float(Pair a) { return float(a.x); }                                                           \
  SDX_FN float __high2float(Pair a) { return float(a.y); }
SDX_HALF(__half, __half2)
SDX_HALF(__nv_bfloat16, __nv_bfloat162)
#undef SDX_HALF
#undef SDX_HALF_COMPARE
#undef SDX_HALF_LIMITED

// The conversions, whose names differ: half, bfloat16.
#define SDX_CONVERT(Half, Pair, half)                                                                    \
  SDX_FN float __##half##2float(Half a) { return float(a); }                                                        \
  SDX_FN Half __float2##half(float a) { return Half(a); }                                                           \
  SDX_FN Half __float2##half##_rn(float a) { return Half(a); }                                                      \
  SDX_FN Half __double2##half(double a) { return Half(a); }                                                         \
  SDX_FN Half __int2##half##_rn(int a) { return Half(a); }                                                          \
  SDX_FN Half __uint2##half##_rn(unsigned a) { return Half(a); }                                                    \
  SDX_FN Half __short2##half##_rn(short a) { return Half(int(a)); }                                      \
  SDX_FN Half __ushort2##half##_rn(unsigned short a) { return Half(int(a)); }                            \
  SDX_FN Half __ll2##half##_rn(long long a) { return Half(a); }                                          \
  SDX_FN Half __ull2##half##_rn(unsigned long long a) { return Half(a); }                                \
  SDX_FN Pair __lows2##half##2(Pair a, Pair b) { return {a.x, b.x}; }                                    \
  SDX_FN Pair __highs2##half##2(Pair a, Pair b) { return {a.y, b.y}; }                                   \
  SDX_FN Pair __##half##2##half##2(Half a) { return {a, a}; }                                                       \
  SDX_FN Pair __float2##half##2_rn(float a) { return {Half(a), Half(a)}; }                                          \
  SDX_FN Pair __floats2##half##2_rn(float a, float b) { return {Half(a), Half(b)}; }                                \
  SDX_FN Pair __float22##half##2_rn(float2 a) { return {Half(a.x), Half(a.y)}; }                                    \
  SDX_FN float2 __##half##22float2(Pair a) { return {float(a.x), float(a.y)}; }                                     \
  SDX_FN Pair __halves2##half##2(Half a, Half b) { return {a, b}; }                                                 \
  SDX_FN Half __low2##half(Pair a) { return a.x; }                                                                  \
  SDX_FN Half __high2##half(Pair a) { return a.y; }                                                                 \
  SDX_FN Pair __low2##half##2(Pair a) { return {a.x, a.x}; }                                                        \
  SDX_FN Pair __high2##half##2(Pair a) { return {a.y, a.y}; }                                                       \
  SDX_FN unsigned short __##half##_as_ushort(Half a) { return a.bits; }                                             \
  SDX_FN short __##half##_as_short(Half a) { return short(a.bits); }                                                \
  SDX_FN Half __ushort_as_##half(unsigned short a) { Half h; h.bits = a; return h; }                                \
  SDX_FN Half __short_as_##half(short a) { return __ushort_as_##half((unsigned short)a); }                          \
  SDX_FN Half make_##half(Half a) { return a; }                                                                     \
  SDX_FN Pair make_##half##2(Half a, Half b) { return {a, b}; }
SDX_CONVERT(__half, __half2, half)
SDX_CONVERT(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef SDX_CONVERT
// clang-format on

using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __hip_bfloat16 = __nv_bfloat16;
using __hip_bfloat162 = __nv_bfloat162;
using hip_bfloat16 = __nv_bfloat16;

static_assert(sizeof(__half) == 2 && sizeof(__half2) == 4 && sizeof(__nv_bfloat162) == 4);

// clang-format off
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffu)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7fu)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80u)
// clang-format on
