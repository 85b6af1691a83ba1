// CUDA's functions on integers, conversions with a rounding mode, reinterpretations, and cached loads.
#pragma once
#include "custom_half.h"
#include "custom_std.h"

SDX_FN int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
SDX_FN int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
SDX_FN int __popc(unsigned x) { return __builtin_popcount(x); }
SDX_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SDX_FN int __ffs(int x) { return x == 0 ? 0 : __builtin_ctz(unsigned(x)) + 1; }
SDX_FN int __ffsll(long long x) { return x == 0 ? 0 : __builtin_ctzll((unsigned long long)x) + 1; }
SDX_FN unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
SDX_FN unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
SDX_FN int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
SDX_FN unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
SDX_FN int __mulhi(int a, int b) { return int(((long long)a * b) >> 32); }
SDX_FN unsigned __umulhi(unsigned a, unsigned b) { return unsigned(((unsigned long long)a * b) >> 32); }
SDX_FN long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
SDX_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
SDX_FN int __sad(int a, int b, unsigned c) {
  return int((a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a)) + c);
}
SDX_FN unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
SDX_FN unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
SDX_FN unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b + 1) >> 1); }
SDX_FN int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
SDX_FN int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
SDX_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((((unsigned long long)high << 32) | low) << (shift & 31)) >> 32);
}
SDX_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)high << 32) | low) >> (shift & 31));
}
SDX_FN unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
SDX_FN unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
/// Bytes of the 8 in a (low) and b (high) that the 4-bit fields of `selector` name; bit 3 of a field replicates the
/// byte's sign.
SDX_FN unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long all = ((unsigned long long)b << 32) | a;
  unsigned r = 0;
  for (int k = 0; k < 4; ++k) {
    const unsigned field = selector >> (4 * k), byte = unsigned(all >> (8 * (field & 7))) & 0xff;
    r |= ((field & 8) != 0 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * k);
  }
  return r;
}
SDX_FN int __dp4a(int a, int b, int c) {
  for (int k = 0; k < 4; ++k) c += int((signed char)(a >> (8 * k))) * int((signed char)(b >> (8 * k)));
  return c;
}
SDX_FN unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int k = 0; k < 4; ++k) c += ((a >> (8 * k)) & 0xff) * ((b >> (8 * k)) & 0xff);
  return c;
}

/// Two 16-bit integers of a times the low (or high) two 8-bit ones of b.
SDX_FN int __dp2a_lo(int a, int b, int c) {
  return c + int(short(a)) * int((signed char)b) + (a >> 16) * int((signed char)(b >> 8));
}
SDX_FN int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
/// The position of the n-th set bit from `base` on, upwards or (n < 0) downwards; n = 0: whether bit `base` is set.
SDX_FN unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  for (unsigned k = base & 31; k < 32; k += n < 0 ? ~0u : 1u)
    if ((mask >> k & 1) != 0 && (n < 0 ? ++n : --n) == 0) return k;
  return ~0u;
}

// --- the bits of one type as another
SDX_FN int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
SDX_FN unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
SDX_FN float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
SDX_FN float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
SDX_FN long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
SDX_FN double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
SDX_FN int __double2hiint(double x) { return int(__builtin_bit_cast(long long, x) >> 32); }
SDX_FN int __double2loint(double x) { return int(__builtin_bit_cast(long long, x)); }
SDX_FN double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, ((unsigned long long)unsigned(high) << 32) | unsigned(low));
}

// --- float to integer: out of range gives the nearest value and NaN 0, as NVIDIA's instructions do
namespace sdx::custom {
template <class To, class F>
SDX_FN To saturated(F x) {
  constexpr F low = F(std::numeric_limits<To>::min());
  constexpr F end = F(sdx::u64(1) << (std::numeric_limits<To>::digits - 1)) * 2;  // the largest value plus 1
  if (x != x) return 0;
  if (x >= end) return std::numeric_limits<To>::max();
  return x <= low ? std::numeric_limits<To>::min() : To(x);
}
}  // namespace sdx::custom
// clang-format off
#define SDX_ROUNDINGS(from, F, to, To)                                                               \
  SDX_FN To __##from##2##to##_rn(F x) { return sdx::custom::saturated<To>(sdx::round(x)); }          \
  SDX_FN To __##from##2##to##_rz(F x) { return sdx::custom::saturated<To>(sdx::trunc(x)); }          \
  SDX_FN To __##from##2##to##_rd(F x) { return sdx::custom::saturated<To>(sdx::floor(x)); }          \
  SDX_FN To __##from##2##to##_ru(F x) { return sdx::custom::saturated<To>(sdx::ceil(x)); }
SDX_ROUNDINGS(float, float, int, int) SDX_ROUNDINGS(float, float, uint, unsigned)
SDX_ROUNDINGS(float, float, ll, long long) SDX_ROUNDINGS(float, float, ull, unsigned long long)
SDX_ROUNDINGS(double, double, int, int) SDX_ROUNDINGS(double, double, uint, unsigned)
SDX_ROUNDINGS(double, double, ll, long long) SDX_ROUNDINGS(double, double, ull, unsigned long long)
#undef SDX_ROUNDINGS
    // clang-format on
    SDX_FN float __int2float_rn(int x) {
  return float(x);
}
SDX_FN float __uint2float_rn(unsigned x) { return float(x); }
SDX_FN float __ll2float_rn(long long x) { return float(x); }
SDX_FN float __ull2float_rn(unsigned long long x) { return float(x); }
SDX_FN double __int2double_rn(int x) { return double(x); }
SDX_FN double __uint2double_rn(unsigned x) { return double(x); }
SDX_FN double __ll2double_rn(long long x) { return double(x); }
SDX_FN double __ull2double_rn(unsigned long long x) { return double(x); }
SDX_FN float __double2float_rn(double x) { return float(x); }

// --- loads and stores with a hint for the caches
// clang-format off
#define SDX_LOAD(name) template <class T> SDX_FN T name(const T* p) { return *p; }
SDX_LOAD(__ldg) SDX_LOAD(__ldca) SDX_LOAD(__ldcg) SDX_LOAD(__ldcs) SDX_LOAD(__ldlu) SDX_LOAD(__ldcv)
#undef SDX_LOAD
#define SDX_STORE(name) template <class T> SDX_FN void name(T* p, T x) { *p = x; }
SDX_STORE(__stwb) SDX_STORE(__stcg) SDX_STORE(__stcs) SDX_STORE(__stwt)
#undef SDX_STORE
// clang-format on

// --- halves to integers
#define SDX_HALF_TO(half, Half, to, To)                                                               \
  SDX_FN To __##half##2##to##_rn(Half x) { return sdx::custom::saturated<To>(sdx::round(float(x))); } \
  SDX_FN To __##half##2##to##_rz(Half x) { return sdx::custom::saturated<To>(sdx::trunc(float(x))); } \
  SDX_FN To __##half##2##to##_rd(Half x) { return sdx::custom::saturated<To>(sdx::floor(float(x))); } \
  SDX_FN To __##half##2##to##_ru(Half x) { return sdx::custom::saturated<To>(sdx::ceil(float(x))); }
#define SDX_HALF_TO_ALL(half, Half)                                                      \
  SDX_HALF_TO(half, Half, int, int)                                                      \
  SDX_HALF_TO(half, Half, uint, unsigned)                                                \
  SDX_HALF_TO(half, Half, short, short)                                                  \
  SDX_HALF_TO(half, Half, ushort, unsigned short) SDX_HALF_TO(half, Half, ll, long long) \
      SDX_HALF_TO(half, Half, ull, unsigned long long)
        SDX_HALF_TO_ALL(half, __half) SDX_HALF_TO_ALL(bfloat16, __nv_bfloat16)
#undef SDX_HALF_TO_ALL
#undef SDX_HALF_TO

    // --- counters of time
    SDX_FN long long clock64() {
  return (long long)__builtin_readcyclecounter();
}
SDX_FN long clock() { return long(clock64()); }
SDX_FN long long wall_clock64() { return (long long)__builtin_readsteadycounter(); }
