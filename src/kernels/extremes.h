// Maxima and minima of packs of float16 elements, NaN if any is NaN, without conversion to float32.
#pragma once
#include "gpu.h"

namespace sdx {

#if defined(SDX_NATIVE_MAXIMUM) || !defined(__AMDGCN__)
template <bool Max, int V>
struct HalfExtremes {
  using Half __attribute__((ext_vector_type(V))) = f16;
  Half best = Half(f16(Max ? -inf32() : inf32()));

  SDX_FN void add(Pack<f16, V> x) {
    const Half y = bit_cast<Half>(x);
    best = Max ? __builtin_elementwise_maximum(best, y) : __builtin_elementwise_minimum(best, y);
  }
  SDX_FN f32 at(int l) const { return f32(best[l]); }
};
#else
/// v_pk_max_f16 ignores NaN. So the largest absolute value is kept beside it, as an integer; NaN is above infinity.
template <bool Max, int V>
struct HalfExtremes {
  using Two __attribute__((ext_vector_type(2))) = u16;
  struct Words {
    u32 of[V / 2];
  };
  u32 best[V / 2];
  Two largest[V / 2];

  SDX_FN HalfExtremes() {
#pragma clang loop unroll(full)
    for (int i = 0; i < V / 2; ++i) best[i] = Max ? 0xfc00fc00u : 0x7c007c00u, largest[i] = Two(u16(0));
  }
  SDX_FN void add(Pack<f16, V> x) {
    const Words y = bit_cast<Words>(x);
#pragma clang loop unroll(full)
    for (int i = 0; i < V / 2; ++i) {
      // The compiler would quiet NaNs first.
      if constexpr (Max)
        asm("v_pk_max_f16 %0, %0, %1" : "+v"(best[i]) : "v"(y.of[i]));
      else
        asm("v_pk_min_f16 %0, %0, %1" : "+v"(best[i]) : "v"(y.of[i]));
      largest[i] = __builtin_elementwise_max(largest[i], bit_cast<Two>(y.of[i] & 0x7fff7fffu));
    }
  }
  SDX_FN f32 at(int l) const {
    const f32 x = f32(bit_cast<f16>(u16(best[l / 2] >> l % 2 * 16)));
    return largest[l / 2][l % 2] > 0x7c00 ? nan32() : x;
  }
};
#endif

}  // namespace sdx
