// Tiled GEMM: each workgroup computes BM rows by BN columns.
#pragma once
#include "gemm_ring.h"
#include "gemm_split_k_tree.h"

namespace sdx {
namespace gemm_detail {

/// For a and b below 2^24, which the compiler divides with a third of the instructions. Splits of K are small enough:
/// kMostDivided in codegen/tile_codegen.cpp.
SDX_FN u32 quotient24(u32 a, u32 b) { return (a & 0xffffff) / (b & 0xffffff); }

/// Adds `count` steps of K from step `from` on, for the tile at (z, first_row, first_col), and stores it. tile, split:
/// of a SplitKTree problem.
template <class Tile, class P>
SDX_FN void compute_tile(const P& p, u32 z, u32 first_row, u32 first_col, u32 from, u32 count, u32 tile, u32 split) {
  using T = typename P::T;
  using M = Matrix<T>;
  using S = Sizes<Tile, P>;
  static_assert(S::kK % M::kStep == 0 && S::kSteps % Tile::kWavesK == 0, "a wave has nothing to do");
  constexpr int TM = S::kTilesM, TN = S::kTilesN;
  static SDX_SHARED vec16 lds[S::kVectors];
  const WavePart<Tile, P> part;
  const u32 row = first_row + part.m * TM * 16, col = first_col + part.n * TN * 16;
#if defined(SDX_LOADS_TO_LDS)
  if constexpr (S::kDirect) {
    multiply_direct<Tile>(p, part, (shared_vec*)lds, z, first_row, first_col, from, count);
    lds_barrier();
    each<TM>([&](auto i) __attribute__((always_inline)) {
      reserve_accumulators();
      f32 acc[1][TN][M::kCount];
      each<TN * M::kCount>([&](auto e) __attribute__((always_inline)) {
        acc[0][e.value / M::kCount][e.value % M::kCount] = accumulator<i.value * TN * M::kCount + e.value>();
      });
      store_acc<P, 1, TN, Tile::kWavesM * Tile::kWavesN, 1>(p, acc, (shared_f32*)lds, z, row + i.value * 16, col,
                                                            part.mn, 0);
    });
    return;
  }
#endif
  typename M::Sums acc[TM][TN] = {};
  TransposedAcc<P, TM, TN, S::kRun> transposed;
  const auto at_end = [&]() __attribute__((always_inline)) { transposed.begin(p, z, col); };
#if defined(SDX_LOADS_TO_LDS)
  if constexpr (S::kRing)
    multiply_ring<Tile>(p, acc, part, (shared_vec*)lds, z, first_row, first_col, from, count, at_end);
  else
#endif
      if constexpr (S::kInFlight > 1) {
    multiply_pipelined<Tile>(p, acc, part, (shared_vec*)lds, z, first_row, first_col, from, count, at_end);
  } else {
    multiply_staged<Tile>(p, acc, part, (shared_vec*)lds, z, first_row, first_col, from, count);
    at_end();
  }
  wait_copies<0>();
  if constexpr (S::kRun == 0 || kSplitKTree<P>) lds_barrier();
#if defined(__AMDGCN__)
  if constexpr (kSplitKTree<P>) {
    if (!reduce_tree<Tile>(p, acc, tile, split, (__attribute__((address_space(3))) u32*)lds)) return;
  }
#endif
  if constexpr (S::kRun > 0)
    transposed.store(p, acc, z, row, col, !P::kGroups && p.m % Tile::kM == 0, P::kWholeN || p.n % Tile::kN == 0);
  else
    store_acc<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(p, acc, (shared_f32*)lds, z, row, col, part.mn,
                                                                       part.k);
}

/// The tile of a workgroup, where z divide the rows (P::kGroups).
template <class Tile, class P>
SDX_FN void compute_group_tile(const P& p) {
  const u32 across = (p.n + Tile::kN - 1) / Tile::kN, most = p.m / Tile::kM + p.batches;
  u32 id = block_id();
  if constexpr (kDies > 1) id = by_die(id, (most < p.m ? most : p.m) * across);
  GroupRows<Tile::kM> rows;
  if (!rows.find(p, id / across)) return;
  u32 one, tile_m, tile_n;
  choose_tile<false>(id - rows.before * across, 1, rows.tiles(), across, one, tile_m, tile_n);
  compute_tile<Tile>(in_group(p, rows), rows.z, rows.begin + tile_m * Tile::kM, tile_n * Tile::kN, 0,
                     (p.k + Sizes<Tile, P>::kK - 1) / Sizes<Tile, P>::kK, 0, 0);
}

}  // namespace gemm_detail

/// Launch: ceil(m / BM) * ceil(n / BN) * batches workgroups of Tile::kThreads threads; for a Partial and a SplitKTree
/// problem, `splits` times as many; with groups at most min(m, m / BM + batches) * ceil(n / BN).
template <class Tile, class P>
SDX_FN void gemm(const P& p) {
  using namespace gemm_detail;
  if constexpr (P::kGroups) {
    compute_group_tile<Tile>(p);
  } else {
    using S = Sizes<Tile, P>;
    u32 z, tile_m, tile_n;
    const u32 splits = splits_of(p);
    u32 number = block_id();
    const u32 tiles_m = (p.m + Tile::kM - 1) / Tile::kM, tiles_n = (p.n + Tile::kN - 1) / Tile::kN;
    // A die computes all parts of a tile: the one that adds them finds them in its L2.
    if constexpr (kSplitKTree<P> && kDies > 1) number = by_die(number, p.batches * tiles_m * tiles_n * splits);
    u32 tile = number;
    if (splits > 1) tile = quotient24(number, splits);
    choose_tile<!kSplitKTree<P>, P::kPowerN>(tile, p.batches, tiles_m, tiles_n, z, tile_m, tile_n);
    const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;

    const u32 split = kSplitKTree<P> ? number - tile * splits : split_of(p);
    const u32 steps = (p.k + S::kK - 1) / S::kK;
    u32 from = 0, count = steps;
    if (splits > 1) {
      // If steps are left over, the last splits have one more. If the first ones had it, small GEMMs would take 5 to
      // 10 % more of the clock's time on gfx942.
      const u32 least = quotient24(steps, splits), left = steps - least * splits, after = splits - split;
      from = steps - after * least - (after < left ? after : left);
      count = least + (after <= left ? 1 : 0);
    } else {
      __builtin_assume(count >= P::kLeastSteps);  // before the main loop, conditions would end in waits
    }
    compute_tile<Tile>(p, z, first_row, first_col, from, count, tile, split);
  }
}

}  // namespace sdx
