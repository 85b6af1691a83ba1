// Tiled GEMM: each workgroup computes BM rows by BN columns.
#pragma once
#include "gemm_pipeline.h"
#include "gemm_split_k.h"

namespace sdx {

/// Launch: ceil(m / BM) * ceil(n / BN) * batches workgroups of Tile::kThreads threads; for a Partial problem (split-K)
/// `shares` times as many.
template <class Tile, class P>
SDX_FN void gemm(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  using M = Matrix<T>;
  using S = Sizes<Tile, P>;
  static_assert(S::kK % M::kStep == 0 && S::kSteps % Tile::kWavesK == 0, "a wave has nothing to do");
  constexpr int TM = S::kTilesM, TN = S::kTilesN;
  static SDX_SHARED vec16 lds[S::kVectors];

  u32 z, tile_m, tile_n;
  const u32 shares = shares_of(p);
  choose_tile(block_id() / shares, p.batches, (p.m + Tile::kM - 1) / Tile::kM, (p.n + Tile::kN - 1) / Tile::kN, z,
              tile_m, tile_n);
  const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;
  const WavePart<Tile, P> part;

  typename M::Sum sums[TM][TN][M::kCount] = {};
  const u32 steps = (p.k + S::kK - 1) / S::kK, from = steps * share_of(p) / shares;
  const u32 count = steps * (share_of(p) + 1) / shares - from;
  if constexpr (S::kInFlight > 1)
    multiply_pipelined<Tile>(p, sums, part, (shared_vec*)lds, z, first_row, first_col, from, count);
  else
    multiply_staged<Tile>(p, sums, part, (shared_vec*)lds, z, first_row, first_col, from, count);
  wait_copies<0>();
  lds_barrier();
  store_sums<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(
      p, sums, (shared_f32*)lds, z, first_row + part.m * TM * 16, first_col + part.n * TN * 16, part.mn, part.k);
}

}  // namespace sdx
