// Kernels as programs have them: scan, radix sort, softmax, layer norm and a small flash attention. Written for any
// wave size.
#include "device.h"

#define THREADS 256
#define LOG2E 1.44269504f

static inline u32 waveSize() { return __builtin_amdgcn_wavefrontsize(); }
static inline u32 laneId() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
static inline float exponential(float x) { return __builtin_amdgcn_exp2f(x * LOG2E); }

SHARED u32 words[THREADS];
/// Inclusive sum over the workgroup's threads (Hillis and Steele, 1986).
static inline u32 scanGroup(u32 v) {
  u32 t = localX();
  words[t] = v;
  barrier();
  for (u32 step = 1; step < THREADS; step *= 2) {
    u32 other = t >= step ? words[t - step] : 0;
    barrier();
    words[t] += other;
    barrier();
  }
  u32 sum = words[t];
  barrier();
  return sum;
}

// Inclusive scan in three launches: four items a thread, the blocks' totals, and their sums added.
KERNEL scanBlocks(const u32* in, u32* out, u32* totals, u32 n) {
  u32 first = globalX() * 4, v[4], sum = 0;
  for (u32 k = 0; k < 4; ++k) {
    if (first + k < n) sum += in[first + k];
    v[k] = sum;
  }
  u32 before = scanGroup(sum) - sum;
  for (u32 k = 0; k < 4; ++k)
    if (first + k < n) out[first + k] = v[k] + before;
  if (localX() == THREADS - 1) totals[groupX()] = before + sum;
}
KERNEL scanTotals(u32* totals, u32 n) {
  u32 v = localX() < n ? totals[localX()] : 0;
  u32 sum = scanGroup(v) - v;
  if (localX() < n) totals[localX()] = sum;
}
KERNEL scanAdd(u32* out, const u32* totals, u32 n) {
  for (u32 k = 0; k < 4; ++k)
    if (globalX() * 4 + k < n) out[globalX() * 4 + k] += totals[groupX()];
}

// One pass of a least-significant-digit radix sort by 4 bits. counts: digit-major, so that its scan gives first places.
SHARED u32 bins[16];
KERNEL radixCount(const u32* keys, u32* counts, u32 n, u32 shift) {
  if (localX() < 16) bins[localX()] = 0;
  barrier();
  u32 i = globalX();
  if (i < n) __scoped_atomic_fetch_add((u32*)&bins[keys[i] >> shift & 15], 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  barrier();
  if (localX() < 16) counts[localX() * __builtin_amdgcn_grid_size_x() / THREADS + groupX()] = bins[localX()];
}
SHARED u32 waveBins[16][THREADS / 32];
KERNEL radixScatter(const u32* keys, u32* out, const u32* first, u32 n, u32 shift) {
  u32 i = globalX(), wave = localX() / waveSize(), waves = THREADS / waveSize();
  bool valid = i < n;
  u32 key = valid ? keys[i] : 0, digit = key >> shift & 15, rank = 0;
  // Stable rank: lanes before this one in its wave with the same digit, then the waves before.
  for (u32 d = 0; d < 16; ++d) {
    u64 same = __builtin_amdgcn_ballot_w64(valid && digit == d);
    if (digit == d) rank = (u32)__builtin_popcountll(same & ((1ull << laneId()) - 1));
    if (laneId() == 0) waveBins[d][wave] = (u32)__builtin_popcountll(same);
  }
  barrier();
  if (!valid) return;
  for (u32 w = 0; w < wave; ++w) rank += waveBins[digit][w];
  (void)waves;
  out[first[digit * __builtin_amdgcn_grid_size_x() / THREADS + groupX()] + rank] = key;
}

SHARED float floats[THREADS];
template <class F>
static inline float reduceGroup(float v, F f) {
  u32 t = localX();
  floats[t] = v;
  barrier();
  for (u32 s = THREADS / 2; s > 0; s >>= 1) {
    if (t < s) floats[t] = f(floats[t], floats[t + s]);
    barrier();
  }
  v = floats[0];
  barrier();
  return v;
}

KERNEL softmaxRows(const float* in, float* out, u32 columns) {
  const float* row = in + (u64)groupX() * columns;
  float top = -__builtin_inff(), sum = 0;
  for (u32 c = localX(); c < columns; c += THREADS) top = __builtin_fmaxf(top, row[c]);
  top = reduceGroup(top, [](float a, float b) { return __builtin_fmaxf(a, b); });
  for (u32 c = localX(); c < columns; c += THREADS) sum += exponential(row[c] - top);
  sum = reduceGroup(sum, [](float a, float b) { return a + b; });
  for (u32 c = localX(); c < columns; c += THREADS) out[(u64)groupX() * columns + c] = exponential(row[c] - top) / sum;
}

KERNEL layerNorm(const half* in, const half* scale, const half* bias, half* out, u32 columns, float epsilon) {
  const half* row = in + (u64)groupX() * columns;
  float sum = 0, squares = 0;
  for (u32 c = localX(); c < columns; c += THREADS) sum += (float)row[c];
  float mean = reduceGroup(sum, [](float a, float b) { return a + b; }) / (float)columns;
  for (u32 c = localX(); c < columns; c += THREADS) squares += ((float)row[c] - mean) * ((float)row[c] - mean);
  float variance = reduceGroup(squares, [](float a, float b) { return a + b; }) / (float)columns;
  float inverse = 1.0f / __builtin_sqrtf(variance + epsilon);
  for (u32 c = localX(); c < columns; c += THREADS)
    out[(u64)groupX() * columns + c] = (half)(((float)row[c] - mean) * inverse * (float)scale[c] + (float)bias[c]);
}

// One query a thread, keys and values in tiles through LDS, the softmax kept running (Dao et al., "FlashAttention",
// 2022).
#define DEPTH 32
#define TILE 16
SHARED float keyTile[TILE][DEPTH], valueTile[TILE][DEPTH];
KERNEL flashAttention(const float* q, const float* k, const float* v, float* out, u32 length, u32 causal) {
  u32 query = globalX(), t = localX();
  float mine[DEPTH], sum[DEPTH], top = -__builtin_inff(), total = 0;
  for (u32 d = 0; d < DEPTH; ++d) mine[d] = query < length ? q[(u64)query * DEPTH + d] : 0, sum[d] = 0;
  for (u32 base = 0; base < length; base += TILE) {
    for (u32 i = t; i < TILE * DEPTH; i += groupSizeX()) {
      bool in = base + i / DEPTH < length;
      keyTile[i / DEPTH][i % DEPTH] = in ? k[(u64)base * DEPTH + i] : 0;
      valueTile[i / DEPTH][i % DEPTH] = in ? v[(u64)base * DEPTH + i] : 0;
    }
    barrier();
    for (u32 j = 0; j < TILE && base + j < length; ++j) {
      if (causal && base + j > query) break;
      float score = 0;
      for (u32 d = 0; d < DEPTH; ++d) score += mine[d] * keyTile[j][d];
      score *= 0.176776695f;  // 1 / sqrt(DEPTH)
      float newTop = __builtin_fmaxf(top, score), scale = exponential(top - newTop),
            weight = exponential(score - newTop);
      total = total * scale + weight;
      for (u32 d = 0; d < DEPTH; ++d) sum[d] = sum[d] * scale + weight * valueTile[j][d];
      top = newTop;
    }
    barrier();
  }
  if (query < length)
    for (u32 d = 0; d < DEPTH; ++d) out[(u64)query * DEPTH + d] = sum[d] / total;
}
