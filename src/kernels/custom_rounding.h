// CUDA's arithmetic with a direction of rounding: _rz towards zero, _ru up, _rd down. The exact result is a double and
// the sign of what it lacks.
#pragma once
#include "custom_integers.h"

namespace sdx::custom {

enum class Direction { kZero, kUp, kDown };

/// The neighbour of x among the floats: the next larger one, or the next smaller one.
SDX_FN f32 neighbour(f32 x, bool larger) {
  if (x == 0) return bit_cast<f32>(larger ? 1u : 0x80000001u);
  return bit_cast<f32>(bit_cast<u32>(x) + ((x > 0) == larger ? 1u : ~0u));
}

/// x + rest, where rest is less than a rounding of x, as a float.
SDX_FN f32 directed(f64 x, f64 rest, Direction d) {
  const f32 near = f32(x);
  if (near != near || sdx::isinf(x)) return near;
  const f64 whole = f64(near);
  const bool above = whole > x || (whole == x && rest < 0), below = whole < x || (whole == x && rest > 0);
  const bool down = d == Direction::kDown || (d == Direction::kZero && x > 0);
  if (down && above) return neighbour(near, false);
  if (!down && below) return neighbour(near, true);
  return near;
}
/// The rounding error of a + b (D. Knuth, The Art of Computer Programming, volume 2, 4.2.2).
SDX_FN f64 rest_of_sum(f64 a, f64 b, f64 sum) {
#pragma clang fp contract(off) reassociate(off)
  const f64 part = sum - a;
  return (a - (sum - part)) + (b - part);
}
SDX_FN f32 sum_towards(f64 a, f64 b, Direction d) {
  const f64 sum = a + b;
  return directed(sum, rest_of_sum(a, b, sum), d);
}
SDX_FN f32 quotient_towards(f64 a, f64 b, Direction d) {
  const f64 q = a / b, rest = sdx::fma(-q, b, a);
  return directed(q, b < 0 ? -rest : rest, d);
}
SDX_FN f32 root_towards(f64 x, Direction d) {
  const f64 root = sdx::sqrt(x);
  return directed(root, sdx::fma(-root, root, x), d);
}

}  // namespace sdx::custom

// clang-format off
#define SDX_TOWARDS(suffix, direction)                                                                             \
  SDX_FN float __fadd_##suffix(float x, float y) { return sdx::custom::sum_towards(x, y, direction); }             \
  SDX_FN float __fsub_##suffix(float x, float y) { return sdx::custom::sum_towards(x, -y, direction); }            \
  SDX_FN float __fmul_##suffix(float x, float y) { return sdx::custom::directed(double(x) * y, 0, direction); }    \
  SDX_FN float __fmaf_##suffix(float x, float y, float z) { return sdx::custom::sum_towards(double(x) * y, z, direction); } \
  SDX_FN float __fdiv_##suffix(float x, float y) { return sdx::custom::quotient_towards(x, y, direction); }        \
  SDX_FN float __frcp_##suffix(float x) { return sdx::custom::quotient_towards(1, x, direction); }                 \
  SDX_FN float __fsqrt_##suffix(float x) { return sdx::custom::root_towards(x, direction); }                       \
  SDX_FN float __double2float_##suffix(double x) { return sdx::custom::directed(x, 0, direction); }                \
  SDX_FN float __int2float_##suffix(int x) { return sdx::custom::directed(x, 0, direction); }                      \
  SDX_FN float __uint2float_##suffix(unsigned x) { return sdx::custom::directed(x, 0, direction); }
SDX_TOWARDS(rz, sdx::custom::Direction::kZero)
SDX_TOWARDS(ru, sdx::custom::Direction::kUp)
SDX_TOWARDS(rd, sdx::custom::Direction::kDown)
#undef SDX_TOWARDS
// clang-format on
