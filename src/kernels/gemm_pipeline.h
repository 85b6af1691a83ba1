// Main loops of the tiled GEMM (gemm.h): tiles of A and B go from memory to LDS, and from there to a wave's registers.
#pragma once
#include "gemm_loader.h"
#include "gemm_split_k_tree.h"
#include "gemm_store.h"

namespace sdx {
namespace gemm_detail {

#if defined(__AMDGCN__)
/// The compiler moves no instruction across this.
SDX_FN void keep_order() { __builtin_amdgcn_sched_barrier(0); }
/// ... but arithmetic that is not of matrices.
SDX_FN void keep_memory_order() { __builtin_amdgcn_sched_barrier(6); }
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

/// Forces the values into registers here: the compiler would otherwise clear the sums right before the loop that adds
/// to them.
template <class Sums, int TM, int TN>
SDX_FN void fix_registers(Sums (&acc)[TM][TN]) {
#if defined(__GFX9__)
#pragma clang loop unroll(full)
  for (int i = 0; i < TM * TN; ++i) asm volatile("" : "+v"(acc[i / TN][i % TN]));
#endif
}

template <class Tile, class P>
struct Sizes {
  using T = typename P::T;
  using M = Matrix<T>;
  static constexpr int kChunks = Tile::kRow / 16;                                 // 16 bytes each
  static constexpr int kK = Tile::kRow / int(sizeof(T)), kSteps = kK / M::kStep;  // of a tile
  static constexpr int kTilesM = Tile::kM / 16 / Tile::kWavesM, kTilesN = Tile::kN / 16 / Tile::kWavesN;  // of a wave
  static constexpr int kOwnSteps = kSteps / Tile::kWavesK;
#if defined(SDX_NO_OWN_REGISTERS)
  static constexpr bool kOwnAccumulators = false;
#else
  static constexpr bool kOwnAccumulators = true;
#endif
#if defined(SDX_LOADS_TO_LDS)
  /// See gemm_direct.h.
  static constexpr bool kDirect = kOwnAccumulators && kTilesM * kTilesN == 64 && P::kLinearA && P::kLinearB &&
                                  !P::kMaskedA && !P::kMaskedB && P::kAccessA == Access::kVector &&
                                  P::kAccessB == Access::kVector;
  /// See gemm_ring.h.
  static constexpr bool kRing = Tile::kInFlight == 0;
#else
  static constexpr bool kDirect = false, kRing = false;
  static_assert(Tile::kInFlight > 0, "the chip has no loads of 16 bytes to LDS");
#endif
  /// See TransposedAcc.
  static constexpr int kRun = Tile::kWavesK == 1 && !kDirect ? transposed_run<P, kTilesN> : 0;
  using A = Loader<P, true, Tile::kM, kChunks, Tile::kThreads>;
  using B = Loader<P, false, Tile::kN, kChunks, Tile::kThreads, kRun>;
  static constexpr int kStage = A::kSpace + B::kSpace;  // of LDS, in chunks
  static_assert(kRun == 0 || B::kSpace / kChunks % (4 * kRun) == 0);
  static constexpr int kPart = kTilesN < 4 ? kTilesN : 4;
  static constexpr int kStore = Tile::kWavesM * Tile::kWavesN * Tile::kWavesK * 16 * (kPart * 16 + 4) / 4;
  // Whether a wave's registers can hold its operands of a whole tile, besides its sums.
  static constexpr int kOperandRegisters = (kTilesM * M::kVectorsA + kTilesN * M::kVectorsB) * 4 * kOwnSteps;
  static constexpr bool kReadFirst = M::kFamily == MatrixFamily::kMfma && kOperandRegisters <= 128;
  template <Access A>
  static constexpr bool kHas = P::kAccessA == A || P::kAccessB == A;
  // Computed elements take long enough anyway, and would need too much code. On RDNA no registers are left to transpose
  // blocks.
  static constexpr bool kPipelined =
      !kHas<Access::kElements> && (M::kFamily == MatrixFamily::kMfma || !kHas<Access::kAcross>);
  static constexpr int kInFlight = kPipelined ? Tile::kInFlight : 1;
  static constexpr int kVectors = kStage * Tile::kStages > kStore || kRun > 0 ? kStage* Tile::kStages : kStore;

  static SDX_FN void mma(const vec16 (&a)[M::kVectorsA], const vec16 (&b)[M::kVectorsB], typename M::Sums& acc) {
    if constexpr (kRun > 0)
      M::mma(b, a, acc);
    else
      M::mma(a, b, acc);
  }
};

/// The part of a workgroup's tile that a wave computes, and its operands in LDS.
template <class Tile, class P>
struct WavePart {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 k = wave / (Tile::kWavesM * Tile::kWavesN), mn = wave % (Tile::kWavesM * Tile::kWavesN);
  const u32 m = mn / Tile::kWavesN, n = mn % Tile::kWavesN;

  SDX_FN void read_a(const shared_vec* from, int s, int i, vec16 (&x)[M::kVectorsA]) const {
    const u32 chunk = (s * Tile::kWavesK + k) * (M::kStep / M::kVec);
#pragma clang loop unroll(full)
    for (int v = 0; v < M::kVectorsA; ++v)
      x[v] = from[place<S::kChunks, P::kAccessA>((m * S::kTilesM + i) * 16 + M::row_a(lane, v),
                                                 chunk + M::chunk(lane, v))];
  }
  SDX_FN void read_b(const shared_vec* from, int s, int j, vec16 (&y)[M::kVectorsB]) const {
    const u32 chunk = (s * Tile::kWavesK + k) * (M::kStep / M::kVec);
#pragma clang loop unroll(full)
    for (int v = 0; v < M::kVectorsB; ++v)
      y[v] = from[place<S::kChunks, P::kAccessB>((n * S::kTilesN + j) * 16 + M::row_b(lane, v),
                                                 chunk + M::chunk(lane, v))];
  }
  SDX_FN void read_b(const shared_vec* from, int s, vec16 (&y)[S::kTilesN][M::kVectorsB]) const {
#pragma clang loop unroll(full)
    for (int j = 0; j < S::kTilesN; ++j) read_b(from, s, j, y[j]);
  }
};

/// Adds the products of a tile in LDS, all of whose operands are read first. Between the reads and the products it
/// calls `load_next`.
template <class Tile, class P, class AccTile, class LoadNext>
SDX_FN void multiply_tile(const WavePart<Tile, P>& part, AccTile& acc, const shared_vec* from_a,
                          const shared_vec* from_b, const LoadNext& load_next) {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  constexpr int TM = S::kTilesM, TN = S::kTilesN;
  // LDS works through all reads of the tile while the first products run, and the loads of the next tile come after
  // them: matrix instructions then follow one another without a wait.
  vec16 x[S::kOwnSteps][TM][M::kVectorsA], y[S::kOwnSteps][TN][M::kVectorsB];
#pragma clang loop unroll(full)
  for (int s = 0; s < S::kOwnSteps; ++s) {
    part.read_b(from_b, s, y[s]);
#pragma clang loop unroll(full)
    for (int i = 0; i < TM; ++i) part.read_a(from_a, s, i, x[s][i]);
  }
  keep_order();
  load_next();
  keep_order();
#pragma clang loop unroll(full)
  for (int s = 0; s < S::kOwnSteps; ++s)
#pragma clang loop unroll(full)
    for (int i = 0; i < TM; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < TN; ++j) {
        S::mma(x[s][i], y[s][j], acc[i][j]);
        // The first matrix instruction waits for those of another workgroup's wave on this SIMD; the following ones
        // keep priority. So workgroups alternate between matrix instructions and memory.
        if (s + i + j == 0) {
          raise_priority<1>();
          keep_order();
        }
      }
  raise_priority<0>();
  keep_order();
}

/// Adds the products of `count` tiles along K, from tile `from` on, to a wave's sums. Tile::kStages tiles are in LDS;
/// the next one is loaded while one is multiplied.
template <class Tile, class P, class AccTile>
SDX_FN void multiply_staged(const P& p, AccTile& acc, const WavePart<Tile, P>& part, shared_vec* lds, u32 z,
                            u32 first_row, u32 first_col, u32 from, u32 count) {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  constexpr int TM = S::kTilesM, TN = S::kTilesN;
  typename S::A a;
  typename S::B b;
  typename S::A::Held held_a;
  typename S::B::Held held_b;
  auto stage_a = [&](u32 t) { return lds + t % Tile::kStages * S::kStage; };
  auto stage_b = [&](u32 t) { return stage_a(t) + S::A::kSpace; };
  constexpr u32 kAhead = Tile::kStages > 1 ? Tile::kStages - 1 : 1;  // tiles loaded before the first step
  // The last tile along K, which may be partial, is loaded first, so that all loads in the loop are full tiles.
  const auto first_k = [&](u32 t) { return (t == 0 ? from + count - 1 : from + t - 1) * S::kK; };
#if defined(__GFX9__)
  // A loop over a known K would be unrolled completely: up to three times the code, in float32 to no effect.
  if constexpr (sizeof(typename S::T) > 2) asm("" : "+s"(count));
#endif
  a.start(p, z, first_row, from * S::kK);
  b.start(p, z, first_col, from * S::kK);
#pragma clang loop unroll(full)
  for (u32 t = 0; t < kAhead; ++t) {
    if (t < count) {
      const auto load = [&](auto full) {
        a.template begin<full.value>(p, held_a, stage_a(t), z, first_row, first_k(t));
        b.template begin<full.value>(p, held_b, stage_b(t), z, first_col, first_k(t));
        a.template finish<full.value>(held_a, stage_a(t));
        b.template finish<full.value>(held_b, stage_b(t));
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
        a.template begin<true>(p, held_a, stage_a(next), z, first_row, first_k(next));
        b.template begin<true>(p, held_b, stage_b(next), z, first_col, first_k(next));
      }
      commit_copies();
    };
    const shared_vec *from_a = stage_a(t), *from_b = stage_b(t);
    if constexpr (S::kReadFirst) {
      multiply_tile<Tile>(part, acc, from_a, from_b, load_next);
    } else {
      load_next();
      // One step of vector arithmetic is long enough; unrolling further only costs registers.
      constexpr int kTogether = M::kFamily == MatrixFamily::kVector ? 1 : S::kSteps;
#pragma unroll kTogether
      for (int s = 0; s < S::kOwnSteps; ++s) {
        vec16 y[TN][M::kVectorsB];
        part.read_b(from_b, s, y);
#pragma clang loop unroll(full)
        for (int i = 0; i < TM; ++i) {
          vec16 x[M::kVectorsA];
          part.read_a(from_a, s, i, x);
#pragma clang loop unroll(full)
          for (int j = 0; j < TN; ++j) S::mma(x, y[j], acc[i][j]);
        }
        // Operands of several steps at a time would need more registers than there are.
        if constexpr (M::kFamily == MatrixFamily::kMfma) keep_order();
      }
    }
    if constexpr (Tile::kStages == 1) lds_barrier();
    if (next < count) {
      a.template finish<true>(held_a, stage_a(next));
      b.template finish<true>(held_b, stage_b(next));
    }
  }
}

/// Orders the instructions of a step: reads and writes of LDS, and loads, between matrix instructions, which then never
/// wait for a queue to take them.
template <class S>
SDX_FN void interleave() {
#if defined(__AMDGCN__)
  constexpr int kMatrix = 8, kLoad = 0x20, kRead = 0x100, kWrite = 0x200;
  constexpr int kMmas = S::kOwnSteps * S::kTilesM * S::kTilesN * S::M::kInstructions;
  constexpr int kReads = S::kOwnSteps * (S::kTilesM * S::M::kVectorsA + S::kTilesN * S::M::kVectorsB);
  constexpr int kMoves = S::A::kRounds * S::A::kBlock + S::B::kRounds * S::B::kBlock;
  constexpr int kBetween = kMmas / (kReads + kMoves) > 0 ? kMmas / (kReads + kMoves) : 1;
#pragma clang loop unroll(full)
  for (int i = 0; i < kReads; ++i) {
    __builtin_amdgcn_sched_group_barrier(kRead, 1, 0);
    __builtin_amdgcn_sched_group_barrier(kMatrix, kBetween, 0);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < kMoves; ++i) {
    __builtin_amdgcn_sched_group_barrier(kWrite, 1, 0);
    __builtin_amdgcn_sched_group_barrier(kLoad, 1, 0);
    __builtin_amdgcn_sched_group_barrier(kMatrix, kBetween, 0);
  }
#endif
}

/// The same where a step is shorter than the latency of memory: Tile::kInFlight tiles are in flight to registers, two
/// are in LDS, and a wave reads the operands of the next tile while it multiplies one. Calls `at_end` when the last
/// tiles are in flight.
template <class Tile, class P, class AccTile, class AtEnd>
SDX_FN void multiply_pipelined(const P& p, AccTile& acc, const WavePart<Tile, P>& part, shared_vec* lds, u32 z,
                               u32 first_row, u32 first_col, u32 from, u32 count, const AtEnd& at_end) {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  constexpr int TM = S::kTilesM, TN = S::kTilesN, kInFlight = S::kInFlight;
  static_assert(Tile::kStages == 2 && kInFlight % 2 == 0, "stages and slots are constants of a step in the loop");
  typename S::A a;
  typename S::B b;
  typename S::A::Held flying_a[kInFlight];
  typename S::B::Held flying_b[kInFlight];
  if (count == 0) return at_end();  // K may be 0, and its operands may have no memory
  // The last tile along K, which may be partial, comes first, so that all loads in the loop are full tiles.
  const auto first_k = [&](u32 t) { return (t == 0 ? from + count - 1 : from + t - 1) * S::kK; };
  const auto stage = [&](int t) { return lds + t % 2 * S::kStage; };
  // The compiler issues the load first whose address is computed first, but tiles have to be waited for in the order of
  // their loads.
  constexpr bool kLastA = S::A::kBuffer;
  // Steps after the loop, which load nothing.
  constexpr int kAfter = kInFlight + 2;
  // If the number of tiles is odd, the loop loads the last one again.
  const auto fetch = [&](int slot, u32 t) __attribute__((always_inline)) {
    const u32 at = t < count ? t : count - 1;
    const bool more = t + 1 < count;
    if constexpr (kLastA) b.template begin<true>(p, flying_b[slot], nullptr, z, first_col, first_k(at), more);
    a.template begin<true>(p, flying_a[slot], nullptr, z, first_row, first_k(at), more);
    if constexpr (!kLastA) b.template begin<true>(p, flying_b[slot], nullptr, z, first_col, first_k(at), more);
  };
  const auto store = [&](int slot, shared_vec* to) __attribute__((always_inline)) {
    if constexpr (kLastA) b.template finish<true>(flying_b[slot], to + S::A::kSpace);
    a.template finish<true>(flying_a[slot], to);
    if constexpr (!kLastA) b.template finish<true>(flying_b[slot], to + S::A::kSpace);
  };
  vec16 x[2][S::kOwnSteps][TM][M::kVectorsA], y[2][S::kOwnSteps][TN][M::kVectorsB];
  const auto read = [&](int t) __attribute__((always_inline)) {
    const shared_vec* tile = stage(t);
#pragma clang loop unroll(full)
    for (int s = 0; s < S::kOwnSteps; ++s) {
      part.read_b(tile + S::A::kSpace, s, y[t % 2][s]);
#pragma clang loop unroll(full)
      for (int i = 0; i < TM; ++i) part.read_a(tile, s, i, x[t % 2][s][i]);
    }
  };
  const auto multiply = [&](int t) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
    for (int s = 0; s < S::kOwnSteps; ++s)
#pragma clang loop unroll(full)
      for (int i = 0; i < TM; ++i)
#pragma clang loop unroll(full)
        for (int j = 0; j < TN; ++j) S::mma(x[t % 2][s][i], y[t % 2][s][j], acc[i][j]);
  };
  a.start(p, z, first_row, from * S::kK);
  b.start(p, z, first_col, from * S::kK);
  {
    typename S::A::Held first_a;
    typename S::B::Held first_b;
    a.template begin<false>(p, first_a, nullptr, z, first_row, first_k(0));
    b.template begin<false>(p, first_b, nullptr, z, first_col, first_k(0));
#pragma clang loop unroll(full)
    for (int i = 0; i < kInFlight; ++i)
      if (u32(i + 1) < count) {
        fetch(i, i + 1);
        keep_order();  // waits in the loop count loads in this order
      }
    fix_registers(acc);  // while the first tile is on its way
    keep_order();
    a.template finish<false>(first_a, stage(0));
    b.template finish<false>(first_b, stage(0) + S::A::kSpace);
  }
  // A loop without a condition inside: the compiler counts loads in flight, and at a branch assumes the worst.
  u32 left = count;
  if (left > 1) store(0, stage(1));
  if (left > kInFlight + 1) {
    keep_order();
    fetch(0, kInFlight + 1);
    keep_order();
    lds_barrier();
    read(0);
    for (u32 t = 0; left > kAfter; left -= kInFlight, t += kInFlight)
#pragma clang loop unroll(full)
      for (int i = 0; i < kInFlight; ++i) {
        lds_barrier();  // tile t + 1 has been written, and operands of tile t read
        keep_order();
        read(i + 1);
        multiply(i);
        store((i + 1) % kInFlight, stage(i));
        fetch((i + 1) % kInFlight, t + i + 2 + kInFlight);
        interleave<S>();
        keep_order();
      }
  } else {
    lds_barrier();
    read(0);
  }
  at_end();
  const auto finish = [&](auto index) __attribute__((always_inline)) {
    constexpr int i = index.value;
    lds_barrier();
    if (u32(i + 1) < left) read(i + 1);
    multiply(i);
    if (u32(i + 2) < left) store((i + 1) % kInFlight, stage(i));
  };
  // Where the number of steps is not known, the last ones are a loop: their copies take a tenth of the time of
  // compiling a kernel. With small tiles, and on RDNA, it would take registers that more waves need.
  constexpr bool kUnknown = kSplitKTree<P> || P::kLeastSteps > 0;
  if constexpr (kUnknown && M::kFamily == MatrixFamily::kMfma && kInFlight == 2 && TM * TN > 8) {
#pragma clang loop unroll(disable)
    for (; left > 0; left -= 2) {
      finish(Number<0>{});
      if (left == 1) break;
      finish(Number<1>{});
    }
    wait_for_loads();  // of at_end(); after a loop the compiler would wait for them where it also waits for stores
  } else {
    const auto finish_all = [&](const auto& again, auto index) __attribute__((always_inline)) {
      if (u32(index.value) >= left) return;
      finish(index);
      if constexpr (index.value + 1 < kAfter) again(again, Number<index.value + 1>{});
    };
    finish_all(finish_all, Number<0>{});
  }
}

}  // namespace gemm_detail
}  // namespace sdx
