// Split-K: several workgroups compute partial sums of one tile, and a second kernel adds them up.
#pragma once
#include "gemm_store.h"

namespace sdx {

/// The problem of a workgroup that computes a part of K: it stores its sums to memory in the layout of the output, one
/// such array per split, and gemm_finish() adds them up.
template <class P>
struct SplitK : P {
  static constexpr bool kPairs = false, kReadsRows = false, kOctets = false;
  static constexpr int kResultBytes = 4;
  using Acc = typename Matrix<typename P::T>::Acc;
  using Read = gemm_detail::NothingRead;  // gemm_finish() applies the epilogue
  Acc* __restrict parts;
  u32 split, splits;
  SDX_FN void element(u32 z, u32 row, u32 col, Acc sum) const {
    parts[((split * this->batches + z) * this->m + row) * this->n + col] = sum;
  }
};

namespace gemm_detail {

template <class P>
SDX_FN u32 splits_of(const P&) {
  return 1;
}
template <class P>
SDX_FN u32 splits_of(const SplitK<P>& p) {
  return p.splits;
}
template <class P>
SDX_FN u32 split_of(const P&) {
  return 0;
}
template <class P>
SDX_FN u32 split_of(const SplitK<P>& p) {
  return p.split;
}

}  // namespace gemm_detail

/// Calls f with the problem of this workgroup when `splits` workgroups divide the K of each tile. `parts` holds splits
/// * batches * m * n sums, fewer than 2^32.
template <class P, class F>
SDX_FN void split_k(const P& p, void* parts, u32 splits, F f) {
  using Acc = typename Matrix<typename P::T>::Acc;
  static_assert(sizeof(Acc) == 4);  // the library allocates 4 bytes per sum
  f(SplitK<P>{p, (Acc*)__builtin_assume_aligned(parts, 16), block_id() % splits, splits});
}

/// Adds up the partial sums in the order of the splits and passes them to P::element, kFinish columns per thread.
/// Launch: enough workgroups of kThreads threads for batches * m * ceil(n / kFinish).
inline constexpr u32 kFinish = layout::kFinishColumns;
template <class P>
SDX_FN void gemm_finish(const P& p, const void* memory, u32 splits) {
  using Acc = typename Matrix<typename P::T>::Acc;
  const auto* parts = (const Acc*)__builtin_assume_aligned(memory, 16);
  const u32 runs = (p.n + kFinish - 1) / kFinish, size = p.batches * p.m * p.n;
  const u32 run = block_id() * kThreads + thread_id();
  if (run >= p.batches * p.m * runs) return;
  const u32 line = run / runs, col = run % runs * kFinish, z = line / p.m, row = line % p.m;
  Acc x[kFinish] = {};
  const bool whole = P::kFullColumns || (col + kFinish <= p.n && p.n % kFinish == 0);
  for (u32 s = 0; s < splits; ++s) {
    const Acc* from = parts + s * size + line * p.n + col;
    if (whole) {
      const vec16 v = gemm_detail::load16(from);
      Acc y[kFinish];
      __builtin_memcpy(y, &v, 16);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kFinish; ++e) x[e] += y[e];
    } else {
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kFinish; ++e)
        if (col + e < p.n) x[e] += from[e];
    }
  }
  if (whole) {
    gemm_detail::store_columns<kFinish>(p, z, row, col, x);
  } else {
    constexpr u32 kEach = P::kPairs ? 2 : 1;
#pragma clang loop unroll(full)
    for (u32 e = 0; e < kFinish; e += kEach)
      if (col + e < p.n) gemm_detail::store_columns<kEach>(p, z, row, col + e, x + e);
  }
}

}  // namespace sdx
