// GEMM of one row on Hopper, which streams constant weights through shared memory and overlaps with neighbouring
// launches. It computes what skinny.h does for one row: out[col] = epilogue(sum over k of a[k] * b[col, k]), with
// weights of 16, 8 or 4 bits. b must be in memory before any launch of the run. Therefore one warp, which does nothing
// else, can copy weights into a ring of stages (bulk copies, a run of each column at a time) before this kernel waits
// for the previous launch; and the next launch may start while this one ends, and copy its own weights. Thread blocks
// of two kernels have to fit on a multiprocessor for that, which skinny.h prevents because it keeps weights in
// registers.
//
// Each of 8 or 16 warps multiplies 128 bytes of every column in a stage. They add up their sums when a block of columns
// is done. A group of four lanes has 16 columns, the layout of mma.m16n8k16. With float16, 4-bit weights are multiplied
// as subnormal numbers, which is exact; scales and zero points are applied to the sums of each 32 elements of K.
//
// Besides what skinny.h requires of P:
//   P after_launch()                p as it may be used after the wait for the previous launch: gpu.h, after_wait()
//   Scale                           type of the scales in memory, of 16 bits (with kBits of 4 or 8)
//   const Scale* b_scale(z, col, k) address of the scale of the run at k; those of a column are contiguous
//   f32 b_zero()                    the zero point of all weights
//   Row; row_constants(z, row, k, Row&), row_read(z, row, k, Row&)    (with kRowHeight) load what row_part and
//                                   row_elements need of eight elements from k on: constants (a norm's weights, not
//                                   in any cache because the previous step was the last to use them), and the rest
//
// Sources: PTX ISA, "cp.async.bulk", "mbarrier", "griddepcontrol", "mma.m16n8k16"; CUDA C++ Programming Guide,
// "Programmatic Dependent Launch".
#pragma once
#include "gemm_tma.h"
#include "layout_stream.h"
#include "skinny.h"

#if defined(__NVPTX__)
namespace sdx {

/// Waves: warps that multiply. Tiles: groups of 16 columns that a thread block processes at a time. Stages: of the
/// ring. ColumnBytes: bytes of a column in a stage, 128 for each warp that multiplies; ColumnStages: stages per column.
/// ScaleAcc: scales are applied to sums. ScaleVectors: vectors of 16 bytes that share a scale. ScalesContiguous: the
/// scales of 16 columns are contiguous and are copied at once (the number of copies matters: the gate and up
/// projections of a decoder step took 5.9 us instead of 6.9). Shared: bytes of shared memory, which the library has
/// computed with StreamLayout.
template <int Waves, int Tiles, int Stages, int Bits, bool ScaleAcc, int ColumnBytes, int ColumnStages,
          int ScaleVectors, bool ScalesContiguous, u32 Shared>
struct StreamTiling {
  static constexpr int kTiles = Tiles, kStages = Stages, kColumnBytes = ColumnBytes, kColumnStages = ColumnStages;
  static constexpr bool kScaleAcc = ScaleAcc, kScalesContiguous = ScalesContiguous;
  static constexpr u32 kWaves = Waves, kWorking = ColumnBytes / 128, kWorkers = Waves * 32, kColumns = Tiles * 16,
                       kScaleVectors = ScaleVectors, kRun = 128 / Bits;
  static constexpr layout::StreamLayout kLayout{
      Waves, Tiles, Stages, Bits, ScaleAcc, ColumnBytes, ColumnStages, ScaleVectors, ScalesContiguous};
  static constexpr u32 kDepth = kLayout.depth(), kPitch = kLayout.pitch();
  static constexpr u32 kScaleBytes = kLayout.scale_bytes(), kScalePitch = kLayout.scale_pitch();
  static constexpr u32 kStage = kLayout.stage_bytes(), kRowAt = kLayout.row_at(), kAccAt = kLayout.acc_at();
  static constexpr u32 kTotalsAt = kLayout.totals_at(), kBarriersAt = kLayout.barriers_at();
  static_assert(!ScalesContiguous || (ColumnStages == 1 && Bits != 16));
  static_assert(ColumnBytes % 128 == 0 && ColumnBytes <= Waves * 128 && (Waves == 8 || Waves == 16) &&
                kScaleBytes % 16 == 0);
  static_assert(Shared == kLayout.bytes());
};

namespace stream_detail {

using namespace gemm_detail;
using namespace skinny_detail;
using namespace tma_detail;

/// Copies a multiple of 16 bytes to shared memory; `barrier` counts them.
SDX_FN void copy_run(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(to), "l"((__attribute__((address_space(1))) const void*)from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Eight neighbouring elements, loaded 16 bytes at a time.
template <class T>
SDX_FN void read_run(const T* from, T (&to)[8]) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
#pragma clang loop unroll(full)
  for (u32 v = 0; v < sizeof(T) / 2; ++v) {
    const vec16 x = load16(from + v * (16 / sizeof(T)));
    __builtin_memcpy(&to[v * (16 / sizeof(T))], &x, 16);
  }
}
/// Barrier among the warps that multiply.
template <class Tile>
SDX_FN void barrier_of_workers() {
  asm volatile("bar.sync 1, %0;" ::"n"(Tile::kWorkers) : "memory");
}

/// Position of eight elements of the row, in vectors; swizzled so that lanes that read together use all banks.
template <class Tile>
SDX_FN u32 place_vector(u32 at) {
  return !Tile::kScaleAcc && Tile::kRun == 32 ? at ^ (at / 8 % 2) : at;
}

/// Holds what row_part and row_elements need of this thread's vectors of the row; empty if they are not called.
template <class Tile, class P>
struct RowOf {
  static constexpr u32 kVectors = Tile::kDepth / 8, kEach = (kVectors + Tile::kWorkers - 1) / Tile::kWorkers;
  typename P::Row each[kEach];
  SDX_FN void constants(const P& p) {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) p.row_constants(0, 0, at(j), each[j]);
  }
  SDX_FN void read(const P& p) {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) p.row_read(0, 0, at(j), each[j]);
  }
  /// Threads past the end repeat the first vector.
  static SDX_FN u32 at(u32 j) {
    const u32 i = thread_id() + j * Tile::kWorkers;
    return i < kVectors ? i * 8 : 0;
  }
};
struct NoRow {
  template <class P>
  SDX_FN void constants(const P&) {}
};
template <class Tile, class P, bool Made = P::kRowHeight != 0>
struct RowOfProblem {
  using Type = NoRow;
};
template <class Tile, class P>
struct RowOfProblem<Tile, P, true> {
  using Type = RowOf<Tile, P>;
};

/// Stores the row of a to shared memory, with 4-bit weights in the order of in_order(). With ScaleAcc, what an
/// instruction takes is contiguous, and so are the sums of each 32 elements of K times the zero point.
template <class Tile, class P, class Row>
SDX_FN void put_row(const P& p, Row& made_of) {
  using T = typename P::T;
  constexpr u32 kVectors = Tile::kDepth / 8, kEach = (kVectors + Tile::kWorkers - 1) / Tile::kWorkers;
  auto* row = (shared_vec*)dynamic_lds + Tile::kRowAt / 16;
  auto* totals = (shared_f32*)dynamic_lds + Tile::kTotalsAt / 4;
  // Neighbouring threads have neighbouring vectors; threads past the end repeat the first one and do not store it.
  vec16 held[kEach];
  const auto at = [&](u32 j) { return thread_id() + j * Tile::kWorkers; };
  const auto in = [&](u32 j) { return at(j) < kVectors ? at(j) : 0; };
  if constexpr (P::kRowHeight != 0) {
    static_assert(P::kRowHeight == 1);
    auto* parts = (shared_f32*)dynamic_lds + Tile::kAccAt / 4;
    made_of.read(p);
    f32 sum = 0;
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) {
      const f32 part = p.row_part(0, 0, in(j) * 8, made_of.each[j]);
      if (at(j) < kVectors) sum += part;
    }
    for (u32 h = 1; h < kWave; h *= 2) sum += from_lane_xor(sum, h);
    if (thread_id() % kWave == 0) parts[thread_id() / kWave] = sum;
    barrier_of_workers<Tile>();
    sum = 0;
#pragma clang loop unroll(full)
    for (u32 w = 0; w < Tile::kWaves; ++w) sum += parts[w];
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) {
      T e[8];
      p.row_elements(0, 0, in(j) * 8, sum, made_of.each[j], e);
      __builtin_memcpy(&held[j], e, 16);
    }
  } else {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kEach; ++j) {
      if constexpr (P::kAccessA == Access::kVector) {
        bool inside = true;
        held[j] = load16(p.a(0, 0, in(j) * 8, inside));
      } else {
        T e[8];
        p.a_elements(0, 0, in(j) * 8, e);
        __builtin_memcpy(&held[j], e, 16);
      }
    }
  }
#pragma clang loop unroll(full)
  for (u32 j = 0; j < kEach; ++j) {
    const bool there = at(j) < kVectors;
    if constexpr (Tile::kScaleAcc) {
      T e[8];
      __builtin_memcpy(e, &held[j], 16);
      f32 total = 0;
#pragma clang loop unroll(full)
      for (int k = 0; k < 8; ++k) total += cast<f32>(e[k]);
      total += from_lane_xor(total, 1);
      total += from_lane_xor(total, 2);
      if (there && at(j) % 4 == 0) totals[at(j) / 4] = total * (p.b_zero() * -0x1p-24f);
    }
    vec16 x = P::kBits == 4 ? in_order(held[j]) : held[j];
    if constexpr (Tile::kScaleAcc) x = vec16{x[0], x[2], x[1], x[3]};
    if (there) row[place_vector<Tile>(at(j))] = x;
  }
  barrier_of_workers<Tile>();
}

/// The work of the copying warp: fills the ring.
template <class Tile, class P>
SDX_FN void copy_weights(const P& p, u32 full, u32 empty) {
  const u32 lds = shared_address(dynamic_lds), lane = thread_id() % 32, line = lane % 16;
  const u32 blocks = (p.n + Tile::kColumns - 1) / Tile::kColumns;
  constexpr u32 kScalesAt = 16 * Tile::kPitch;
  Ring<Tile::kStages> at;
  for (u32 block = block_id(); block < blocks; block += block_count())
    for (u32 tile = 0; tile < Tile::kTiles; ++tile) {
      const u32 c = block * Tile::kColumns + tile * 16 + line, col = c < p.n ? c : p.n - 1;
      for (u32 step = 0; step < Tile::kColumnStages; ++step) {
        // Before the first use of a stage, its previous phase counts as completed.
        wait_phase(empty + 8 * at.stage, (at.round & 1) ^ 1);
        const u32 to = lds + at.stage * Tile::kStage, barrier = full + 8 * at.stage;
        const u32 k = step * (Tile::kColumnBytes / 16 * Tile::kRun);
        if (lane == 0) expect_bytes(barrier, 16 * (Tile::kColumnBytes + Tile::kScaleBytes));
        wave_barrier();
        if constexpr (P::kBits == 16) {
          bool inside = true;
          if (lane < 16) copy_run(to + line * Tile::kPitch, p.b(0, col, k, inside), Tile::kColumnBytes, barrier);
        } else if (lane < 16) {
          copy_run(to + line * Tile::kPitch, p.b_packed(0, col, k), Tile::kColumnBytes, barrier);
        } else if constexpr (Tile::kScalesContiguous) {
          // n is a multiple of 16, so a tile has all of its columns or none.
          if (lane == 16) copy_run(to + kScalesAt, p.b_scale(0, c < p.n ? c : 0, k), 16 * Tile::kScaleBytes, barrier);
        } else {
          copy_run(to + kScalesAt + line * Tile::kScalePitch, p.b_scale(0, col, k), Tile::kScaleBytes, barrier);
        }
        at.next();
      }
    }
}

/// sums += this warp's part of a stage.
template <class Tile, class P, int Chains>
SDX_FN void multiply_stage(const P& p, u32 stage, u32 wave, const vec16* x, const f32* totals, f32 (&acc)[Chains][4]) {
  using T = typename P::T;
  constexpr int kBits = P::kBits;
  constexpr u32 kRunVectors = Tile::kRun / 8;
  const u32 lane = thread_id() % 32, line = lane / 4, part = lane % 4;
  const u32 here = stage * Tile::kStage, scales_at = here + 16 * Tile::kPitch;
  using shared_word = __attribute__((address_space(3))) const u32;
  using shared_half = __attribute__((address_space(3))) const u16;
  if constexpr (Tile::kScaleAcc) {
    // Each of four lanes has words of 8 elements of one block of 32. The 4 bits of an element, taken as a float16, are
    // a subnormal: element * 2^-24, or element * 2^-20 where they are 4 bits further up. Each of the instruction's 8
    // columns contains one block's part of the row, and zeros for all other blocks. So one instruction computes the
    // sums of several blocks and keeps them apart, for each to be scaled.
    f32 low[4] = {totals[0], totals[1], totals[0], totals[1]}, high[4] = {};
    const auto* words = (shared_word*)dynamic_lds + (here + line * Tile::kPitch + wave * 128) / 4 + part;
#pragma clang loop unroll(full)
    for (u32 run = 0; run < 8; ++run) {
      const u32 w0 = words[run * 4], w1 = words[run * 4 + 2 * Tile::kPitch], v0 = w0 >> 8, v1 = w1 >> 8;
      const vec16 y = x[run];
      detail::mma<T>(w0 & 0x00f000f0u, w1 & 0x00f000f0u, v0 & 0x00f000f0u, v1 & 0x00f000f0u, y[2], y[3], high[0],
                     high[1], high[2], high[3]);
      detail::mma<T>(w0 & 0x000f000fu, w1 & 0x000f000fu, v0 & 0x000f000fu, v1 & 0x000f000fu, y[0], y[1], low[0], low[1],
                     low[2], low[3]);
    }
#pragma clang loop unroll(full)
    for (u32 half = 0; half < 2; ++half) {
      const auto* s = (shared_half*)dynamic_lds + (scales_at + (line + half * 8) * Tile::kScalePitch) / 2 +
                      wave * (8 / Tile::kScaleVectors);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < 2; ++e) {
        const f32 scale = cast<f32>(bit_cast<typename P::Scale>(u16(s[(part * 2 + e) / Tile::kScaleVectors])));
        const u32 at = half * 2 + e;
        acc[0][at] = __builtin_fmaf(__builtin_fmaf(high[at], 0.0625f, low[at]), scale, acc[0][at]);
      }
    }
  } else {
    const auto* held = (shared_vec*)dynamic_lds + (here + line * Tile::kPitch + wave * 128) / 16 + part;
#pragma clang loop unroll(full)
    for (u32 run = 0; run < 2; ++run) {
      vec16 w[2];
      f32 scale[2] = {};
#pragma clang loop unroll(full)
      for (u32 half = 0; half < 2; ++half) {
        w[half] = held[run * 4 + half * (Tile::kPitch / 2)];
        if constexpr (kBits != 16) {
          const auto* s = (shared_half*)dynamic_lds + (scales_at + (line + half * 8) * Tile::kScalePitch) / 2;
          scale[half] =
              cast<f32>(bit_cast<typename P::Scale>(u16(s[(wave * 8 + run * 4 + part) / Tile::kScaleVectors])));
        }
      }
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kRunVectors; ++v) {
        vec16 y[2];
#pragma clang loop unroll(full)
        for (u32 half = 0; half < 2; ++half) {
          constexpr u32 kWords = kBits / 4;
          if constexpr (kBits == 16)
            y[half] = w[half];
          else
            y[half] = dequantized<T, kBits, P::kSigned, P::kFloatZeros>(
                w[half][v * kWords], w[half][v * kWords + kWords - 1], scale[half], p.b_zero());
        }
        const vec16 z = x[run * kRunVectors + v];
#pragma clang loop unroll(full)
        for (int q = 0; q < 2; ++q) {
          // Several independent chains of sums hide the latency of the matrix instruction.
          f32(&s)[4] = acc[((run * kRunVectors + v) * 2 + q) % Chains];
          detail::mma<T>(y[0][2 * q], y[1][2 * q], y[0][2 * q + 1], y[1][2 * q + 1], z[2 * q], z[2 * q + 1], s[0], s[1],
                         s[2], s[3]);
        }
      }
    }
  }
}

}  // namespace stream_detail

/// Launch: Tile::kWorkers + 32 threads; at most ceil(n / Tile::kColumns) thread blocks, of which each processes several
/// blocks of columns if there are fewer. batches and m are 1, k is Tile::kDepth. Needs `Shared` bytes of dynamic shared
/// memory.
template <class Tile, class P>
SDX_FN void stream(const P& first_p) {
  using namespace stream_detail;
  using T = typename P::T;
  static_assert(sizeof(T) == 2 && P::kAccessA != Access::kAcross &&
                (!Tile::kScaleAcc || (P::kBits == 4 && is_same<T, f16>)));
  start_next_launch();
  constexpr u32 kRunVectors = Tile::kRun / 8, kColumns = Tile::kColumns;
  // Vectors of the row that a lane needs for a stage; they are loaded once for all stages if they fit in registers.
  constexpr u32 kStageVectors = 2 * kRunVectors;
  constexpr bool kAll = kStageVectors * Tile::kColumnStages <= 8;
  constexpr int kChains = Tile::kScaleAcc ? 1 : 4;
  const u32 wave = same(thread_id() / 32), lane = thread_id() % 32, line = lane / 4, part = lane % 4;
  const u32 full = shared_address(dynamic_lds) + Tile::kBarriersAt, empty = full + 8 * Tile::kStages;
  if (thread_id() == 0) {
    for (u32 s = 0; s < Tile::kStages; ++s) {
      init_barrier(full + 8 * s, 1);
      init_barrier(empty + 8 * s, Tile::kWaves);
    }
    publish_barriers();
  }
  barrier();
  if (wave == Tile::kWaves) {
    copy_weights<Tile>(first_p, full, empty);
    return;
  }

  typename RowOfProblem<Tile, P>::Type made_of;
  made_of.constants(first_p);
  wait_for_launch();
  const P p = first_p.after_launch();
  const u32 blocks = (p.n + kColumns - 1) / kColumns;
  using Read = typename ReadOf<P>::Type;
  // A thread stores one result; what its epilogue reads is loaded early.
  constexpr bool kReads = !__is_same(Read, NothingRead);
  static_assert(kColumns <= Tile::kWorkers);
  Read read;
  const auto read_early = [&](u32 block) {
    if constexpr (kReads) {
      const u32 col = block * kColumns + thread_id() % kColumns;
      p.read(0, 0, col < p.n ? col : p.n - 1, read);
    }
  };
  if (block_id() < blocks) read_early(block_id());
  put_row<Tile>(p, made_of);

  const auto* row = (shared_vec*)dynamic_lds + Tile::kRowAt / 16;
  auto* parts = (shared_f32*)dynamic_lds + Tile::kAccAt / 4;
  // With ScaleAcc, a lane holds the part of the row that its column of the instruction multiplies: a block of 32
  // elements of K.
  const auto take_row = [&](u32 step, vec16* x, f32* totals) {
    const u32 first_run = (step * Tile::kWorking + wave) * 8;
    if constexpr (Tile::kScaleAcc) {
      const vec16 mine = row[(first_run + line) * 4 + part];
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kStageVectors; ++v) x[v] = line == v ? mine : vec16{};
#pragma clang loop unroll(full)
      for (u32 e = 0; e < 2; ++e)
        totals[e] = ((shared_f32*)dynamic_lds)[Tile::kTotalsAt / 4 + first_run + part * 2 + e];
    } else {
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kStageVectors; ++v)
        x[v] = row[place_vector<Tile>((first_run + v / kRunVectors * 4 + part) * kRunVectors + v % kRunVectors)];
    }
  };
  constexpr u32 kHeld = kAll ? Tile::kColumnStages : 1;
  vec16 x[kHeld][kStageVectors];
  f32 totals[kHeld][2];
  const bool works = wave < Tile::kWorking;
  if constexpr (kAll)
#pragma clang loop unroll(full)
    for (u32 step = 0; step < kHeld; ++step)
      if (works) take_row(step, x[step], totals[step]);
  Ring<Tile::kStages> at;
  for (u32 block = block_id(); block < blocks; block += block_count()) {
    if (block != block_id()) {
      read_early(block);
      barrier_of_workers<Tile>();  // wait until the sums of the previous block have been read
    }
#pragma unroll 1
    for (u32 tile = 0; tile < Tile::kTiles; ++tile) {
      f32 acc[kChains][4] = {};
      const auto stage = [&](u32 step, u32 held) {
        if constexpr (!kAll)
          if (works) take_row(step, x[0], totals[0]);
        wait_phase(full + 8 * at.stage, at.round & 1);
        if (works) multiply_stage<Tile>(p, at.stage, wave, x[held], totals[held], acc);
        wave_barrier();
        if (lane == 0) arrive(empty + 8 * at.stage);
        at.next();
      };
      if constexpr (kAll) {
#pragma clang loop unroll(full)
        for (u32 step = 0; step < kHeld; ++step) stage(step, step);
      } else {
#pragma unroll 1
        for (u32 step = 0; step < Tile::kColumnStages; ++step) stage(step, 0);
      }
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; e += 2) {  // the first of the instruction's 8 rows
        f32 sum = acc[0][e];
#pragma clang loop unroll(full)
        for (int c = 1; c < kChains; ++c) sum += acc[c][e];
        if constexpr (Tile::kScaleAcc) {
          sum = (sum + acc[0][e + 1]) * 0x1p24f;
          sum += from_lane_xor(sum, 1);
          sum += from_lane_xor(sum, 2);
        }
        if (part == 0) parts[wave * kColumns + tile * 16 + e / 2 * 8 + line] = sum;
      }
    }
    barrier_of_workers<Tile>();
    constexpr u32 kEach = P::kPairs ? 2 : 1;
    const u32 c = thread_id() * kEach, col = block * kColumns + c;
    if (c < kColumns && col < p.n) {
      f32 all[kEach] = {};
#pragma clang loop unroll(full)
      for (u32 w = 0; w < Tile::kWaves; ++w)
#pragma clang loop unroll(full)
        for (u32 e = 0; e < kEach; ++e) all[e] += parts[w * kColumns + c + e];
      if constexpr (kReads)
        p.element(0, 0, col, all[0], read);
      else
        store_columns<kEach>(p, 0, 0, col, all);
    }
  }
}

}  // namespace sdx
#endif
