// Kernels whose time on a card can be worked out by hand from target/timing.h.
#include "device.h"

typedef float float4v __attribute__((ext_vector_type(4)));
typedef half half4v __attribute__((ext_vector_type(4)));
typedef half half16v __attribute__((ext_vector_type(16)));
typedef float float8v __attribute__((ext_vector_type(8)));

/// One lane follows `loads` pointers.
KERNEL chase(const u32* next, u32* out, u32 loads) {
  u32 at = 0;
  for (u32 i = 0; i < loads; ++i) at = __builtin_nontemporal_load(next + at);
  if (localX() == 0) out[0] = at;
}

/// 64 multiply-adds a turn, each of which needs the one before.
KERNEL dependent(float* out, float start, u32 turns) {
  const float x = start + static_cast<float>(localX());  // not the same for all lanes: gfx12 has scalar floats
  float y = x;
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 64; ++k) y = __builtin_fmaf(y, x, x);
  out[globalX()] = y;
}

/// The first workgroup has the most turns, as under a causal mask.
KERNEL declining(float* out, float start, u32 most, u32 groups) {
  const float x = start + static_cast<float>(localX());
  const u32 turns = most * (groups - groupX()) / groups;
  float y = x;
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 64; ++k) y = __builtin_fmaf(y, x, x);
  out[globalX()] = y;
}

/// As `dependent`, of eight chains.
KERNEL independent(float* out, float start, u32 turns) {
  const float x = start + static_cast<float>(localX());
  float y[8] = {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7};
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 64; ++k) {
      y[k % 8] = __builtin_fmaf(y[k % 8], x, x);
      asm volatile("" : "+v"(y[k % 8]));  // no packed arithmetic of two
    }
  float sum = 0;
  for (float v : y) sum += v;
  out[globalX()] = sum;
}

SHARED u32 store[8192];

/// 16 reads of LDS a turn by each lane, `stride` dwords apart from lane to lane.
KERNEL ldsStride(u32* out, u32 stride, u32 turns) {
  for (u32 i = localX(); i < 8192; i += groupSizeX()) store[i] = i;
  barrier();
  u32 sum = 0, at = localX() * stride % 4096;
  for (u32 i = 0; i < turns; ++i) {
#pragma clang loop unroll(full)
    for (u32 k = 0; k < 16; ++k) sum += store[at + k * 64];
    at ^= sum & 0x80000000u;  // sums stay below 2^31: the address does not change, but the compiler cannot know
  }
  out[globalX()] = sum;
}

/// 16 reads of LDS a turn whose address the compiler does not know to be in LDS: flat loads.
KERNEL ldsFlat(u32* out, u32 stride, u32 turns) {
  for (u32 i = localX(); i < 8192; i += groupSizeX()) store[i] = i;
  barrier();
  u32 sum = 0;
  volatile u32* generic = (volatile u32*)store;
  const u32 at = localX() * stride % 4096;
  for (u32 i = 0; i < turns; ++i) {
#pragma clang loop unroll(full)
    for (u32 k = 0; k < 16; ++k) sum += generic[at + k * 64];
  }
  out[globalX()] = sum;
}

/// 16 loads a turn of lanes that are `stride` dwords apart, from memory that stays in L1.
KERNEL strided(const u32* in, u32* out, u32 stride, u32 turns) {
  u32 sum = 0;
  const volatile u32* from = in + localX() % 64 * stride;
  for (u32 i = 0; i < turns; ++i) {
#pragma clang loop unroll(full)
    for (u32 k = 0; k < 16; ++k) sum += from[k % 4];
  }
  out[globalX()] = sum;
}

/// One atomic of each wave, all on one word.
KERNEL atomicOne(u32* out) {
  if (localX() % 64 == 0) __scoped_atomic_fetch_add(out, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

KERNEL copy(const float4v* from, float4v* to) { to[globalX()] = from[globalX()]; }

/// Waves of a workgroup that arrive one after another.
KERNEL uneven(float* out, float start) {
  const float x = start + static_cast<float>(localX());
  float y = x;
  if (localX() / 64 == 0)
    for (u32 i = 0; i < 1000; ++i) y = __builtin_fmaf(y, x, x);
  barrier();
  out[globalX()] = y;
}

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
/// Four chains of matrix products.
KERNEL matrixRate(float* out, u32 turns) {
  half4v a = {1, 2, 3, 4};
  float4v c[4] = {};
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 32; ++k) c[k % 4] = __builtin_amdgcn_mfma_f32_16x16x16f16(a, a, c[k % 4], 0, 0, 0);
  out[globalX()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
}
#elif defined(__gfx1100__)
KERNEL matrixRate(float* out, u32 turns) {
  half16v a = {1, 2, 3, 4};
  float8v c[4] = {};
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 32; ++k) c[k % 4] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, a, c[k % 4]);
  out[globalX()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
}
#elif defined(__gfx1201__)
typedef half half8v __attribute__((ext_vector_type(8)));
KERNEL matrixRate(float* out, u32 turns) {
  half8v a = {1, 2, 3, 4};
  float8v c[4] = {};
  for (u32 i = 0; i < turns; ++i)
#pragma clang loop unroll(full)
    for (int k = 0; k < 32; ++k) c[k % 4] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, a, c[k % 4]);
  out[globalX()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
}
#endif
