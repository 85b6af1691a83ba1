// GEMM on Hopper for operands that are plain tensors, or images under the taps of a convolution's filter. One thread
// issues copies of their tiles to shared memory by the copy engine (TMA); two warpgroups only multiply (gemm_wgmma.h)
// and store. Multicast of tiles within clusters was no faster on an H200.
//
// The kernel's first parameters are two tensor maps, made on the host (runtime/operand_maps.h).
//
// The roles of warps (producer and consumers) are those of CUTLASS's warp-specialised kernels.
#pragma once
#include "gemm_wgmma.h"
#include "tma_copy.h"

#if defined(__NVPTX__)
namespace sdx {

/// M x N: tile of a thread block. Pingpong: the warpgroups take whole tiles in turns, so that one multiplies while the
/// other stores; otherwise each has half of the tile's rows (or of its columns if there are 64 rows).
/// Splits: size of a cluster whose thread blocks divide the K of one tile.
template <int M, int N, bool Pingpong, int Stages, int Splits>
struct TmaTiling {
  static constexpr int kM = M, kN = N, kStages = Stages, kSplits = Splits;
  static constexpr bool kPingpong = Pingpong;
  static constexpr layout::TmaLayout kLayout{M, N, Pingpong, Stages, Splits};
  static constexpr int kStageBytes = kLayout.stage_bytes(), kStoreAt = kLayout.store_at();
  static constexpr bool kSplitN = kLayout.splits_n();
  static constexpr int kGroupM = kLayout.group_m(), kGroupN = kLayout.group_n();
  static constexpr bool kTrades = kLayout.trades_registers();
  static constexpr int kThreads = kLayout.threads();
  static_assert(kGroupM % 64 == 0 && kGroupN % 32 == 0 && (Splits == 1 || !Pingpong));
};

namespace tma_detail {

template <int N>
struct StepCount {};

/// Position in the ring of stages, and how often it has wrapped around.
template <int Stages>
struct Ring {
  u32 stage = 0, round = 0;
  SDX_FN void next() {
    if (++stage == Stages) {
      stage = 0;
      ++round;
    }
  }
  SDX_FN void skip(u32 steps) {
    const u32 to = stage + steps;
    round += to / Stages;
    stage = to % Stages;
  }
};

/// Elements of K in a stage.
template <class P>
inline constexpr u32 kDepth = layout::stage_depth(sizeof(typename P::T));

/// Issues copies of A, kEach elements of K at a time, for one tile, from a multiple of kDepth on.
template <class P>
struct CopiesOfA {
  static constexpr u32 kEach = kDepth<P>;
  static constexpr bool kHalf = false;  // the last stage has half as many elements of K
  u32 row, k, z;
  SDX_FN CopiesOfA(const P&, u32 row, u32 z, u32 from) : row(row), k(from), z(P::kSharedA ? 0 : z) {}
  SDX_FN void next(u32 to, u64 map, u32 barrier) {
    copy_of_batch<P::kHeadsA>(to, map, barrier, k, row, z);
    k += kEach;
  }
};
/// For convolutions. K consists of kTapsY x kTapsX taps of kChannels channels (a multiple of kDepth / 2, the
/// innermost); neighbouring taps are kTapY and kTapX pixels apart. window(row, image, y, x) gives where the window of
/// an output row begins.
template <class P>
  requires(P::kChannels > 0)
struct CopiesOfA<P> {
  static constexpr u32 kEach = P::kChannels % kDepth<P> == 0 ? kDepth<P> : kDepth<P> / 2;
  static constexpr bool kHalf = P::kChannels / (kDepth<P> / 2) * P::kTapsX * P::kTapsY % 2 == 1;
  static_assert(P::kChannels % kEach == 0);
  i32 image, y, x;
  u32 channel, tap_x, tap_y;
  SDX_FN CopiesOfA(const P& p, u32 row, u32, u32 from) {
    p.window(row, image, y, x);
    channel = from % P::kChannels;
    tap_x = from / P::kChannels % P::kTapsX;
    tap_y = from / P::kChannels / P::kTapsX;
  }
  SDX_FN void next(u32 to, u64 map, u32 barrier) {
    copy_tap(to, map, barrier, channel, x, y, image, tap_x * P::kTapX, tap_y * P::kTapY);
    channel += kEach;
    if (channel < P::kChannels) return;
    channel = 0;
    if (++tap_x < P::kTapsX) return;
    tap_x = 0;
    ++tap_y;
  }
};

/// Issues copies of a tile whose lines (rows or columns), not K, are contiguous: 64 lines and 64 elements of K at a
/// time. Inner: see P::kInnerA, Heads: P::kHeadsA.
template <int Lines, u32 Inner, u32 Heads>
SDX_FN void copy_across(u32 to, u64 map, u32 barrier, u32 line, u32 k, u32 z) {
#pragma clang loop unroll(full)
  for (u32 e = 0; e < Lines; e += 64) {
    if constexpr (Inner > 0)
      copy_part(to + e * 128, map, barrier, (line + e) % Inner, k, (line + e) / Inner);
    else
      copy_of_batch<Heads>(to + e * 128, map, barrier, line + e, k, z);
  }
}

/// The work of a thread block, as its warps see it: tiles, stages and its part of K.
template <class Tile, bool Half>
struct TmaWork {
  u32 lds, full, empty;  ///< addresses of the stages and their barriers
  u32 own_split, down, across, tiles, first, stride;
  u32 from, count, whole;  ///< in stages
  using Rows = gemm_detail::GroupRows<Tile::kM>;

  template <class P>
  SDX_FN TmaWork(const P& p, u32 lds, u32 full, u32 empty) : lds(lds), full(full), empty(empty) {
    constexpr u32 kSplits = Tile::kSplits;
    own_split = kSplits > 1 ? cluster_rank() : 0;
    down = (p.m + Tile::kM - 1) / Tile::kM;
    across = (p.n + Tile::kN - 1) / Tile::kN;
    tiles = down * across * p.batches;
    first = block_id() / kSplits;
    stride = block_count() / kSplits;
    const u32 steps = (p.k + kDepth<P> - 1) / kDepth<P>;
    from = steps * own_split / kSplits;
    count = steps * (own_split + 1) / kSplits - from;
    whole = Half ? count - 1 : count;
  }
  /// With groups, how many tiles there are is known when the previous launch has ended. All lanes of a warp call it.
  template <class P>
  SDX_FN void count_tiles(const P& p) {
    u32 own = 0;
    for (u32 z = thread_id() % 32; z < p.batches; z += 32) {
      const u32 begin = z > 0 ? p.end_of(z - 1) : 0, end = z + 1 < p.batches ? p.end_of(z) : p.m;
      own += end > begin ? Rows::tiles_of(end - begin) : 0;
    }
    tiles = across * reduce_lanes(own, 32, [](u32 x, u32 y) { return x + y; });
  }
  /// `rows`: for groups, where the previous tile was.
  template <class P>
  SDX_FN void place_of(const P& p, Rows& rows, u32 id, u32& z, u32& row, u32& col) const {
    u32 tile_m, tile_n, begin = 0;
    if constexpr (P::kGroups) {
      rows.find(p, id / across);
      u32 one;
      gemm_detail::choose_tile(id - rows.before * across, 1, rows.tiles(), across, one, tile_m, tile_n);
      z = rows.z;
      begin = rows.begin;
    } else {
      gemm_detail::choose_tile(id, p.batches, down, across, z, tile_m, tile_n);
    }
    row = begin + tile_m * Tile::kM;
    col = tile_n * Tile::kN;
  }
  template <class P>
  SDX_FN void place_of(const P& p, u32 id, u32& z, u32& row, u32& col) const {
    static_assert(!P::kGroups);
    Rows rows;
    place_of(p, rows, id, z, row, col);
  }
};

/// Whether stage t is the last one and has half as many elements of K.
template <class Tile, class P>
SDX_FN bool is_half(u32 t, u32 count) {
  return CopiesOfA<P>::kHalf && t + 1 == count;
}
/// Issues the copies of B's tile to a stage.
template <class Tile, class P>
SDX_FN void copy_columns(u32 to, u64 map, u32 barrier, u32 k, u32 col, u32 z, bool half) {
  constexpr u32 kEach = CopiesOfA<P>::kEach, kSize = sizeof(typename P::T);
  to += Tile::kM * 128;
  if constexpr (P::kAccessB == Access::kAcross) {
    copy_across<Tile::kN, 0, P::kHeadsB>(to, map, barrier, col, k, z);
  } else {
#pragma clang loop unroll(full)
    for (u32 e = 0; e < kDepth<P>; e += kEach) {
      if (half && e > 0) break;
      copy_of_batch<P::kHeadsB>(to + Tile::kN * e * kSize, map, barrier, k + e, col, z);
    }
  }
}
/// How many stages copy_weights() fills.
template <class Tile, class P>
SDX_FN u32 early_stages(u32 count) {
  if constexpr (!P::kLoadedB) return 0;
  return count < u32(Tile::kStages) ? count : u32(Tile::kStages);
}
/// Issues the first copies of B for the first tile, before the previous launch has ended: it holds constants.
template <class Tile, bool Half, class P>
SDX_FN void copy_weights(const P& p, const TmaWork<Tile, Half>& work, u64 map_b) {
  u32 z, row, col;
  typename TmaWork<Tile, Half>::Rows rows;
  work.place_of(p, rows, work.first, z, row, col);
  const u32 stages = early_stages<Tile, P>(work.count);
  for (u32 t = 0; t < stages; ++t) {
    const bool half = is_half<Tile, P>(t, work.count);
    const u32 barrier = work.full + 8 * t;
    expect_bytes(barrier, half ? Tile::kStageBytes / 2 : Tile::kStageBytes);
    copy_columns<Tile, P>(work.lds + t * Tile::kStageBytes, map_b, barrier, (work.from + t) * kDepth<P>, col,
                          P::kSharedB ? 0 : z, half);
  }
}

/// The work of the thread that issues the copies of both operands, after copy_weights().
template <class Tile, bool Half, class P>
SDX_FN void copy_tiles(const P& p, const TmaWork<Tile, Half>& work, u64 map_a, u64 map_b) {
  using Copies = CopiesOfA<P>;
  constexpr int kStages = Tile::kStages;
  constexpr u32 kStageBytes = Tile::kStageBytes, kEach = Copies::kEach, kSize = sizeof(typename P::T);
  constexpr bool kAcrossA = P::kAccessA == Access::kAcross, kAcrossB = P::kAccessB == Access::kAcross;
  static_assert((kEach == kDepth<P> && kSize == 2) || !(kAcrossA || kAcrossB));
  Ring<kStages> at;
  typename TmaWork<Tile, Half>::Rows rows;
  u32 early = early_stages<Tile, P>(work.count);
  for (u32 id = work.first; id < work.tiles; id += work.stride) {
    u32 z, row, col;
    work.place_of(p, rows, id, z, row, col);
    Copies a(p, row, z, work.from * kDepth<P>);
    for (u32 t = 0; t < work.count; ++t) {
      const u32 barrier = work.full + 8 * at.stage, to = work.lds + at.stage * kStageBytes,
                k = (work.from + t) * kDepth<P>;
      const bool half = is_half<Tile, P>(t, work.count);
      if (early > 0) {
        --early;
      } else {
        // Before the first use of a stage, its previous phase counts as completed.
        wait_phase(work.empty + 8 * at.stage, (at.round & 1) ^ 1);
        expect_bytes(barrier, half ? kStageBytes / 2 : kStageBytes);
        copy_columns<Tile, P>(to, map_b, barrier, k, col, P::kSharedB ? 0 : z, half);
      }
      if constexpr (kAcrossA) {
        copy_across<Tile::kM, P::kInnerA, P::kHeadsA>(to, map_a, barrier, row, k, P::kSharedA ? 0 : z);
      } else {
#pragma clang loop unroll(full)
        for (u32 e = 0; e < kDepth<P>; e += kEach) {
          if (half && e > 0) break;
          a.next(to + Tile::kM * e * kSize, map_a, barrier);
        }
      }
      at.next();
    }
  }
}

/// wgmma's descriptor of an operand of a stage, and how much to add for its step s of 32 bytes of K. Row: bytes of K of
/// a copy.
template <bool Across, int Row>
SDX_FN u64 first_step(const gemm_detail::shared_vec* tile) {
  if constexpr (Across)
    return gemm_detail::wgmma_across(tile);
  else
    return gemm_detail::wgmma_descriptor<Row>(tile);
}
template <bool Across, u32 Row, u32 Lines>
SDX_FN u32 step_offset(u32 s) {
  constexpr u32 kRow = Row / 16, kPerCopy = Row / 32;  // vectors; steps
  return Across ? s * 128 : s / kPerCopy * Lines * kRow + s % kPerCopy * 2;
}

/// Four sums to another thread block's shared memory, and from the own one.
SDX_FN void send_acc(u32 to, const f32* x) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
SDX_FN void send_acc(u32 to, const i32* x) {
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
SDX_FN void take_acc(u32 from, f32* x) {
  asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(from)
               : "memory");
}
SDX_FN void take_acc(u32 from, i32* x) {
  asm volatile("ld.shared::cta.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

/// With split-K, thread blocks of the cluster exchange partial sums: each adds up every kShares-th group of 32 columns
/// and passes it to store(sums, i, column). The sums reuse the memory of the stages.
template <class Tile, bool Half, int MI, int Parts, class Acc, class Store>
SDX_FN void reduce_splits(const TmaWork<Tile, Half>& work, const Acc (&acc)[MI][1][Parts][8], Store store) {
  constexpr int kSplits = Tile::kSplits, GN = Tile::kGroupN;
  constexpr int kParts = GN / 32, kEach = Tile::kLayout.owned_columns(), kVecs = MI * 4;
  static_assert(Tile::kLayout.exchanged_bytes() <= Tile::kStages * Tile::kStageBytes);
  auto slot = [&](u32 split, int part, int v) {
    return work.lds + (((split * kEach + part / kSplits) * kVecs + v) * 256 + thread_id()) * 16;
  };
  cluster_barrier();
#pragma clang loop unroll(full)
  for (int part = 0; part < kParts; ++part) {
    const u32 owner = part % kSplits;
    if (owner == work.own_split) continue;
    const u32 split = work.own_split < owner ? work.own_split : work.own_split - 1;
    const u32 there = in_workgroup(work.lds, owner);  // once: large tiles leave few registers
#pragma clang loop unroll(full)
    for (int v = 0; v < kVecs; ++v) {
      const Acc* x = &acc[v / 4][0][part * 2 + v / 2 % 2][v % 2 * 4];
      send_acc(there + (slot(split, part, v) - work.lds), x);
    }
  }
  cluster_barrier();
#pragma clang loop unroll(full)
  for (int part = 0; part < kParts; ++part) {
    if (u32(part % kSplits) != work.own_split) continue;
    Acc all[MI][1][2][8];
#pragma clang loop unroll(full)
    for (int v = 0; v < kVecs; ++v) {
      Acc x[4];
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) x[e] = acc[v / 4][0][part * 2 + v / 2 % 2][v % 2 * 4 + e];
#pragma clang loop unroll(full)
      for (int split = 0; split < kSplits - 1; ++split) {
        Acc y[4];
        take_acc(slot(split, part, v), y);
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; ++e) x[e] += y[e];
      }
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) all[v / 4][0][v / 2 % 2][v % 2 * 4 + e] = x[e];
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < MI; ++i) store(all[i], i, part * 32);
  }
}

}  // namespace tma_detail

/// Launch: Tile::kThreads threads and at most ceil(m / M) * ceil(n / N) * batches thread blocks; with fewer, each
/// processes several tiles one after another. With split-K: exactly that many clusters, and K has at least as many
/// stages as splits. Needs layout::TmaLayout::bytes() of dynamic shared memory. The maps are parameters of the kernel.
template <class Tile, class P>
SDX_FN void gemm_tma(const P& p, const TensorMap& parameter_a, const TensorMap& parameter_b) {
  using namespace gemm_detail;
  using namespace tma_detail;
  using T = typename P::T;
  constexpr int kStages = Tile::kStages, kSplits = Tile::kSplits;
  constexpr u32 kStageBytes = Tile::kStageBytes;
  using Copies = CopiesOfA<P>;
  constexpr u32 kCopied = Copies::kEach * sizeof(T);  // bytes of K of a copy
  constexpr bool kAcrossA = P::kAccessA == Access::kAcross, kAcrossB = P::kAccessB == Access::kAcross;
  static_assert(!kAcrossB || Tile::kGroupN % 64 == 0);
  static_assert(kSplits == 1 || !Copies::kHalf);
  const u32 lds = shared_address(dynamic_lds), full = lds + kStages * kStageBytes, empty = full + 8 * kStages;
  const u64 map_a = u64(&parameter_a), map_b = u64(&parameter_b);
  const u32 wave = same(thread_id() / 32), lane = thread_id() % 32;

  TmaWork<Tile, Copies::kHalf> work(p, lds, full, empty);
  if (wave == 8 && lane == 0) {
    fetch_map(map_a);
    fetch_map(map_b);
    for (u32 s = 0; s < kStages; ++s) {
      init_barrier(full + 8 * s, 1);
      init_barrier(empty + 8 * s, Tile::kPingpong ? 4 : 8);
    }
    publish_barriers();
    if constexpr (P::kLoadedB) copy_weights<Tile>(p, work, map_b);
  }
  barrier();
  wait_for_launch_here();
  if constexpr (P::kGroups) work.count_tiles(p);
  start_next_launch();  // one thread block runs per multiprocessor, so the next launch can take over as soon as it ends

  const u32 tiles = work.tiles, first = work.first, stride = work.stride, count = work.count, whole = work.whole;

  if (wave >= 8) {
    if constexpr (Tile::kTrades) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    if (wave == 8 && lane == 0) copy_tiles<Tile>(p, work, map_a, map_b);
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    // Arrives as often as the warpgroups that multiply.
    if constexpr (kSplits > 1) {
      cluster_barrier();
      cluster_barrier();
    }
    return;
  }

  if constexpr (Tile::kTrades) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
  constexpr int MI = Tile::kGroupM / 64, GN = Tile::kGroupN;
  const u32 group = wave / 4;
  const u32 own_row = (Tile::kPingpong || Tile::kSplitN ? 0 : group * Tile::kGroupM),
            own_col = Tile::kSplitN ? group * GN : 0;
  Ring<kStages> at;
  typename TmaWork<Tile, Copies::kHalf>::Rows rows;
  typename Matrix<T>::Acc acc[MI][1][GN / 16][8];
  auto* staging = (shared_f32*)((shared_vec*)dynamic_lds + Tile::kStoreAt / 16);

  if constexpr (Tile::kPingpong) {
    if (group == 1) {
      if (first < tiles) allow_turn(0);
      at.skip(count);
    }
  }
  for (u32 id = first + (Tile::kPingpong ? group * stride : 0); id < tiles; id += stride * (Tile::kPingpong ? 2 : 1)) {
    u32 z, row, col;
    work.place_of(p, rows, id, z, row, col);
    const auto& own = in_group(p, rows);
#pragma clang loop unroll(full)
    for (int i = 0; i < MI; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < GN / 16; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < 8; ++e) acc[i][0][j][e] = 0;
    if constexpr (requires { p.fetch_early(z, row, col); }) {
      // Prefetch what the epilogue reads of these rows during the main loop, in lines of 128 bytes: with so few warps
      // per multiprocessor each read would expose its latency (a residual of 64 images took 131 us instead of 74).
      constexpr u32 kLine = GN < 64 ? GN : 64, kLines = GN / kLine;
      for (u32 q = thread_id() % 128; q < Tile::kGroupM * kLines; q += 128) {
        const u32 r = row + own_row + q / kLines, c = col + own_col + q % kLines * kLine;
        if (r < own.m && c < own.n) own.fetch_early(z, r, c);
      }
    }
    if constexpr (Tile::kPingpong) await_turn(group);
    u32 before = 0;
    auto release = [&](u32 stage) {
      if (lane == 0) arrive(empty + 8 * stage);
    };
    // Multiplies the first 32 * `steps` bytes of K of a stage.
    const auto multiply = [&]<int Steps>(StepCount<Steps>) {
      wait_phase(full + 8 * at.stage, at.round & 1);
      constexpr u32 kRow = kCopied / 16;  // vectors
      const auto* tile = (shared_vec*)dynamic_lds + at.stage * (kStageBytes / 16);
      const u64 da = first_step<kAcrossA, kCopied>(tile + own_row * kRow),
                db = first_step<kAcrossB, kCopied>(tile + Tile::kM * 8 + own_col * kRow);
      wgmma_fence();
#pragma clang loop unroll(full)
      for (u32 s = 0; s < Steps; ++s)
#pragma clang loop unroll(full)
        for (u32 i = 0; i < MI; ++i)
          wgmma<T, GN, kAcrossA, kAcrossB>(da + step_offset<kAcrossA, kCopied, Tile::kM>(s) + i * 64 * kRow,
                                           db + step_offset<kAcrossB, kCopied, Tile::kN>(s), &acc[i][0][0][0]);
      wgmma_commit();
      wgmma_wait<1>();
    };
    // At least one step: initialising the sums by anything but wgmma would need copies, and a wait for wgmma first.
    u32 t = 0;
#pragma nounroll
    do {
      multiply(StepCount<4>());
      if (t > 0) release(before);
      before = at.stage;
      at.next();
    } while (++t < whole);
    if constexpr (Copies::kHalf) {
      multiply(StepCount<2>());
      release(before);
      before = at.stage;
      at.next();
    }
    if constexpr (Tile::kPingpong) {
      // Let the other warpgroup take its next tile, if it has one.
      if (id + stride < tiles) allow_turn(1 - group);
      at.skip(count);
    }
    wgmma_wait<0>();
    release(before);
    const auto store = [&](auto& part, int i, u32 col) {
      const u32 from = row + own_row + i * 64 + wave % 4 * 16;
      if constexpr (P::kFullColumns)
        store_octets(own, part[0], z, from, col);
      else
        store_acc<P, 1, sizeof(part[0]) / sizeof(part[0][0]), 8, 1>(own, part, staging, z, from, col, wave, 0);
    };
    if constexpr (kSplits == 1) {
#pragma clang loop unroll(full)
      for (int i = 0; i < MI; ++i) store(acc[i], i, col + own_col);
    } else {
      reduce_splits<Tile>(work, acc, [&](auto& part, int i, int first) { store(part, i, col + own_col + first); });
    }
  }
}

}  // namespace sdx
#endif
