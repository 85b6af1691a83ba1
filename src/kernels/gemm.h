// Tiled GEMM: each workgroup computes BM rows by BN columns.
#pragma once
#include "gemm_loader.h"
#include "gemm_split_k.h"

namespace sdx {
namespace gemm_detail {

#if defined(__AMDGCN__)
/// Instructions before stay before, instructions behind stay behind.
SDX_FN void keep_order() { __builtin_amdgcn_sched_barrier(0); }
/// Of two waves that could issue, the SIMD takes the one of higher priority.
template <int Level>
SDX_FN void raise_priority() {
  __builtin_amdgcn_s_setprio(Level);
}
#else
SDX_FN void keep_order() {}
template <int Level>
SDX_FN void raise_priority() {}
#endif

template <class Tile, class T>
struct Sizes {
  static constexpr int kChunks = Tile::kRow / 16, kStage = (Tile::kM + Tile::kN) * kChunks;  // in vectors of 16 bytes
  static constexpr int kTilesN = Tile::kN / 16 / Tile::kWavesN, kPart = kTilesN < 4 ? kTilesN : 4;
  static constexpr int kStore = Tile::kWavesM * Tile::kWavesN * Tile::kWavesK * 16 * (kPart * 16 + 4) / 4;
  // Where registers hold a wave's operands of a whole tile, beside its sums.
  static constexpr int kTilesM = Tile::kM / 16 / Tile::kWavesM;
  static constexpr int kOperandRegisters = (kTilesM * Matrix<T>::kVectorsA + kTilesN * Matrix<T>::kVectorsB) * 4 *
                                           (Tile::kRow / int(sizeof(T)) / Matrix<T>::kStep / Tile::kWavesK);
  static constexpr bool kReadFirst = Matrix<T>::kFamily == MatrixFamily::kMfma && kOperandRegisters <= 128;
  static constexpr int kVectors = kStage * Tile::kStages > kStore ? kStage* Tile::kStages : kStore;
};

}  // namespace gemm_detail

/// Launch: ceil(m / BM) * ceil(n / BN) * batches workgroups of Tile::kThreads threads; for a Partial problem (split-K)
/// `shares` times as many.
template <class Tile, class P>
SDX_FN void gemm(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  using M = Matrix<T>;
  using S = Sizes<Tile, T>;
  constexpr int kChunks = S::kChunks, kK = Tile::kRow / int(sizeof(T)), kSteps = kK / M::kStep;
  static_assert(Tile::kThreads == int(kThreads), "workgroups have kThreads threads");
  static_assert(kK % M::kStep == 0 && kSteps % Tile::kWavesK == 0, "a wave has nothing to do");
  constexpr int TM = Tile::kM / 16 / Tile::kWavesM, TN = Tile::kN / 16 / Tile::kWavesN;
  static SDX_SHARED vec16 lds[S::kVectors];

  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 wave_k = wave / (Tile::kWavesM * Tile::kWavesN), wave_mn = wave % (Tile::kWavesM * Tile::kWavesN);
  const u32 wave_m = wave_mn / Tile::kWavesN, wave_n = wave_mn % Tile::kWavesN;
  u32 z, tile_m, tile_n;
  const u32 shares = shares_of(p);
  choose_tile(block_id() / shares, p.batches, (p.m + Tile::kM - 1) / Tile::kM, (p.n + Tile::kN - 1) / Tile::kN, z,
              tile_m, tile_n);
  const u32 first_row = tile_m * Tile::kM, first_col = tile_n * Tile::kN;

  typename M::Sum sums[TM][TN][M::kCount] = {};
  Loader<P, true, Tile::kM, kChunks, Tile::kThreads> a;
  Loader<P, false, Tile::kN, kChunks, Tile::kThreads> b;
  auto stage_a = [&](u32 t) { return (shared_vec*)lds + t % Tile::kStages * S::kStage; };
  auto stage_b = [&](u32 t) { return stage_a(t) + Tile::kM * kChunks; };
  const u32 steps = (p.k + kK - 1) / kK, from = steps * share_of(p) / shares;
  const u32 count = steps * (share_of(p) + 1) / shares - from;
  constexpr u32 kAhead = Tile::kStages > 1 ? Tile::kStages - 1 : 1;  // tiles loaded before the first step
  // The last tile along K, which may be partial, is loaded first, so that all loads in the loop are full tiles.
  const auto first_k = [&](u32 t) { return (t == 0 ? from + count - 1 : from + t - 1) * kK; };
  a.start(p, z, first_row, from * kK);
  b.start(p, z, first_col, from * kK);
#pragma clang loop unroll(full)
  for (u32 t = 0; t < kAhead; ++t) {
    if (t < count) {
      const auto load = [&](auto full) {
        a.template begin<full.value>(p, stage_a(t), z, first_row, first_k(t));
        b.template begin<full.value>(p, stage_b(t), z, first_col, first_k(t));
        a.template finish<full.value>(stage_a(t));
        b.template finish<full.value>(stage_b(t));
      };
      if (t == 0)
        load(Flag<false>{});
      else
        load(Flag<true>{});
    }
    commit_copies();
  }
  for (u32 t = 0; t < count; ++t) {
    wait_copies<int(kAhead) - 1>();
    lds_barrier();
    const u32 next = t + kAhead;
    const auto load_next = [&] {
      if (next < count) {
        a.template begin<true>(p, stage_a(next), z, first_row, first_k(next));
        b.template begin<true>(p, stage_b(next), z, first_col, first_k(next));
      }
      commit_copies();
    };
    const shared_vec *from_a = stage_a(t), *from_b = stage_b(t);
    const auto read_a = [&](int s, int i, vec16(&x)[M::kVectorsA]) {
      const u32 chunk = (s * Tile::kWavesK + wave_k) * (M::kStep / M::kVec);
#pragma clang loop unroll(full)
      for (int v = 0; v < M::kVectorsA; ++v)
        x[v] = from_a[place<kChunks>((wave_m * TM + i) * 16 + M::row_a(lane, v), chunk + M::chunk(lane, v))];
    };
    const auto read_b = [&](int s, vec16(&y)[TN][M::kVectorsB]) {
      const u32 chunk = (s * Tile::kWavesK + wave_k) * (M::kStep / M::kVec);
#pragma clang loop unroll(full)
      for (int j = 0; j < TN; ++j)
#pragma clang loop unroll(full)
        for (int v = 0; v < M::kVectorsB; ++v)
          y[j][v] = from_b[place<kChunks>((wave_n * TN + j) * 16 + M::row_b(lane, v), chunk + M::chunk(lane, v))];
    };
    constexpr int kOwnSteps = kSteps / Tile::kWavesK;
    if constexpr (S::kReadFirst) {
      // LDS works through all reads of the tile while the first products run, and the loads of the next tile come after
      // them: matrix instructions then follow one another without a wait.
      vec16 x[kOwnSteps][TM][M::kVectorsA], y[kOwnSteps][TN][M::kVectorsB];
#pragma clang loop unroll(full)
      for (int s = 0; s < kOwnSteps; ++s) {
        read_b(s, y[s]);
#pragma clang loop unroll(full)
        for (int i = 0; i < TM; ++i) read_a(s, i, x[s][i]);
      }
      keep_order();
      load_next();
      keep_order();
#pragma clang loop unroll(full)
      for (int s = 0; s < kOwnSteps; ++s)
#pragma clang loop unroll(full)
        for (int i = 0; i < TM; ++i)
#pragma clang loop unroll(full)
          for (int j = 0; j < TN; ++j) {
            M::product(x[s][i], y[s][j], sums[i][j]);
            // The first product waits until another workgroup's wave on this SIMD has done its own; the others don't
            // give way: workgroups take turns at matrix instructions and at memory.
            if (s + i + j == 0) {
              raise_priority<1>();
              keep_order();
            }
          }
      raise_priority<0>();
      keep_order();
    } else {
      load_next();
      // One step of vector arithmetic is long enough; unrolling further only costs registers.
      constexpr int kTogether = M::kFamily == MatrixFamily::kVector ? 1 : kSteps;
#pragma unroll kTogether
      for (int s = 0; s < kOwnSteps; ++s) {
        vec16 y[TN][M::kVectorsB];
        read_b(s, y);
#pragma clang loop unroll(full)
        for (int i = 0; i < TM; ++i) {
          vec16 x[M::kVectorsA];
          read_a(s, i, x);
#pragma clang loop unroll(full)
          for (int j = 0; j < TN; ++j) M::product(x, y[j], sums[i][j]);
        }
      }
    }
    if constexpr (Tile::kStages == 1) lds_barrier();
    if (next < count) {
      a.template finish<true>(stage_a(next));
      b.template finish<true>(stage_b(next));
    }
  }
  wait_copies<0>();
  lds_barrier();
  store_sums<P, TM, TN, Tile::kWavesM * Tile::kWavesN, Tile::kWavesK>(
      p, sums, (shared_f32*)lds, z, first_row + wave_m * TM * 16, first_col + wave_n * TN * 16, wave_mn, wave_k);
}

}  // namespace sdx
