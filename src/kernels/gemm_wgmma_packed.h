// GEMM with weights of 4 or 8 bits, quantised in blocks, for 16 to some hundred rows, on Hopper: gemm_wgmma.h's tiles,
// to which the threads store b dequantised. The loads of a thread's weights are several steps ahead, in registers, and
// dequantising overlaps with the matrix instructions of the step before. Values are rounded as in skinny.h, which is
// faster for fewer rows. Requires of P what skinny.h does.
#pragma once
#include "gemm_wgmma.h"
#include "skinny.h"

#if defined(__NVPTX__)
namespace sdx {
namespace gemm_detail {

/// A thread's part of a tile of BN columns and Slices * 64 elements of K: runs of 16 bytes of packed weights.
template <class P, int BN, int Slices>
struct PackedLoader {
  static constexpr u32 kRunLength = 128 / P::kBits, kRuns = Slices * 64 / kRunLength, kItems = BN * kRuns;
  static constexpr u32 kEach = kItems / 256, kVectors = kRunLength / 8, kWords = P::kBits / 4;
  static_assert(kItems % 256 == 0);
  vec16 packed[kEach];
  f32 scale[kEach], zero[kEach];

  static SDX_FN u32 item(u32 j) { return thread_id() + j * 256; }
  /// Starts loading. Columns past the end repeat the last one; their results are not stored.
  SDX_FN void begin(const P& p, u32 z, u32 first_col, u32 k0) {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) {
      const u32 c = first_col + item(j) / kRuns, k = k0 + item(j) % kRuns * kRunLength;
      const u32 col = c < p.n ? c : p.n - 1, at = k < p.k ? k : 0;
      packed[j] = load16(p.b_packed(z, col, at));
      p.b_block(z, col, at, scale[j], zero[j]);
      if (k >= p.k) scale[j] = 0;
    }
  }
  /// Stores the dequantised elements to a stage, in which the slices are kPart vectors apart.
  template <int kPart>
  SDX_FN void finish(shared_vec* to) const {
    using namespace skinny_detail;
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) {
      const u32 col = item(j) / kRuns, chunk = item(j) % kRuns * kVectors;
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kVectors; ++v) {
        vec16 y = dequantized<typename P::T, P::kBits, P::kSigned, P::kFloatZeros>(
            packed[j][v * kWords], packed[j][v * kWords + kWords - 1], scale[j], zero[j]);
        if constexpr (P::kBits == 4) y = from_order(y);
        to[(chunk + v) / 8 * kPart + place<8, Access::kVector>(col, (chunk + v) % 8)] = y;
      }
    }
  }
};

}  // namespace gemm_detail

/// BN, Stages (at least 3) and Slices: as for gemm_wgmma<>, and so is the launch. Ahead: steps for which a thread's
/// packed weights are loaded ahead.
template <int BN, int Stages, int Slices, int Ahead, class P>
SDX_FN void gemm_wgmma_packed(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  static_assert(Stages >= 3 && sizeof(T) == 2 && P::kAccessA == Access::kVector && P::kBits < 16);
  constexpr int kBM = 128 / Slices, kChunks = 8, kPart = (kBM + BN) * kChunks,
                kStage = layout::WgmmaLayout{BN, Slices}.stage_bytes() / 16, TN = BN / 16;
  constexpr int kDepth = layout::stage_depth(sizeof(T)), kK = kDepth * Slices;
  const u32 wave = thread_id() / 32, group = wave / 4;
  u32 z, tile_m, tile_n;
  const u32 parts = splits_of(p);
  choose_tile(block_id() / parts, p.batches, (p.m + kBM - 1) / kBM, (p.n + BN - 1) / BN, z, tile_m, tile_n);
  const u32 first_row = tile_m * kBM, first_col = tile_n * BN;

  typename Matrix<T>::Acc acc[1][TN][8];
#pragma clang loop unroll(full)
  for (int j = 0; j < TN; ++j)
#pragma clang loop unroll(full)
    for (int e = 0; e < 8; ++e) acc[0][j][e] = 0;
  Loader<P, true, kBM, kChunks, 256> a;
  typename decltype(a)::Held held_a;  // unused: the chip copies to LDS without registers
  PackedLoader<P, BN, Slices> b[Ahead];
  auto stage_a = [&](u32 t, u32 slice) { return (shared_vec*)dynamic_lds + t % Stages * kStage + slice * kPart; };
  auto stage_b = [&](u32 t, u32 slice) { return stage_a(t, slice) + kBM * kChunks; };
  const u32 steps = (p.k + kK - 1) / kK, from = steps * split_of(p) / parts;
  const u32 count = steps * (split_of(p) + 1) / parts - from;
  auto begin_a = [&](u32 t) {
#pragma clang loop unroll(full)
    for (u32 slice = 0; slice < Slices; ++slice)
      a.template begin<false>(p, held_a, stage_a(t, slice), z, first_row, (from + t) * kK + slice * kDepth);
  };
#pragma clang loop unroll(full)
  for (u32 t = 0; t < Ahead; ++t)
    if (t < count) b[t].begin(p, z, first_col, (from + t) * kK);
#pragma clang loop unroll(full)
  for (u32 t = 0; t + 2 < Stages; ++t) {
    if (t < count) begin_a(t);
    commit_copies();
  }
  // Stores the weights of a step, which are in b[Slot], and begins loading those for which its registers are next.
  const auto advance = [&](PackedLoader<P, BN, Slices>& loaded, u32 t) {
    if (t >= count) return;
    loaded.template finish<kPart>(stage_b(t, 0));
    if (t + Ahead < count) loaded.begin(p, z, first_col, (from + t + Ahead) * kK);
  };
  advance(b[0], 0);
#pragma nounroll
  for (u32 first = 0; first < count; first += Ahead) {
#pragma clang loop unroll(full)
    for (u32 u = 0; u < Ahead; ++u) {
      const u32 t = first + u;
      if (t >= count) break;
      wait_copies<Stages - 3>();
      fence_async_reads();
      barrier();
      // All warps have waited for their wgmma of step t - 2, so its stage is free, and that of step t + 1 too.
      if (t + Stages - 2 < count) begin_a(t + Stages - 2);
      commit_copies();
      const u32 slice = Slices == 1 ? 0 : group;
      const u64 da = wgmma_descriptor(stage_a(t, slice) + (Slices == 1 ? group * 64 * kChunks : 0)),
                db = wgmma_descriptor(stage_b(t, slice));
      wgmma_fence();
#pragma clang loop unroll(full)
      for (int s = 0; s < 4; ++s) wgmma<T, BN>(da + s * 2, db + s * 2, &acc[0][0][0]);
      wgmma_commit();
      advance(b[(u + 1) % Ahead], t + 1);
      wgmma_wait<1>();
    }
  }
  store_tile<Slices>(p, acc, z, first_row, first_col);
}

}  // namespace sdx
#endif
