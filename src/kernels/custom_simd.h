// CUDA's SIMD functions: two 16-bit or four 8-bit integers in a word.
#pragma once
#include "custom_std.h"

namespace sdx::custom {

/// Combines the integers of type T in two words. `f` takes and returns i32, which is wide enough for sums.
template <class T, class F>
SDX_FN u32 by_lanes(u32 a, u32 b, F f) {
  constexpr u32 bits = sizeof(T) * 8;
  u32 all = 0;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < 32; k += bits) all |= (u32(f(i32(T(a >> k)), i32(T(b >> k)))) & ((1u << bits) - 1)) << k;
  return all;
}
/// The sum of the results.
template <class T, class F>
SDX_FN u32 sum_of_lanes(u32 a, u32 b, F f) {
  u32 sum = 0;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < 32; k += u32(sizeof(T) * 8)) sum += u32(f(i32(T(a >> k)), i32(T(b >> k))));
  return sum;
}
template <class T>
SDX_FN i32 clamped(i32 x) {
  constexpr i32 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return x < low ? low : x > high ? high : x;
}

}  // namespace sdx::custom

// clang-format off
#define SDX_LANES2(name, T, expression)                                    \
  SDX_FN unsigned name(unsigned x, unsigned y) {                           \
    using Lane = T;                                                        \
    return sdx::custom::by_lanes<Lane>(x, y, [](int a, int b) -> int { return expression; }); \
  }
#define SDX_LANES1(name, T, expression)                                    \
  SDX_FN unsigned name(unsigned x) {                                       \
    using Lane = T;                                                        \
    return sdx::custom::by_lanes<Lane>(x, 0, [](int a, int) -> int { return expression; }); \
  }
#define SDX_SUM(name, T, expression)                                       \
  SDX_FN unsigned name(unsigned x, unsigned y) {                           \
    return sdx::custom::sum_of_lanes<T>(x, y, [](int a, int b) -> int { return expression; }); \
  }
// Masks (__vcmp) have all bits of a lane, results of __vset its lowest.
#define SDX_COMPARE(suffix, n, T, comparison)                              \
  SDX_LANES2(__vcmp##suffix##n, T, a comparison b ? -1 : 0) SDX_LANES2(__vset##suffix##n, T, a comparison b)
#define SDX_SIMD(n, S, U)                                                                                          \
  SDX_LANES2(__vadd##n, U, a + b) SDX_LANES2(__vsub##n, U, a - b)                                                  \
  SDX_LANES2(__vaddss##n, S, sdx::custom::clamped<Lane>(a + b)) SDX_LANES2(__vaddus##n, U, sdx::custom::clamped<Lane>(a + b)) \
  SDX_LANES2(__vsubss##n, S, sdx::custom::clamped<Lane>(a - b)) SDX_LANES2(__vsubus##n, U, sdx::custom::clamped<Lane>(a - b)) \
  SDX_LANES2(__vmaxs##n, S, a < b ? b : a) SDX_LANES2(__vmaxu##n, U, a < b ? b : a)                                \
  SDX_LANES2(__vmins##n, S, b < a ? b : a) SDX_LANES2(__vminu##n, U, b < a ? b : a)                                \
  SDX_LANES1(__vabs##n, S, a < 0 ? -a : a) SDX_LANES1(__vabsss##n, S, sdx::custom::clamped<Lane>(a < 0 ? -a : a))  \
  SDX_LANES1(__vneg##n, S, -a) SDX_LANES1(__vnegss##n, S, sdx::custom::clamped<Lane>(-a))                          \
  SDX_LANES2(__vabsdiffs##n, S, a < b ? b - a : a - b) SDX_LANES2(__vabsdiffu##n, U, a < b ? b - a : a - b)        \
  SDX_LANES2(__vavgs##n, S, (a + b + (a + b >= 0)) >> 1) SDX_LANES2(__vavgu##n, U, (a + b + 1) >> 1)               \
  SDX_LANES2(__vhaddu##n, U, (a + b) >> 1)                                                                         \
  SDX_SUM(__vsads##n, S, a < b ? b - a : a - b) SDX_SUM(__vsadu##n, U, a < b ? b - a : a - b)                      \
  SDX_COMPARE(eq, n, U, ==) SDX_COMPARE(ne, n, U, !=)                                                              \
  SDX_COMPARE(ges, n, S, >=) SDX_COMPARE(geu, n, U, >=) SDX_COMPARE(gts, n, S, >) SDX_COMPARE(gtu, n, U, >)        \
  SDX_COMPARE(les, n, S, <=) SDX_COMPARE(leu, n, U, <=) SDX_COMPARE(lts, n, S, <) SDX_COMPARE(ltu, n, U, <)
SDX_SIMD(2, short, unsigned short)
SDX_SIMD(4, signed char, unsigned char)
#undef SDX_SIMD
#undef SDX_COMPARE
#undef SDX_SUM
#undef SDX_LANES1
#undef SDX_LANES2
// clang-format on
