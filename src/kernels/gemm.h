// Tiled GEMM: each workgroup computes BM rows by BN columns.
#pragma once
#include "gemm_direct.h"
#include "gemm_join.h"

namespace sdx {

/// Launch: ceil(m / BM) * ceil(n / BN) * batches workgroups of Tile::kThreads threads; for a Partial
/// and a Joined problem (split-K), `shares` times as many.
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
  u32 number = block_id();
  const u32 tiles_m = (p.m + Tile::kM - 1) / Tile::kM, tiles_n = (p.n + Tile::kN - 1) / Tile::kN;
  // A die computes all parts of a tile: the one that adds them finds them in its L2.
  if constexpr (kJoins<P> && kDies > 1) number = by_die(number, p.batches * tiles_m * tiles_n * shares);
  const u32 tile = number / shares;
  choose_tile<!kJoins<P>>(tile, p.batches, tiles_m, tiles_n, z, tile_m, tile_n);
  const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;
  const WavePart<Tile, P> part;

  const u32 share = kJoins<P> ? number - tile * shares : share_of(p);
  const u32 steps = (p.k + S::kK - 1) / S::kK, from = steps * share / shares;
  const u32 count = steps * (share + 1) / shares - from;
  const u32 row = first_row + part.m * TM * 16, col = first_col + part.n * TN * 16;
#if defined(SDX_LOADS_TO_LDS)
  if constexpr (S::kDirect) {
    multiply_direct<Tile>(p, part, (shared_vec*)lds, z, first_row, first_col, from, count);
    lds_barrier();
    each<TM>([&](auto i) __attribute__((always_inline)) {
      reserve_accumulators();
      f32 sums[1][TN][M::kCount];
      each<TN * M::kCount>([&](auto e) __attribute__((always_inline)) {
        sums[0][e.value / M::kCount][e.value % M::kCount] = accumulator<i.value * TN * M::kCount + e.value>();
      });
      store_sums<P, 1, TN, Tile::kWavesM * Tile::kWavesN, 1>(p, sums, (shared_f32*)lds, z, row + i.value * 16, col,
                                                             part.mn, 0);
    });
    return;
  }
#endif
  typename M::Sum sums[TM][TN][M::kCount] = {};
  TurnedSums<P, TM, TN, S::kRun> turned;
  const auto at_end = [&]() __attribute__((always_inline)) {
    if constexpr (!kJoins<P>) turned.begin(p, z, col);
  };
  if constexpr (S::kInFlight > 1) {
    multiply_pipelined<Tile>(p, sums, part, (shared_vec*)lds, z, first_row, first_col, from, count, at_end);
  } else {
    multiply_staged<Tile>(p, sums, part, (shared_vec*)lds, z, first_row, first_col, from, count);
    at_end();
  }
  wait_copies<0>();
  if constexpr (S::kRun == 0 || kJoins<P>) lds_barrier();
#if defined(__AMDGCN__)
  if constexpr (kJoins<P>) {
    if (!join_sums<Tile>(p, sums, tile, share, (__attribute__((address_space(3))) u32*)lds)) return;
    turned.begin(p, z, col);
  }
#endif
  if constexpr (S::kRun > 0)
    turned.store(p, sums, z, row, col, p.m % Tile::kM == 0, p.n % Tile::kN == 0);
  else
    store_sums<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(p, sums, (shared_f32*)lds, z, row, col, part.mn,
                                                                        part.k);
}

}  // namespace sdx
