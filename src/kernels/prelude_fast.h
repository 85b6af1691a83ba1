// Fast, less accurate functions for kernels whose results have at most 16 bits or that bound the arguments themselves
// (attention's running softmax). Arguments and results below 2^-126 may be flushed to 0.
#pragma once
#include "prelude_math_f32.h"

SDX_STRICT_BEGIN
namespace sdx {

#if defined(__AMDGCN__)
/// 2^x, relative error at most 2^-22.
SDX_FN f32 fast_exp2(f32 x) { return __builtin_amdgcn_exp2f(x); }
/// log2(x), absolute error at most 2^-22 near 1, relative elsewhere.
SDX_FN f32 fast_log2(f32 x) { return __builtin_amdgcn_logf(x); }
/// 1 / x, relative error at most 2^-22.
SDX_FN f32 fast_rcp(f32 x) { return __builtin_amdgcn_rcpf(x); }
/// 1 / sqrt(x), relative error at most 2^-22.
SDX_FN f32 fast_rsqrt(f32 x) { return __builtin_amdgcn_rsqf(x); }
#elif defined(__NVPTX__)
SDX_FN f32 fast_exp2(f32 x) { return __nvvm_ex2_approx_ftz_f(x); }
SDX_FN f32 fast_log2(f32 x) { return __nvvm_lg2_approx_ftz_f(x); }
SDX_FN f32 fast_rcp(f32 x) { return __nvvm_rcp_approx_ftz_f(x); }
SDX_FN f32 fast_rsqrt(f32 x) { return __nvvm_rsqrt_approx_ftz_f(x); }
#else
SDX_FN f32 fast_exp2(f32 x) { return exp2(x); }
SDX_FN f32 fast_log2(f32 x) { return log2(x); }
SDX_FN f32 fast_rcp(f32 x) { return 1.0f / x; }
SDX_FN f32 fast_rsqrt(f32 x) { return rsqrt(x); }
#endif

// For results that are rounded to 16 bits: relative errors of at most 2^-16 where these can hold the result.
#if defined(__AMDGCN__)
/// Correctly rounded, 1 / x takes about 12 instructions.
SDX_FN f32 half_reciprocal(f32 x) {
  const f32 scale = fabs(x) > 0x1p+96f ? 0x1p-32f : 1.0f;  // the instruction flushes results below 2^-126
  return fast_rcp(x * scale) * scale;
}
SDX_FN f32 half_divide(f32 x, f32 y) { return x * half_reciprocal(y); }
SDX_FN f32 half_sqrt(f32 x) { return __builtin_amdgcn_sqrtf(x); }
SDX_FN f32 half_rsqrt(f32 x) { return fast_rsqrt(x); }
#elif defined(__NVPTX__)
/// Correctly rounded ones have a branch each: in the epilogue of a GEMM with a root and its inverse for each of 128
/// sums, ptxas spent seconds. Errors of at most two units in the last place; none flushes what is below 2^-126.
SDX_FN f32 half_reciprocal(f32 x) {
  f32 y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SDX_FN f32 half_divide(f32 x, f32 y) { return x / y; }  // exact where a quotient is whole, which a floor may follow
SDX_FN f32 half_sqrt(f32 x) {
  f32 y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SDX_FN f32 half_rsqrt(f32 x) {
  f32 y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
SDX_FN f32 half_reciprocal(f32 x) { return f32(1) / x; }
SDX_FN f32 half_divide(f32 x, f32 y) { return x / y; }
SDX_FN f32 half_sqrt(f32 x) { return sqrt(x); }
SDX_FN f32 half_rsqrt(f32 x) { return rsqrt(x); }
#endif
SDX_FN f32 half_exp(f32 x) { return fast_exp2(x * 0x1.715476p+0f); }
SDX_FN f32 half_sigmoid(f32 x) { return fast_rcp(1.0f + half_exp(-x)); }
SDX_FN f32 half_tanh(f32 x) {
  const f32 near = fma(x * x, x * (-1.0f / 3), x);  // where 1 - 2 / (1 + e^2x) would cancel
  const f32 far = 1.0f - 2.0f * fast_rcp(1.0f + half_exp(x + x));
  return fabs(x) < 0.0625f ? near : far;
}
/// 1 + tanh(x scale) without cancellation where tanh is close to -1.
SDX_FN f32 half_one_plus_tanh(f32 x, f32 scale) {
  // 2 / (1 + e^(-2 x scale)); the factors of a constant scale are folded when compiling.
  return fast_rcp(fma(fast_exp2(x * (scale * -0x1.715476p+1f)), 0.5f, 0.5f));
}
/// Of erf: log2(1 - erf(a)) for a >= 0, by `tools/fit_polynomials.py half_log2_erfc`: errors of erf below 2^-20. It
/// keeps falling where erf is 1.
SDX_FN f32 half_log2_erfc(f32 a) {
  f32 q = fma(a, 0x1.853a74p-9f, -0x1.e678c8p-6f);
  q = fma(a, q, 0x1.30be28p-3f);
  q = fma(a, q, 0x1.d63e1p-1f);
  return -a * fma(a, q, 0x1.a0bdfep+0f);
}
SDX_FN f32 half_erf(f32 x) {
  const f32 a = fabs(x);
  // 2 x / sqrt(pi) (1 - x^2 / 3), where the difference would cancel.
  const f32 near = x * fma(x * x, -0x1.812746p-2f, 0x1.20dd76p+0f);
  const f32 far = copysign(1.0f - fast_exp2(half_log2_erfc(a)), x);  // not inlined below: would become a branch
  return a < 0.0625f ? near : far;
}
/// 1 + erf(x) without cancellation where erf is close to -1.
SDX_FN f32 half_one_plus_erf(f32 x) {
  const f32 e = fast_exp2(half_log2_erfc(fabs(x)));
  return x < 0.0f ? e : 2.0f - e;
}

}  // namespace sdx
SDX_STRICT_END
