// NVIDIA's conversions from float32 to smaller types take two values at a time; these convert four neighbouring
// results.
#pragma once
#include "prelude_cast.h"

#if defined(__NVPTX__) && defined(SDX_F8_CONVERT)
namespace sdx {
namespace detail {

/// x, rounded to To, in the low half.
template <class To, bool Saturates>
SDX_FN u32 pair_of(f32 x, f32 y) {
  u32 r;
  if constexpr (is_same<To, f16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    if constexpr (Saturates) {  // -65504 and 65504; NaN stays NaN
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0xfbfffbff));
      asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0x7bff7bff));
    }
  } else if constexpr (is_same<To, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  } else if constexpr (is_same<To, f8e4m3fn>) {
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e4m3x2.f32 h, %1, %2;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(r)
        : "f"(y), "f"(x));
  } else {
    static_assert(is_same<To, f8e5m2>);
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e5m2x2.f32 h, %1, %2;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(r)
        : "f"(y), "f"(x));
  }
  return r;
}

}  // namespace detail

/// Four results of type To from what Emitter::wide() computes, in one or two words.
template <class To, bool Saturates>
SDX_FN void pack_wide(const f32 (&x)[4], u32* words) {
  const u32 low = detail::pair_of<To, Saturates>(x[0], x[1]), high = detail::pair_of<To, Saturates>(x[2], x[3]);
  if constexpr (sizeof(To) == 2)
    words[0] = low, words[1] = high;
  else
    words[0] = __nvvm_prmt(low, high, 0x5410);
}
template <class To, bool Saturates>
SDX_FN void pack_wide(const i32 (&x)[4], u32* words) {
  static_assert(sizeof(To) == 1);
  words[0] = __nvvm_prmt(__nvvm_prmt(u32(x[0]), u32(x[1]), 0x0040), __nvvm_prmt(u32(x[2]), u32(x[3]), 0x0040), 0x5410);
}

}  // namespace sdx
#endif
