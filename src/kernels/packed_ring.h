// GEMM with constant weights of 4 or 8 bits, quantised in blocks, for 8 to 32 rows, on Hopper: out[z, row, col] =
// epilogue(sum over k of a[z, row, k] * b[z, col, k]). Some warps only copy packed weights, their scales and the rows
// of a to a ring of stages, 128 bytes of each column at a time, so that several stages are on their way from memory
// while others are multiplied. As in skinny.h, columns of b are the 16 rows of mma, and each lane dequantises its own
// weights, with the same rounding; but a warp has 64 columns, for which it reads rows from shared memory once, and a
// thread block up to 256, for which rows are read from the L2 cache once.
//
// Requires of P what gemm_packed.h does, and without b_zero() what skinny.h does.
#pragma once
#include "gemm_packed.h"

#if defined(__NVPTX__)
namespace sdx {
namespace packed_detail {

/// Groups: of 64 columns. Two warps multiply each, of which each takes half of the K of a stage. Rows: of a tile, 8, 16
/// or 32. Stages: of the ring. Splits: size of a cluster whose thread blocks divide K. ScaleVectors: runs of 16 bytes
/// that share a scale.
template <int Groups, int Rows, int Stages, int Splits, int ScaleVectors, class P>
struct RingTile {
  static constexpr layout::PackedRingLayout kLayout{Groups, Rows, Stages, P::kBits, ScaleVectors};
  static constexpr u32 kGroups = Groups, kRows = Rows, kStages = Stages, kSplits = Splits;
  static constexpr u32 kCols = kLayout.cols(), kPitch = kLayout.pitch(), kWorkers = Groups * 64;
  static constexpr u32 kDepth = kLayout.depth(), kStageBytes = kLayout.stage_bytes();
  static constexpr u32 kScaleBytes = kLayout.scale_bytes(), kScaleVectors = ScaleVectors;
  static constexpr u32 kCopyThreads = 64, kRowThreads = 64;
  static_assert(kScaleBytes == 4 || kScaleBytes == 8 || kScaleBytes == 16);
};

/// A thread block's part of the work.
struct RingWork {
  u32 lds, full, empty;  ///< addresses of the stages and their barriers
  u32 z, row, col, from, count;
};

/// Position of a run of 16 bytes (of 8) of a column in a stage, in vectors. Quarters of a warp, which read four runs of
/// two columns each, use all banks.
SDX_FN u32 place_run(u32 col, u32 run) { return col * 8 + (run ^ col % 2 * 4); }

template <u32 Bytes>
SDX_FN void copy_scales(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               :
               : "r"(to), "l"((__attribute__((address_space(1))) const void*)from), "n"(Bytes)
               : "memory");
}
/// Arrives at a barrier when this thread's earlier asynchronous copies are done.
SDX_FN void arrive_with_copies(u32 at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

/// Copies a thread's part of the weights and scales, stage by stage. Columns past the end repeat the last one.
template <class Tile, class P>
struct RingCopies {
  static constexpr u32 kThreads = Tile::kCopyThreads, kColumns = Tile::kCols * 8 / kThreads;
  static constexpr u32 kScales = Tile::kCols / kThreads;
  using Byte = __attribute__((address_space(1))) const u8;
  Byte* base;
  // From the first column, as what lies between columns depends on the problem.
  i32 packed[kColumns], scales[kScales];
  Byte* first_scale;
  u32 k;  // bytes of packed weights before the next stage

  SDX_FN RingCopies(const P& p, u32 z, u32 first_col, u32 k0) : k(k0 * P::kBits / 8) {
    const auto column = [&](u32 c) { return first_col + c < p.n ? first_col + c : p.n - 1; };
    base = (Byte*)p.b_packed(z, column(0), 0);
    first_scale = (Byte*)p.b_scale(z, column(0), 0);
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kColumns; ++c)
      packed[c] = i32((Byte*)p.b_packed(z, column(me() / 8 + c * (kThreads / 8)), 0) - base) + me() % 8 * 16;
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kScales; ++c)
      scales[c] = i32((Byte*)p.b_scale(z, column(me() + c * kThreads), 0) - first_scale);
  }
  static SDX_FN u32 me() { return thread_id() % kThreads; }
  /// Issues the copies of the next stage.
  SDX_FN void next(u32 lds, u32 stage, u32 full) {
    const u32 to = lds + stage * Tile::kStageBytes, to_scales = lds + Tile::kLayout.scales_at(stage);
    Byte* from = base + k;
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kColumns; ++c)
      copy_async(to + place_run(me() / 8 + c * (kThreads / 8), me() % 8) * 16, (const void*)(from + packed[c]), true);
    from = first_scale + k / (8 * Tile::kScaleVectors);
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kScales; ++c)
      copy_scales<Tile::kScaleBytes>(to_scales + (me() + c * kThreads) * Tile::kScaleBytes,
                                     (const void*)(from + scales[c]));
    arrive_with_copies(full + 8 * stage);
    k += Tile::kLayout.kBytes;
  }
};

/// Position of eight elements of a row in a stage, in vectors. Quarters of a warp, which read four runs of two rows
/// each, use all banks.
template <class Tile>
SDX_FN u32 place_part(u32 row, u32 part) {
  return row * (Tile::kDepth / 8) + (part ^ (part >> 3 & 1) ^ (row & 1) << 1);
}

/// The work of the warps that copy rows. Rows past the end repeat the last one; their results are not stored.
template <class Tile, class P>
SDX_FN void copy_ring_rows(const P& p, const RingWork& work) {
  constexpr u32 kParts = Tile::kDepth / 8, kThreads = Tile::kRowThreads;
  const u32 me = thread_id() % kThreads, part = me % kParts;
  Ring<Tile::kStages> at;
#pragma nounroll
  for (u32 t = 0; t < work.count; ++t) {
    wait_phase(work.empty + 8 * at.stage, (at.round & 1) ^ 1);
    const u32 to = work.lds + at.stage * Tile::kStageBytes + Tile::kLayout.packed_bytes();
    const u32 k = (work.from + t) * Tile::kDepth + part * 8;
#pragma clang loop unroll(full)
    for (u32 r = 0; r < Tile::kRows; r += kThreads / kParts) {
      const u32 own = r + me / kParts, row = work.row + own < p.m ? work.row + own : p.m - 1;
      bool inside = true;
      copy_async(to + place_part<Tile>(own, part) * 16, p.a(work.z, row, k, inside), true);
    }
    arrive_with_copies(work.full + 8 * at.stage);
    at.next();
  }
}

/// The work of the warps that copy weights, after the first `ahead` stages.
template <class Tile, class Copies>
SDX_FN void copy_ring_weights(const RingWork& work, Copies& copies, u32 ahead) {
  Ring<Tile::kStages> at;
  at.skip(ahead);
#pragma nounroll
  for (u32 t = ahead; t < work.count; ++t) {
    wait_phase(work.empty + 8 * at.stage, (at.round & 1) ^ 1);
    copies.next(work.lds, at.stage, work.full);
    at.next();
  }
}

template <class P>
inline constexpr bool kOneZero = requires(const P& p) { p.b_zero(); };
/// The zero points of a lane's weights in a stage: all are the same, or they are loaded while the stage before is
/// multiplied.
template <class P, bool One = kOneZero<P>>
struct RingZeros {
  SDX_FN void load(const P&, u32, const u32 (&)[4][2], u32) {}
  SDX_FN f32 of(const P& p, u32, u32) const { return p.b_zero(); }
};
template <class P>
struct RingZeros<P, false> {
  f32 x[4][2];
  SDX_FN void load(const P& p, u32 z, const u32 (&cols)[4][2], u32 k) {
#pragma clang loop unroll(full)
    for (u32 tile = 0; tile < 4; ++tile)
#pragma clang loop unroll(full)
      for (u32 c = 0; c < 2; ++c) {
        f32 scale;
        p.b_block(z, cols[tile][c], k, scale, x[tile][c]);
      }
  }
  SDX_FN f32 of(const P&, u32 tile, u32 c) const { return x[tile][c]; }
};

/// Multiplies a warp's half of a stage: 64 columns from own_col on, of each of which a lane has a run of packed
/// weights.
template <class Tile, class P>
SDX_FN void multiply_stage(const P& p, u32 stage, u32 own_col, u32 run, const RingZeros<P>& zeros,
                           f32 (&acc)[4][Tile::kRows / 8][4]) {
  using T = typename P::T;
  using shared_half = __attribute__((address_space(3))) const u16;
  constexpr u32 kChunks = kRunLength<P> / 8, kWords = P::kBits / 4, kGroups = Tile::kRows / 8;
  const u32 line = thread_id() % 32 / 4;
  const auto* packed = (shared_vec*)dynamic_lds + stage * (Tile::kStageBytes / 16);
  const auto* rows = packed + Tile::kLayout.packed_bytes() / 16;
  const auto* scales = (shared_half*)dynamic_lds + Tile::kLayout.scales_at(stage) / 2;
  vec16 w[4][2];
  f32 scale[4][2];
#pragma clang loop unroll(full)
  for (u32 tile = 0; tile < 4; ++tile)
#pragma clang loop unroll(full)
    for (u32 c = 0; c < 2; ++c) {
      const u32 col = own_col + tile * 16 + c * 8 + line;
      w[tile][c] = packed[place_run(col, run)];
      scale[tile][c] = cast<f32>(
          bit_cast<typename P::Scale>(u16(scales[col * (Tile::kScaleBytes / 2) + run / Tile::kScaleVectors])));
    }
#pragma clang loop unroll(full)
  for (u32 i = 0; i < kChunks; ++i) {
    vec16 x[kGroups];
#pragma clang loop unroll(full)
    for (u32 g = 0; g < kGroups; ++g) {
      x[g] = rows[place_part<Tile>(g * 8 + line, run * kChunks + i)];
      if constexpr (P::kBits == 4) x[g] = in_order(x[g]);
    }
#pragma clang loop unroll(full)
    for (u32 tile = 0; tile < 4; ++tile) {
      vec16 y[2];
#pragma clang loop unroll(full)
      for (u32 c = 0; c < 2; ++c)
        y[c] = dequantized<T, P::kBits, P::kSigned, P::kFloatZeros>(
            w[tile][c][i * kWords], w[tile][c][i * kWords + kWords - 1], scale[tile][c], zeros.of(p, tile, c));
#pragma clang loop unroll(full)
      for (u32 q = 0; q < 2; ++q)
#pragma clang loop unroll(full)
        for (u32 g = 0; g < kGroups; ++g) {
          f32(&s)[4] = acc[tile][g];
          detail::mma<T>(y[0][2 * q], y[1][2 * q], y[0][2 * q + 1], y[1][2 * q + 1], x[g][2 * q], x[g][2 * q + 1], s[0],
                         s[1], s[2], s[3]);
        }
    }
  }
}

/// Adds up the sums of both halves of K in shared memory, in place of the stages.
template <class Tile>
SDX_FN void add_halves(u32 half, u32 own_col, const f32 (&acc)[4][Tile::kRows / 8][4]) {
  const u32 lane = thread_id() % 32;
  auto* to = (shared_f32*)dynamic_lds;
#pragma clang loop unroll(full)
  for (u32 turn = 0; turn < 2; ++turn) {
    barrier_of_workers<Tile::kWorkers>();  // all have read the stages; then, the first half's sums are there
    if (half != turn) continue;
#pragma clang loop unroll(full)
    for (u32 tile = 0; tile < 4; ++tile)
#pragma clang loop unroll(full)
      for (u32 g = 0; g < Tile::kRows / 8; ++g)
#pragma clang loop unroll(full)
        for (u32 e = 0; e < 4; ++e) {
          auto& sum = to[(g * 8 + lane % 4 * 2 + e % 2) * Tile::kPitch + own_col + tile * 16 + e / 2 * 8 + lane / 4];
          sum = turn == 0 ? acc[tile][g][e] : sum + acc[tile][g][e];
        }
  }
}

}  // namespace packed_detail

/// Launch: Groups * 64 + 128 threads, and a cluster of Splits thread blocks for each tile. K is a multiple of
/// Tile::kDepth, and has at least as many stages as there are splits.
template <int Groups, int Rows, int Stages, int Splits, int ScaleVectors, class P>
SDX_FN void packed_ring(const P& early) {
  using namespace packed_detail;
  using T = typename P::T;
  using Tile = RingTile<Groups, Rows, Stages, Splits, ScaleVectors, P>;
  static_assert(sizeof(T) == 2 && P::kAccessA == Access::kVector && P::kBits < 16 && P::kRowHeight == 0);
  const u32 wave = same(thread_id() / 32), lane = thread_id() % 32;
  RingWork work;
  work.lds = shared_address(dynamic_lds);
  work.full = work.lds + Tile::kLayout.barriers_at();
  work.empty = work.full + 8 * Stages;
  const u32 own_split = Splits > 1 ? cluster_rank() : 0, steps = early.k / Tile::kDepth;
  work.from = steps * own_split / Splits;
  work.count = steps * (own_split + 1) / Splits - work.from;
  u32 tile_m, tile_n;
  choose_tile(block_id() / Splits, early.batches, (early.m + Rows - 1) / Rows,
              (early.n + Tile::kCols - 1) / Tile::kCols, work.z, tile_m, tile_n);
  work.row = tile_m * Rows;
  work.col = tile_n * Tile::kCols;
  if (thread_id() == Tile::kWorkers) {
    for (u32 s = 0; s < Stages; ++s) {
      init_barrier(work.full + 8 * s, Tile::kCopyThreads + Tile::kRowThreads);
      init_barrier(work.empty + 8 * s, Groups * 2);
    }
    publish_barriers();
  }
  barrier();
  if (wave >= Groups * 2) {
    // Copies of weights, which do not wait for the launch before, have warps of their own: a thread's later copies
    // would count as arrived only after all of these.
    if (wave >= Groups * 2 + Tile::kRowThreads / 32) {
      const u32 ahead = work.count < Stages ? work.count : Stages;
      RingCopies<Tile, P> copies(early, work.z, work.col, work.from * Tile::kDepth);
      for (u32 t = 0; t < ahead; ++t) copies.next(work.lds, t, work.full);
      wait_for_launch();
      start_next_launch();
      copy_ring_weights<Tile>(work, copies, ahead);
    } else {
      wait_for_launch();
      start_next_launch();
      copy_ring_rows<Tile>(early.after_launch(), work);
    }
    // Arrives as often as the warps that multiply.
    if constexpr (Splits > 1) {
      cluster_barrier();
      cluster_barrier();
    }
    return;
  }
  wait_for_launch();
  start_next_launch();
  const P p = early.after_launch();
  const u32 half = wave % 2, own_col = wave / 2 * 64, run = half * 4 + lane % 4;
  Ring<Stages> at;
  f32 acc[4][Rows / 8][4] = {};
  u32 cols[4][2];
#pragma clang loop unroll(full)
  for (u32 tile = 0; tile < 4; ++tile)
#pragma clang loop unroll(full)
    for (u32 c = 0; c < 2; ++c) {
      const u32 own = work.col + own_col + tile * 16 + c * 8 + lane / 4;
      cols[tile][c] = own < p.n ? own : p.n - 1;
    }
  RingZeros<P> zeros, next;
  const u32 first_k = work.from * Tile::kDepth + run * kRunLength<P>;
  next.load(p, work.z, cols, first_k);
#pragma nounroll
  for (u32 t = 0; t < work.count; ++t) {
    zeros = next;
    next.load(p, work.z, cols, first_k + (t + 1 < work.count ? t + 1 : t) * Tile::kDepth);
    wait_phase(work.full + 8 * at.stage, at.round & 1);
    multiply_stage<Tile>(p, at.stage, own_col, run, zeros, acc);
    wave_barrier();
    if (lane == 0) arrive(work.empty + 8 * at.stage);
    at.next();
  }
  add_halves<Tile>(half, own_col, acc);
  if constexpr (Splits > 1)
    cluster_barrier();
  else
    barrier_of_workers<Tile::kWorkers>();
  store_sums<Tile>(p, work.lds, work.z, work.row, work.col, own_split);
  if constexpr (Splits > 1) cluster_barrier();
}

}  // namespace sdx
#endif
