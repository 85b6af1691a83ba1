// The functions of prelude_math and prelude_activation for f16 and bf16: computed in f32, rounded once at the end.
#pragma once
#include "prelude_activation.h"

SDX_STRICT_BEGIN
namespace sdx {

#define SDX_HALF1(name)                                            \
  SDX_FN f16 name(f16 x) { return cast<f16>(name(cast<f32>(x))); } \
  SDX_FN bf16 name(bf16 x) { return cast<bf16>(name(cast<f32>(x))); }
#define SDX_HALF2(name)                                                                 \
  SDX_FN f16 name(f16 x, f16 y) { return cast<f16>(name(cast<f32>(x), cast<f32>(y))); } \
  SDX_FN bf16 name(bf16 x, bf16 y) { return cast<bf16>(name(cast<f32>(x), cast<f32>(y))); }
// clang-format off
SDX_HALF1(floor) SDX_HALF1(ceil) SDX_HALF1(trunc) SDX_HALF1(round) SDX_HALF1(sign) SDX_HALF1(fabs) SDX_HALF1(sqrt)
SDX_HALF1(rsqrt) SDX_HALF1(exp) SDX_HALF1(exp2) SDX_HALF1(expm1) SDX_HALF1(log) SDX_HALF1(log2) SDX_HALF1(log10)
SDX_HALF1(log1p) SDX_HALF1(tan) SDX_HALF1(asin) SDX_HALF1(acos) SDX_HALF1(atan)
SDX_HALF1(sinh) SDX_HALF1(cosh) SDX_HALF1(tanh) SDX_HALF1(asinh) SDX_HALF1(acosh) SDX_HALF1(atanh) SDX_HALF1(erf)
SDX_HALF1(sigmoid) SDX_HALF1(silu) SDX_HALF1(softplus) SDX_HALF1(softsign) SDX_HALF1(mish) SDX_HALF1(gelu)
SDX_HALF1(gelu_tanh)
SDX_HALF2(pow) SDX_HALF2(fmod) SDX_HALF2(mod_trunc) SDX_HALF2(mod_floor) SDX_HALF2(min) SDX_HALF2(max) SDX_HALF2(copysign)
// clang-format on
#undef SDX_HALF1
#undef SDX_HALF2
                            SDX_FN f16 sin(f16 x) {
  return cast<f16>(near_sin(cast<f32>(x)));
}
SDX_FN f16 cos(f16 x) { return cast<f16>(near_cos(cast<f32>(x))); }
SDX_FN bf16 sin(bf16 x) { return cast<bf16>(sin(cast<f32>(x))); }
SDX_FN bf16 cos(bf16 x) { return cast<bf16>(cos(cast<f32>(x))); }
SDX_FN bool isnan(f16 x) { return (bit_cast<u16>(x) & 0x7fff) > 0x7c00; }
SDX_FN bool isnan(bf16 x) { return (x.bits & 0x7fff) > 0x7f80; }
SDX_FN bool isinf(f16 x) { return (bit_cast<u16>(x) & 0x7fff) == 0x7c00; }
SDX_FN bool isinf(bf16 x) { return (x.bits & 0x7fff) == 0x7f80; }
SDX_FN f16 clamp(f16 x, f16 lo, f16 hi) { return cast<f16>(clamp(cast<f32>(x), cast<f32>(lo), cast<f32>(hi))); }
#if defined(__AMDGCN__)
/// max(lo, min(x, hi)), rounded; lo <= hi are finite. NaN stays NaN.
SDX_FN f16 bounded_half(f32 x, f32 lo, f32 hi) {
#if defined(SDX_NATIVE_MAXIMUM)
  return cast<f16>(__builtin_elementwise_minimum(__builtin_elementwise_maximum(x, lo), hi));
#else  // the median takes NaN for a small number; two selections would take four instructions instead of three
  const f32 y = __builtin_amdgcn_fmed3f(x, lo, hi);
  return cast<f16>(x != x ? x : y);
#endif
}
#endif
/// x rounded to T, saturating to the largest finite value; NaN stays NaN.
SDX_FN f16 saturated_half(f32 x) {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 800
  // After rounding: one instruction then bounds two values.
  return __builtin_elementwise_minimum(__builtin_elementwise_maximum(cast<f16>(x), f16(-65504.0f)), f16(65504.0f));
#elif defined(__NVPTX__)
  return cast<f16>(__nvvm_fmin_nan_f(__nvvm_fmax_nan_f(x, -65504.0f), 65504.0f));
#elif defined(__AMDGCN__)
  return bounded_half(x, -65504.0f, 65504.0f);
#else
  return cast<f16>(clamp(x, -65504.0f, 65504.0f));
#endif
}
SDX_FN bf16 clamp(bf16 x, bf16 lo, bf16 hi) { return cast<bf16>(clamp(cast<f32>(x), cast<f32>(lo), cast<f32>(hi))); }

}  // namespace sdx
SDX_STRICT_END
