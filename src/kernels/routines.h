// What GPU kernels of routines share: algorithms that index expressions cannot state. The GPU form of each routine of
// src/routines is in one of the files routines_*.h; codegen/gpu_routines.cpp says which launches make it up.
#pragma once
#include "gpu.h"
#include "layout_routines.h"

namespace sdx {

#if defined(__AMDGCN__)
/// x of another lane of the wave.
SDX_FN u32 lane_read(u32 x, u32 lane) { return u32(__builtin_amdgcn_ds_bpermute(i32(lane << 2), i32(x))); }
#elif defined(__NVPTX__)
SDX_FN u32 lane_read(u32 x, u32 lane) { return u32(__nvvm_shfl_sync_idx_i32(~0u, i32(x), i32(lane), 31)); }
#endif

/// A bit for each lane of the wave: whether x holds there.
SDX_FN u64 lanes_where(bool x) {
#if defined(__NVPTX__)
  return u32(__nvvm_vote_ballot_sync(~0u, x));
#elif SDX_WAVE == 64
  return __builtin_amdgcn_ballot_w64(x);
#else
  return __builtin_amdgcn_ballot_w32(x);
#endif
}

template <class T>
SDX_FN T from_lane(T x, u32 lane) {
  constexpr u32 words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32 k = 0; k < words; ++k) w[k] = lane_read(w[k], lane);
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}

static SDX_SHARED u64 scan_scratch[kThreads / 32];

/// Exclusive scan over the threads of the workgroup: the combination of x of all earlier threads; `total` receives that
/// of all threads. All threads must call it.
template <class T, class F>
SDX_FN T scan_workgroup(T x, T neutral, F combine, T& total) {
  static_assert(sizeof(T) <= 8);
  auto* waves = (T*)scan_scratch;
  const u32 t = thread_id(), lane = t % kWave, wave = t / kWave;
  T sum = x;
  for (u32 h = 1; h < kWave; h *= 2) {
    const T before = from_lane(sum, lane >= h ? lane - h : lane);
    if (lane >= h) sum = combine(before, sum);
  }
  if (lane == kWave - 1) waves[wave] = sum;
  barrier();
  T front = neutral;
  total = neutral;
  for (u32 k = 0; k < kThreads / kWave; ++k) {
    if (k == wave) front = total;
    total = combine(total, T(waves[k]));
  }
  barrier();
  const T before = from_lane(sum, lane >= 1 ? lane - 1 : 0);
  return lane >= 1 ? combine(front, before) : front;
}

SDX_FN i64 scan_counts(i64 x, i64& total) {
  return scan_workgroup<i64>(x, 0, [](i64 a, i64 b) { return a + b; }, total);
}

/// The pairs of one step of a sort of n elements in ascending order. This is Batcher's bitonic sort in the form in
/// which all comparisons have the same direction, so n need not be a power of two: pairs with high >= n are left out.
/// After the steps of `size`, blocks of `size` elements are sorted. `distance` is 0 in the first step of a size, then
/// size / 4, size / 8, ... 1; both are powers of two. `pair` counts from 0 to half of n, rounded up to a power of two.
template <class I>
SDX_FN void sort_pair(I pair, I size, I distance, I& low, I& high) {
  const I within = (distance == 0 ? size / 2 : distance) - 1, at = pair & within;
  low = (pair - at) * 2 + at;
  high = distance == 0 ? low + size - 1 - 2 * at : low + distance;
}
template <class I, class Before, class Swap>
SDX_FN void sort_step(I pair, I size, I distance, I n, Before before, Swap swap) {
  I low, high;
  sort_pair(pair, size, distance, low, high);
  if (high < n && before(high, low)) swap(low, high);
}

/// Earlier accesses to LDS of this wave come before later ones.
SDX_FN void wave_barrier() {
#if defined(__AMDGCN__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#elif defined(__NVPTX__)
  __nvvm_bar_warp_sync(~0u);
#endif
}

/// Sorts x[0, n), n <= 2^30, with all threads of the workgroup.
template <class E, class P, class Less>
SDX_FN void sort_workgroup(P x, i64 n, Less less) {
  u32 pairs = 1;
  while (2 * pairs < n) pairs *= 2;
  barrier();
  for (u32 size = 2; size < 2 * n; size *= 2)
    for (u32 d = size; d >= 1; d = d == size ? size / 4 : d / 2) {
      for (u32 k = thread_id(); k < pairs; k += kThreads)
        sort_step<u32>(
            k, size, d == size ? 0 : d, u32(n), [&](u32 a, u32 b) { return less(E(x[a]), E(x[b])); },
            [&](u32 a, u32 b) {
              const E e = x[a];
              x[a] = E(x[b]);
              x[b] = e;
            });
      barrier();
    }
}

/// Maps x to an unsigned number with the same order: NaN above everything, both zeros equal.
template <class T>
SDX_FN auto ordered_bits(T x) {
  if constexpr (is_int<T>) {
    using U = select_type<sizeof(T) == 8, u64, u32>;
    if constexpr (is_signed_int<T>) {
      using S = select_type<sizeof(T) == 8, i64, i32>;
      return U(U(S(x)) ^ (U(1) << (8 * sizeof(U) - 1)));
    } else
      return U(x);
  } else if constexpr (is_same<T, f64>) {
    const u64 u = x == 0 ? 0 : bit_cast<u64>(x);
    return x != x ? ~u64(0) : u >> 63 ? ~u : u | u64(1) << 63;
  } else {
    const f32 f = cast<f32>(x);
    const u32 u = f == 0 ? 0 : bit_cast<u32>(f);
    return f != f ? ~u32(0) : u >> 31 ? ~u : u | u32(1) << 31;
  }
}

}  // namespace sdx
