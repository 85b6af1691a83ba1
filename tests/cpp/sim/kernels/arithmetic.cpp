// Arithmetic of every width, written so that the compiler keeps each operation.
#include "device.h"

KERNEL floatMath(const float* a, const float* b, float* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  float x = a[i], y = b[i];
  float* o = out + (u64)i * 12;
  o[0] = x - y;
  o[1] = x * y;
  o[2] = x / y;
  o[3] = __builtin_sqrtf(__builtin_fabsf(x));
  o[4] = __builtin_fmaf(x, y, -x);
  o[5] = __builtin_fminf(x, y);
  o[6] = __builtin_fmaxf(x, -y);
  o[7] = __builtin_floorf(x) + __builtin_truncf(y);
  o[8] = __builtin_rintf(x) - __builtin_ceilf(y);
  o[9] = (float)(int)x + (float)(u32)__builtin_fabsf(y);
  o[10] = x < y ? x : (x != x ? 1.0f : y * 2.5f);
  o[11] = __builtin_copysignf(x, y);
}

KERNEL doubleMath(const double* a, const double* b, double* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  double x = a[i], y = b[i];
  double* o = out + (u64)i * 6;
  o[0] = x + y * 1.2345;
  o[1] = x / y;
  o[2] = __builtin_sqrt(__builtin_fabs(x));
  o[3] = (double)(float)x + (double)(int)y;
  o[4] = __builtin_floor(x) - __builtin_fmin(x, y);
  o[5] = (double)(long long)(x * 1e6) + (double)(u64)__builtin_fabs(y);
}

KERNEL halfMath(const half* a, const half* b, half* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  half x = a[i], y = b[i];
  half* o = out + (u64)i * 6;
  o[0] = x + y;
  o[1] = x * y - (half)1.5f;
  o[2] = x / y;
  o[3] = x > y ? x : -y;
  o[4] = (half)((float)x * 0.333f);
  o[5] = (half)(short)x;
}

KERNEL intMath(const u32* a, const u32* b, u32* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  u32 x = a[i], y = b[i];
  int sx = (int)x, sy = (int)y;
  u32* o = out + (u64)i * 16;
  o[0] = x / (y | 1);
  o[1] = x % (y | 1);
  o[2] = (u32)(sx / (sy | 1));
  o[3] = (u32)(sx % (sy | 1));
  o[4] = x << (y & 31) | x >> (31 - (y & 31));
  o[5] = (u32)(sx >> (y & 31));
  o[6] = (u32)__builtin_popcount(x) + (u32)__builtin_clz(y | 1) + (u32)__builtin_ctz(x | 0x80000000u);
  o[7] = (u32)((u64)x * y >> 32);
  o[8] = (u32)((long long)sx * sy >> 32);
  o[9] = x < y ? x : y;
  o[10] = (u32)(sx > sy ? sx : sy);
  o[11] = (x & 0xffff) * 3 + ((y >> 8) & 0xff);
  o[12] = __builtin_bitreverse32(x) ^ __builtin_bswap32(y);
  o[13] = (u32)(short)x + (u32)(signed char)y;
  o[14] = (x & y) | (~x & 0x12345678);
  o[15] = __builtin_rotateleft32(x, 7) + (x ^ y ^ 0xff00ff);
}

KERNEL longMath(const u64* a, const u64* b, u64* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  u64 x = a[i], y = b[i];
  u64* o = out + (u64)i * 8;
  o[0] = x + y;
  o[1] = x - y;
  o[2] = x * y;
  o[3] = x / (y | 1);
  o[4] = (u64)((long long)x % ((long long)y | 1));
  o[5] = x << (y & 63);
  o[6] = (u64)((long long)x >> (y & 63)) ^ (x >> 3);
  o[7] = x < y ? x : (u64)__builtin_popcountll(y);
}

#if !defined(__GFX9__) && !defined(__GFX10__) && !defined(WAVE64)
// Dual issue: both halves read the registers as they were, and each half's accumulator is its own.
KERNEL dualIssue(const float* a, const float* b, float* out) {
  u32 i = globalX();
  float x, y;
#define DUAL(k, code)                                                                               \
  asm volatile(                                                                                     \
      "v_mov_b32 v0, %2\nv_mov_b32 v1, %3\nv_mov_b32 v2, %2\nv_mov_b32 v3, %3\nv_mov_b32 v4, 1.0\n" \
      "v_mov_b32 v5, 2.0\n" code "\nv_mov_b32 %0, v4\nv_mov_b32 %1, v5"                             \
      : "=&v"(x), "=&v"(y)                                                                          \
      : "v"(a[i]), "v"(b[i])                                                                        \
      : "v0", "v1", "v2", "v3", "v4", "v5");                                                        \
  out[i * 12 + k] = x, out[i * 12 + k + 1] = y;
  DUAL(0, "v_dual_mul_f32 v4, v0, v1 :: v_dual_fmac_f32 v5, v2, v3")
  DUAL(2, "v_dual_fmac_f32 v4, v0, v1 :: v_dual_mul_f32 v5, v2, v3")
  DUAL(4, "v_dual_fmac_f32 v4, v0, v1 :: v_dual_fmac_f32 v5, v2, v3")
  DUAL(6, "v_dual_mov_b32 v4, v5 :: v_dual_add_f32 v5, v4, v3")
  DUAL(8, "v_dual_fmaak_f32 v4, v0, v1, 0x40400000 :: v_dual_fmamk_f32 v5, v2, 0x40400000, v3")
  DUAL(10, "v_dual_add_f32 v4, v0, v1 :: v_dual_subrev_f32 v5, v2, v3")
}
#endif
