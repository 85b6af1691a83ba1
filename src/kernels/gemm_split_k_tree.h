// Split-K in one launch: several workgroups compute partial sums of one tile and add them up as a binary tree. Of each
// pair, the first to finish stores its sums in memory and ends; the second adds them and continues. The last one
// applies the epilogue. No workgroup waits for another, and results do not depend on the order in which they finish.
#pragma once
#include "gemm_split_k.h"

namespace sdx {

/// The problem of a workgroup that computes a part of K. `parts` holds the sums of each workgroup as its threads have
/// them. `arrived` has a flag for each workgroup, used by pairs: 1 while the first of the two has stored its sums; 0
/// before and after a launch.
template <class P>
struct SplitKTree : P {
  vec16* parts;
  u32* arrived;
  u32 splits;
};

namespace gemm_detail {

template <class P>
inline constexpr bool kSplitKTree = false;
template <class P>
inline constexpr bool kSplitKTree<SplitKTree<P>> = true;

template <class P>
SDX_FN u32 splits_of(const SplitKTree<P>& p) {
  return p.splits;
}

#if defined(__AMDGCN__)
/// Adds the partial sums of split `split` of tile `tile` to those of the tile's other splits. Returns true, for all
/// threads of the workgroup, if the sums are then complete. `word`: unused LDS.
template <class Tile, class P, class Sums, int TM, int TN>
SDX_FN bool reduce_tree(const P& p, Sums (&acc)[TM][TN], u32 tile, u32 split,
                        __attribute__((address_space(3))) u32* word) {
  static_assert(sizeof(Sums) == 16);
  using Acc = vec<typename Matrix<typename P::T>::Acc, 4>;
  constexpr int kVectors = TM * TN;
  // At most this many loads of another split's sums are in flight, so that the main loop keeps its registers.
  constexpr int kChunk = kVectors <= 16 ? kVectors : kVectors % 8 == 0 ? 8 : 4;
  static_assert(kVectors % kChunk == 0);
  using global = __attribute__((address_space(1))) vec16;
  if (p.splits == 1) return true;  // one kernel for all numbers of splits: there is less to compile
  const u32 first = tile * p.splits;
  const auto part = [&](u32 s) __attribute__((always_inline)) {
    return (global*)(p.parts + u64(first + s) * u32(kVectors * Tile::kThreads)) + thread_id();
  };
  // All threads get what thread 0 computes.
  const auto by_first = [&](auto f) __attribute__((always_inline)) {
    lds_barrier();
    if (thread_id() == 0) *word = f();
    lds_barrier();
    return uniform(*word);
  };
  for (u32 span = 1; span < p.splits; span *= 2) {
    const u32 left = split / (2 * span) * (2 * span), right = left + span;
    if (right >= p.splits) continue;  // no pair
    const bool is_left = split < right;
    u32* flag = &p.arrived[first + right];
    const u32 before = by_first([&] { return __scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); });
    if (before == 0) {
      global* own = part(is_left ? left : right);
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) {
        own[v * Tile::kThreads] = bit_cast<vec16>(acc[v / TN][v % TN]);
      }
      // Every wave makes its own stores visible to other compute units and dies before the workgroup counts.
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
      const u32 now =
          by_first([&] { return __scoped_atomic_fetch_add(flag, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); });
      if (now == 0) return false;
    }
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    if (thread_id() == 0) __scoped_atomic_store_n(flag, 0u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    const global* other = part(is_left ? right : left);
#pragma clang loop unroll(full)
    for (int c = 0; c < kVectors; c += kChunk) {
      vec16 x[kChunk];
#pragma clang loop unroll(full)
      for (int v = 0; v < kChunk; ++v) x[v] = other[(c + v) * Tile::kThreads];
#pragma clang loop unroll(full)
      for (int v = 0; v < kChunk; ++v) {
        Sums& to = acc[(c + v) / TN][(c + v) % TN];
        to = bit_cast<Sums>(bit_cast<Acc>(to) + bit_cast<Acc>(x[v]));
      }
    }
  }
  lds_barrier();  // before the epilogue uses LDS
  return true;
}
#endif

}  // namespace gemm_detail

/// Calls f with the problem of this workgroup when `splits` workgroups divide the K of each tile. `parts` has memory
/// for the sums of all workgroups, `arrived` a number for each.
template <class P, class F>
SDX_FN void split_k_tree(const P& p, void* parts, u32 splits, u32* arrived, F f) {
  static_assert(sizeof(typename Matrix<typename P::T>::Acc) == 4);  // the library allocates 4 bytes per sum
  f(SplitKTree<P>{p, (vec16*)__builtin_assume_aligned(parts, 16), arrived, splits});
}

}  // namespace sdx
