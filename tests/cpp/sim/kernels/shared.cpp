// LDS, barriers and lane exchange: transpose and reductions.
#include "device.h"

SHARED float tile[32][33];
KERNEL transpose(const float* in, float* out, u32 rows, u32 columns) {
  u32 x = groupX() * 32 + localX(), y = groupY() * 32 + localY();
  for (u32 k = 0; k < 32; k += 8)
    if (x < columns && y + k < rows) tile[localY() + k][localX()] = in[(u64)(y + k) * columns + x];
  barrier();
  x = groupY() * 32 + localX();
  y = groupX() * 32 + localY();
  for (u32 k = 0; k < 32; k += 8)
    if (x < rows && y + k < columns) out[(u64)(y + k) * rows + x] = tile[localX()][localY() + k];
}

SHARED float partial[256];
KERNEL reduceLds(const float* in, float* out) {
  u32 t = localX();
  partial[t] = in[globalX()];
  barrier();
  for (u32 s = 128; s > 0; s >>= 1) {
    if (t < s) partial[t] += partial[t + s];
    barrier();
  }
  if (t == 0) out[groupX()] = partial[0];
}

template <int kControl>
static inline u32 dpp(u32 old, u32 v) {
  return (u32)__builtin_amdgcn_update_dpp((int)old, (int)v, kControl, 0xf, 0xf, false);
}
// Sum over each row of 16 lanes by row_shr, then the row sums by readlane.
KERNEL reduceDpp(const u32* in, u32* out) {
  u32 v = in[globalX()];
  v += dpp<0x111>(0, v);
  v += dpp<0x112>(0, v);
  v += dpp<0x114>(0, v);
  v += dpp<0x118>(0, v);
  u32 sum = 0;
  for (u32 r = 15; r < __builtin_amdgcn_wavefrontsize(); r += 16) sum += (u32)__builtin_amdgcn_readlane((int)v, (int)r);
  if (__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) == 0)
    out[globalX() / __builtin_amdgcn_wavefrontsize()] = sum;
}

// Butterfly by ds_bpermute, ballot and mbcnt. gfx10 and gfx11 permute the halves of a wave64 by themselves, wherever
// the address points.
KERNEL waveOps(const u32* in, u32* out, u64* ballots) {
  u32 lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  u32 v = in[globalX()];
  u32 size = __builtin_amdgcn_wavefrontsize();
#if defined(__GFX10__) || defined(__GFX11__)
  const u32 reach = 32, elsewhere = size == 64 ? 32 : 0;
#else
  const u32 reach = size, elsewhere = 0;
#endif
  for (u32 m = 1; m < reach; m <<= 1) {
    u32 other = (u32)__builtin_amdgcn_ds_bpermute((int)((lane ^ m ^ elsewhere) * 4), (int)v);
    v = v > other ? v : other;
  }
  out[globalX()] = v;
  u64 ballot = __builtin_amdgcn_ballot_w64((in[globalX()] & 1) != 0);
  if (lane == 0) ballots[globalX() / size] = ballot;
}

KERNEL histogram(const u32* in, u32* bins, u32 n) {
  SHARED u32 local[64];
  if (localX() < 64) local[localX()] = 0;
  barrier();
  for (u32 i = globalX(); i < n; i += 4 * groupSizeX())
    __scoped_atomic_fetch_add((u32*)&local[in[i] & 63], 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  barrier();
  if (localX() < 64)
    __scoped_atomic_fetch_add(&bins[localX()], local[localX()], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
