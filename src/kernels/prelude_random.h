// Counter-based random numbers: Philox4x32-10. Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
// as 1, 2, 3" (SC 2011). A number depends on seed, stream and index alone, not on who computes it or in which order.
#pragma once
#include "prelude_trig_f32.h"

SDX_STRICT_BEGIN
namespace sdx {

struct u32x4 {
  u32 x, y, z, w;
};

namespace detail {
SDX_FN void philox_round(u32x4& c, u32 k0, u32 k1) {
  const u64 a = u64(0xd2511f53u) * c.x, b = u64(0xcd9e8d57u) * c.z;
  c = {u32(b >> 32) ^ c.y ^ k0, u32(b), u32(a >> 32) ^ c.w ^ k1, u32(a)};
}
}  // namespace detail

/// The block cipher itself: 128 random bits for a counter and a key.
SDX_FN u32x4 philox(u32x4 counter, u32 k0, u32 k1) {
  u32x4 c = counter;
  detail::philox_round(c, k0, k1);
#pragma clang loop unroll(full)
  for (int i = 1; i < 10; i++) {
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
    detail::philox_round(c, k0, k1);
  }
  return c;
}
/// 128 bits for element `index` of random tensor `stream` (say the node's number, or the run's) under `seed`.
SDX_FN u32x4 random_bits(u64 seed, u64 stream, u64 index) {
  return philox({u32(index), u32(index >> 32), u32(stream), u32(stream >> 32)}, u32(seed), u32(seed >> 32));
}

/// Uniform in [0, 1): multiples of 2^-24 (f32), of 2^-53 (f64).
SDX_FN f32 uniform_f32(u32 bits) { return f32(i32(bits >> 8)) * 0x1p-24f; }
SDX_FN f64 uniform_f64(u32 high, u32 low) {
  // 52 bits go into the significand of a number in [1, 2), the 53rd is added.
  const u64 b = (u64(high) << 20) | (low >> 12);
  return (bit_cast<f64>(b | 0x3ff0000000000000u) - 1.0) + ((low & 0x800u) != 0 ? 0x1p-53 : 0.0);
}
/// Uniform in [0, 1) for element `counter` of the tensor whose seed this is.
SDX_FN f32 random_uniform(u64 seed, i64 counter) { return uniform_f32(random_bits(seed, 0, u64(counter)).x); }
/// Standard normal by Box and Muller's transform, sqrt(-2 log u) cos(2 pi v); |result| <= 5.77.
SDX_FN f32 normal_f32(u32 radius_bits, u32 angle_bits) {
  const f32 u = f32(i32(radius_bits >> 8) + 1) * 0x1p-24f;  // (0, 1]
  const i32 fraction = i32(angle_bits << 2);                // of the nearest quadrant
  const u32 quadrant = (angle_bits >> 30) + u32(fraction < 0);
  const f32 r = f32(fraction) * 0x1.921fb6p-32f;
  const f32 c = (quadrant & 1) != 0 ? detail::sin_kernel(r, 0.0f).hi : detail::cos_kernel(r, 0.0f).hi;
  return sqrt(-2.0f * log(u)) * (((quadrant + 1) & 2) != 0 ? -c : c);
}

}  // namespace sdx
SDX_STRICT_END
