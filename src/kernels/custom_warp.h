// Warps of 32 lanes: shuffles, votes, reductions, and cooperative groups of a block. A wave of 64 lanes holds two
// warps, each with masks and lane numbers of its own.
#pragma once
#include "custom_threads.h"

#if !SDX_CUSTOM_GPU
/// Waits for the lanes of `mask` (0: for those that can come), then returns the value of lane `source`, or the own one
/// if that lane does not take part. `lanes`: those that took part (low half), and those of them whose predicate is not
/// 0 (high half). compile/host_threads.h defines it.
extern "C" __attribute__((convergent)) sdx::u64 sdx_warp_exchange(sdx::u32 mask, sdx::u64 value, sdx::u32 source,
                                                                  sdx::u32 predicate, sdx::u64* lanes);
#endif

namespace sdx::custom {

inline constexpr u32 kAllLanes = ~0u;

#if defined(__AMDGCN__)
SDX_FN u32 wave_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
SDX_FN u32 lane() { return wave_lane() & 31; }
SDX_FN u32 read_lane(u32, u32 x, u32 source) {
  return u32(__builtin_amdgcn_ds_bpermute(i32((wave_lane() & ~31u) | source) << 2, i32(x)));
}
SDX_FN u32 ballot(u32, bool predicate) {
#if SDX_WAVE == 64
  return u32(__builtin_amdgcn_ballot_w64(predicate) >> (wave_lane() & 32));
#else
  return __builtin_amdgcn_ballot_w32(predicate);
#endif
}
SDX_FN u32 active_lanes() { return ballot(kAllLanes, true); }
/// Lanes of a wave execute together; only the compiler must not move accesses across.
SDX_FN void warp_barrier(u32) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#elif defined(__NVPTX__)
SDX_FN u32 lane() { return u32(__nvvm_read_ptx_sreg_laneid()); }
SDX_FN u32 read_lane(u32 mask, u32 x, u32 source) {
  return u32(__nvvm_shfl_sync_idx_i32(mask, i32(x), i32(source), 31));
}
SDX_FN u32 ballot(u32 mask, bool predicate) { return u32(__nvvm_vote_ballot_sync(mask, predicate)); }
SDX_FN u32 active_lanes() {
  u32 mask;
  asm volatile("activemask.b32 %0;" : "=r"(mask));
  return mask;
}
SDX_FN void warp_barrier(u32 mask) { __nvvm_bar_warp_sync(mask); }
#else
SDX_FN u32 lane() { return thread_rank() & 31; }
SDX_FN u32 ballot(u32 mask, bool predicate) {
  u64 lanes;
  sdx_warp_exchange(mask, 0, 0, predicate, &lanes);
  return u32(lanes >> 32);
}
SDX_FN u32 active_lanes() { return ballot(0, true); }
SDX_FN void warp_barrier(u32 mask) { ballot(mask, true); }
#endif

/// x of lane `source` of the warp.
template <class T>
SDX_FN T from_lane(u32 mask, T x, u32 source) {
  static_assert(__is_trivially_copyable(T), "only values that are copied bit by bit can be shuffled");
#if SDX_CUSTOM_GPU
  u32 w[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32& word : w) word = read_lane(mask, word, source);
#else
  u64 w[(sizeof(T) + 7) / 8] = {}, lanes;
  __builtin_memcpy(w, &x, sizeof x);
  for (u64& word : w) word = sdx_warp_exchange(mask, word, source, 0, &lanes);
#endif
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}

// Which lane a shuffle reads; its own one where CUDA has it keep its value.
SDX_FN u32 last_of_segment(u32 width) { return lane() | (width - 1); }
SDX_FN u32 source_index(u32 from, u32 width) { return (lane() & ~(width - 1)) | (from & (width - 1)); }
SDX_FN u32 source_up(u32 delta, u32 width) {
  const u32 l = lane(), first = l & ~(width - 1);
  return l >= first + delta ? l - delta : l;
}
SDX_FN u32 source_down(u32 delta, u32 width) {
  const u32 l = lane();
  return l + delta <= last_of_segment(width) ? l + delta : l;
}
SDX_FN u32 source_xor(u32 bits, u32 width) {
  const u32 l = lane(), other = l ^ bits;
  return other <= last_of_segment(width) ? other : l;
}

template <class T>
SDX_FN bool same_bits(T a, T b) {
  u8 x[sizeof(T)], y[sizeof(T)];
  __builtin_memcpy(x, &a, sizeof a);
  __builtin_memcpy(y, &b, sizeof b);
  bool same = true;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < sizeof(T); ++k) same &= x[k] == y[k];
  return same;
}

template <class T, class F>
SDX_FN T reduce_mask(u32 mask, T x, F combine) {
  T all = x;
  bool first = true;
  for (u32 rest = mask; rest != 0; rest &= rest - 1) {
    const T other = from_lane(mask, x, u32(__builtin_ctz(rest)));
    all = first ? other : combine(all, other);
    first = false;
  }
  return all;
}

}  // namespace sdx::custom

inline constexpr int warpSize = 32;

template <class T>
SDX_FN T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  return sdx::custom::from_lane(mask, x, sdx::custom::source_index(unsigned(from), unsigned(width)));
}
template <class T>
SDX_FN T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32) {
  return sdx::custom::from_lane(mask, x, sdx::custom::source_up(delta, unsigned(width)));
}
template <class T>
SDX_FN T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32) {
  return sdx::custom::from_lane(mask, x, sdx::custom::source_down(delta, unsigned(width)));
}
template <class T>
SDX_FN T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32) {
  return sdx::custom::from_lane(mask, x, sdx::custom::source_xor(unsigned(bits), unsigned(width)));
}
SDX_FN unsigned __activemask() { return sdx::custom::active_lanes(); }
SDX_FN unsigned __ballot_sync(unsigned mask, int predicate) { return sdx::custom::ballot(mask, predicate != 0) & mask; }
SDX_FN int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
SDX_FN int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
SDX_FN void __syncwarp(unsigned mask = 0xffffffffu) { sdx::custom::warp_barrier(mask); }
template <class T>
SDX_FN unsigned __match_any_sync(unsigned mask, T x) {
  unsigned equal = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned from = unsigned(__builtin_ctz(rest));
    const T other = sdx::custom::from_lane(mask, x, from);
    if (sdx::custom::same_bits(other, x)) equal |= 1u << from;
  }
  return equal;
}
template <class T>
SDX_FN unsigned __match_all_sync(unsigned mask, T x, int* all) {
  const T first = sdx::custom::from_lane(mask, x, unsigned(__builtin_ctz(mask)));
  *all = __all_sync(mask, sdx::custom::same_bits(first, x));
  return *all ? mask : 0;
}
// clang-format off
#define SDX_REDUCE(name, T, expression)                                                       \
  SDX_FN T name(unsigned mask, T x) { return sdx::custom::reduce_mask(mask, x, [](T a, T b) -> T { return expression; }); }
SDX_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b))) SDX_REDUCE(__reduce_add_sync, unsigned, a + b)
SDX_REDUCE(__reduce_min_sync, int, b < a ? b : a) SDX_REDUCE(__reduce_min_sync, unsigned, b < a ? b : a)
SDX_REDUCE(__reduce_max_sync, int, a < b ? b : a) SDX_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
SDX_REDUCE(__reduce_and_sync, unsigned, a & b) SDX_REDUCE(__reduce_or_sync, unsigned, a | b)
SDX_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef SDX_REDUCE
// clang-format on

// HIP's forms without a mask: the lanes that execute it together.
#if SDX_CUSTOM_GPU
#define SDX_TOGETHER sdx::custom::active_lanes()
#else
#define SDX_TOGETHER 0
#endif
                template <class T>
                SDX_FN T __shfl(T x, int from, int width = 32) {
  return sdx::custom::from_lane(SDX_TOGETHER, x, sdx::custom::source_index(unsigned(from), unsigned(width)));
}
template <class T>
SDX_FN T __shfl_up(T x, unsigned delta, int width = 32) {
  return sdx::custom::from_lane(SDX_TOGETHER, x, sdx::custom::source_up(delta, unsigned(width)));
}
template <class T>
SDX_FN T __shfl_down(T x, unsigned delta, int width = 32) {
  return sdx::custom::from_lane(SDX_TOGETHER, x, sdx::custom::source_down(delta, unsigned(width)));
}
template <class T>
SDX_FN T __shfl_xor(T x, int bits, int width = 32) {
  return sdx::custom::from_lane(SDX_TOGETHER, x, sdx::custom::source_xor(unsigned(bits), unsigned(width)));
}
SDX_FN unsigned long long __ballot(int predicate) { return sdx::custom::ballot(SDX_TOGETHER, predicate != 0); }
SDX_FN int __any(int predicate) { return __ballot(predicate) != 0; }
SDX_FN int __all(int predicate) { return __ballot(predicate == 0) == 0; }
SDX_FN unsigned __lane_id() { return sdx::custom::lane(); }
#undef SDX_TOGETHER
