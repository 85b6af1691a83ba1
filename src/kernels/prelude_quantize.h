// QuantizeLinear to 8 bits by a scale that is known while compiling, for GPUs: as exact as a division, which takes a
// dozen instructions and a branch there.
#pragma once
#include "prelude_basic.h"
#include "prelude_cast.h"

SDX_STRICT_BEGIN
namespace sdx {

/// x / scale rounded to nearest, for |x / scale| in the range of 8-bit types and scales from 2^-60 to 2^60; quotients
/// that are too small to affect a result of 8 bits may be off. `inverse` is 1 / scale, rounded to nearest. Source:
/// Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor": one correction of a quotient
/// by a correctly rounded reciprocal rounds correctly.
SDX_FN f32 quotient(f32 x, f32 scale, f32 inverse) {
  const f32 q = x * inverse;
  return __builtin_fmaf(__builtin_fmaf(-q, scale, x), inverse, q);
}

/// round(x / scale) + zero, saturated, for To = i8 or u8. lowest and largest: the smallest and the
/// largest value of To, minus zero, times scale: values beyond give the same result. NaN gives the smallest value, as
/// in ONNX Runtime.
template <class To>
SDX_FN To quantized(f32 x, f32 scale, f32 inverse, f32 lowest, f32 largest, i32 zero) {
  const f32 within = __builtin_fminf(__builtin_fmaxf(x, lowest), largest);
  // Adding 1.5 * 2^23 rounds to an integer, half to even, which is in the low bits of the sum.
  return To(bit_cast<i32>(quotient(within, scale, inverse) + 0x1.8p23f) + zero);
}

/// round(x * inverse) + zero, for pack_wide(), which saturates it: too large a result is an integer beyond the range of
/// 8 bits, too. lowest: as above.
SDX_FN i32 wide_code(f32 x, f32 inverse, f32 lowest, i32 zero) {
  constexpr i32 kBits = 0x4b400000;  // of 1.5 * 2^23
  return bit_cast<i32>(__builtin_fmaf(__builtin_fmaxf(x, lowest), inverse, 0x1.8p23f)) + (zero - kBits);
}

/// cast<To>(x / scale) for 8-bit floats, saturated; likewise. NaN stays NaN.
template <class To>
SDX_FN To quantized_float(f32 x, f32 scale, f32 inverse, f32 largest) {
  return cast<To>(quotient(min(max(x, -largest), largest), scale, inverse));
}

}  // namespace sdx
SDX_STRICT_END
