// Tiled GEMM: each workgroup computes BM rows by BN columns.
#pragma once
#include "gemm_direct.h"
#include "gemm_join.h"

namespace sdx {
namespace gemm_detail {

/// For a and b below 2^24, which the compiler divides with a third of the instructions. Splits of K are small enough:
/// kMostDivided in codegen/tile_codegen.cpp.
SDX_FN u32 quotient24(u32 a, u32 b) { return (a & 0xffffff) / (b & 0xffffff); }

}  // namespace gemm_detail

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
  u32 tile = number;
  if (shares > 1) tile = quotient24(number, shares);
  choose_tile<!kJoins<P>>(tile, p.batches, tiles_m, tiles_n, z, tile_m, tile_n);
  const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;
  const WavePart<Tile, P> part;

  const u32 share = kJoins<P> ? number - tile * shares : share_of(p);
  const u32 steps = (p.k + S::kK - 1) / S::kK;
  u32 from = 0, count = steps;
  if (shares > 1) {
    // If steps are left over, the last shares have one more. If the first ones had it, small GEMMs would take 5 to 10 %
    // more of the clock's time on gfx942.
    const u32 least = quotient24(steps, shares), left = steps - least * shares, after = shares - share;
    from = steps - after * least - (after < left ? after : left);
    count = least + (after <= left ? 1 : 0);
  }
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
  const auto at_end = [&]() __attribute__((always_inline)) { turned.begin(p, z, col); };
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
  }
#endif
  if constexpr (S::kRun > 0)
    turned.store(p, sums, z, row, col, p.m % Tile::kM == 0, p.n % Tile::kN == 0);
  else
    store_sums<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(p, sums, (shared_f32*)lds, z, row, col, part.mn,
                                                                        part.k);
}

}  // namespace sdx
