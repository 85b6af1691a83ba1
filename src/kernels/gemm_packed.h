// GEMM with constant weights of 4 or 8 bits, quantised in blocks, for 17 to some hundred rows, on Hopper: out[z, row,
// col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]) with operands swapped. Columns of b are the 64 rows of
// wgmma's left operand, which it takes from registers: each lane loads its own packed weights, several steps ahead,
// dequantises them and multiplies, so that weights never pass through shared memory and no warp waits for another's.
// Rows of a are the right operand. A third warpgroup writes them to a ring of stages in the order of K in which lanes
// have the weights. Values are rounded as in skinny.h.
//
// Besides what skinny.h requires of P: b_scale(), b_zero(), Scale and after_launch(), as for stream.h. A scale stays as
// it was loaded until it is needed: converting it at once would wait for memory in every step.
#pragma once
#include "attention_wgmma_gemms.h"
#include "gemm_tma.h"
#include "skinny.h"

#if defined(__NVPTX__)
namespace sdx {
namespace packed_detail {

using namespace gemm_detail;
using namespace skinny_detail;
using namespace tma_detail;

/// Elements of K of a step: four lanes have a run of packed weights each.
template <class P>
inline constexpr u32 kRunLength = 128 / P::kBits;
template <class P>
inline constexpr u32 kStep = 4 * kRunLength<P>;

/// A lane's packed weights of a step: a run of each of two columns.
template <class P>
struct Weights {
  vec16 packed[2];
  typename P::Scale scale[2];
  /// Past the end of K, where the other operand is 0, the first run is repeated.
  SDX_FN void load(const P& p, u32 z, const u32 (&cols)[2], u32 k) {
    const u32 at = k < p.k ? k : 0;
#pragma clang loop unroll(full)
    for (int c = 0; c < 2; ++c) {
      packed[c] = load16(p.b_packed(z, cols[c], at));
      scale[c] = *p.b_scale(z, cols[c], at);
    }
  }
};

/// A thread's part of the rows of a, of a step: in each item, eight elements of K from each of four lanes' runs.
template <class P, u32 Rows>
struct RowParts {
  static constexpr u32 kEach = kRunLength<P> / 8, kItems = Rows * kEach, kCount = (kItems + 127) / 128;
  vec16 x[kCount][4];

  static SDX_FN u32 item(u32 j) { return thread_id() % 128 + j * 128; }
  /// Rows past the end repeat the last one; their results are not stored.
  SDX_FN void load(const P& p, u32 z, u32 first_row, u32 k0) {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kCount; ++j) {
      const u32 row = first_row + item(j) / kEach % Rows, r = row < p.m ? row : p.m - 1;
#pragma clang loop unroll(full)
      for (u32 q = 0; q < 4; ++q) {
        const u32 k = k0 + q * kRunLength<P> + item(j) % kEach * 8;
        bool inside = true;
        x[j][q] = load16(p.a(z, r, k < p.k ? k : 0, inside));
      }
    }
  }
  SDX_FN void store(const P& p, shared_vec* stage, u32 k0) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kCount; ++j) {
      if (kItems % 128 != 0 && item(j) >= kItems) break;
      const u32 row = item(j) / kEach, chunk = item(j) % kEach;
      vec16 y[4];
#pragma clang loop unroll(full)
      for (u32 q = 0; q < 4; ++q) {
        y[q] = P::kBits == 4 ? in_order(x[j][q]) : x[j][q];
        if (k0 + q * kRunLength<P> + chunk * 8 >= p.k) y[q] = vec16{};
      }
#pragma clang loop unroll(full)
      for (u32 w = 0; w < 4; ++w) {
        const u32 at = chunk * 4 + w;
        stage[at / 8 * Rows * 8 + place<8, Access::kVector>(row, at % 8)] = vec16{y[0][w], y[1][w], y[2][w], y[3][w]};
      }
    }
  }
};

/// Barrier among the warpgroups that multiply.
template <u32 Workers>
SDX_FN void barrier_of_workers() {
  asm volatile("bar.sync 1, %0;" ::"n"(Workers) : "memory");
}

/// Width neighbouring sums of a thread block of the cluster.
template <int Width>
SDX_FN void take_sums(u32 from, f32* x) {
  if constexpr (Width % 4 == 0) {
#pragma clang loop unroll(full)
    for (int e = 0; e < Width; e += 4)
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x[e]), "=f"(x[e + 1]), "=f"(x[e + 2]), "=f"(x[e + 3])
                   : "r"(from + e * 4)
                   : "memory");
  } else {
#pragma clang loop unroll(full)
    for (int e = 0; e < Width; ++e)
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x[e]) : "r"(from + e * 4) : "memory");
  }
}

/// Passes the sums of a tile, which the thread blocks of a cluster have in shared memory, to P, a part in each.
template <class Layout, class P>
SDX_FN void store_sums(const P& p, u32 sums, u32 z, u32 first_row, u32 first_col, u32 own) {
  constexpr int kWidth = P::kFullColumns ? kRun : P::kPairs ? 2 : 1;
  constexpr u32 kRuns = Layout::kCols / kWidth;
  using Read = typename ReadOf<P>::Type;
  constexpr bool kReads = !__is_same(Read, NothingRead);
  const u32 height = p.m - first_row < Layout::kRows ? p.m - first_row : Layout::kRows;
  constexpr u32 kWorkers = Layout::kWorkers;
  for (u32 j = own * kWorkers + thread_id(); j < height * kRuns; j += kWorkers * Layout::kSplits) {
    const u32 r = j / kRuns, c = j % kRuns * kWidth;
    const u32 row = first_row + r, col = multiple<kWidth>(first_col + c);
    if (col >= p.n) continue;
    Read reads[kWidth];
    if constexpr (kReads)
#pragma clang loop unroll(full)
      for (int e = 0; e < kWidth; ++e) p.read(z, row, col + e, reads[e]);
    f32 x[kWidth] = {};
#pragma clang loop unroll(full)
    for (u32 split = 0; split < Layout::kSplits; ++split) {
      f32 y[kWidth];
      take_sums<kWidth>(in_workgroup(sums + (r * Layout::kPitch + c) * 4, Layout::kSplits > 1 ? split : cluster_rank()),
                        y);
#pragma clang loop unroll(full)
      for (int e = 0; e < kWidth; ++e) x[e] += y[e];
    }
    if constexpr (kReads) {
#pragma clang loop unroll(full)
      for (int e = 0; e < kWidth; ++e) p.element(z, row, col + e, x[e], reads[e]);
    } else {
      store_columns<kWidth>(p, z, row, col, x);
    }
  }
}

template <int Rows, int Splits>
struct TileLayout {
  static constexpr u32 kRows = Rows, kCols = layout::PackedLayout::kCols, kSplits = Splits,
                       kPitch = layout::PackedLayout::kPitch, kWorkers = 256;
};

/// The work of the warpgroup that writes the rows of a to the stages.
template <class Tile, int Stages, class P>
SDX_FN void write_rows(const P& p, const TmaWork<Tile, false>& work) {
  constexpr u32 kRows = Tile::kM, kAhead = kRows == 32 ? 4 : 2;
  constexpr u32 kStage = Tile::kStageBytes;
  RowParts<P, kRows> parts[kAhead];
  u32 id = work.first, t = 0, z = 0, row = 0, col = 0;
  if (id < work.tiles) work.place_of(p, id, z, row, col);
  u32 k_of[kAhead];
  const auto load = [&](RowParts<P, kRows>& part, u32& k) {
    if (id >= work.tiles) return;
    k = (work.from + t) * kStep<P>;
    part.load(p, z, row, k);
    if (++t < work.count) return;
    t = 0;
    id += work.stride;
    if (id < work.tiles) work.place_of(p, id, z, row, col);
  };
  const u32 own = work.first < work.tiles ? (work.tiles - work.first + work.stride - 1) / work.stride : 0;
  const u32 total = own * work.count;
  if (total == 0) return;
#pragma clang loop unroll(full)
  for (u32 u = 0; u < kAhead; ++u) load(parts[u], k_of[u]);
  Ring<Stages> at;
#pragma nounroll
  for (u32 first = 0; first < total; first += kAhead) {
#pragma clang loop unroll(full)
    for (u32 u = 0; u < kAhead; ++u) {
      if (first + u >= total) continue;  // a break would prevent unrolling
      wait_phase(work.empty + 8 * at.stage, (at.round & 1) ^ 1);
      parts[u].store(p, (shared_vec*)dynamic_lds + at.stage * (kStage / 16), k_of[u]);
      fence_async_reads();
      asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
      if (thread_id() % 32 == 0) arrive(work.full + 8 * at.stage);
      load(parts[u], k_of[u]);
      at.next();
    }
  }
}

template <int Rows, int Stages, int Splits, class P>
struct PackedTile {
  static constexpr int kM = Rows, kN = layout::PackedLayout::kCols, kStages = Stages, kSplits = Splits;
  static constexpr layout::PackedLayout kLayout{Rows, Stages, P::kBits};
  static constexpr u32 kStageBytes = kLayout.stage_bytes();
};

/// Dequantises a lane's weights of a step and multiplies them by the rows of a stage. first_done() is called when the
/// instructions of the step before have read their stage.
template <u32 Rows, class P, class Done>
SDX_FN void multiply_step(const P& p, const Weights<P>& w, const shared_vec* stage, f32* acc, Done first_done) {
  using T = typename P::T;
  constexpr u32 kChunks = kRunLength<P> / 8, kWords = P::kBits / 4;
  const f32 zero = p.b_zero(), scale[2] = {cast<f32>(w.scale[0]), cast<f32>(w.scale[1])};
#pragma clang loop unroll(full)
  for (u32 i = 0; i < kChunks; ++i) {
    vec16 y[2];
#pragma clang loop unroll(full)
    for (int c = 0; c < 2; ++c)
      y[c] = dequantized<T, P::kBits, P::kSigned, P::kFloatZeros>(w.packed[c][i * kWords],
                                                                  w.packed[c][i * kWords + kWords - 1], scale[c], zero);
    const u64 db = wgmma_descriptor(stage + i / 2 * Rows * 8) + i % 2 * 4;
    wgmma_fence();
#pragma clang loop unroll(full)
    for (int h = 0; h < 2; ++h) {
      const u32 a[4] = {y[0][2 * h], y[1][2 * h], y[0][2 * h + 1], y[1][2 * h + 1]};
      detail::wgmma_left<T, Rows, false>(a, db + h * 2, acc);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (i == 0) first_done();
  }
}

}  // namespace packed_detail

/// Rows: of a tile, 32 or 64; its columns are layout::PackedLayout::kCols. Ahead: steps for which a lane's
/// weights are loaded ahead. Splits: size of a cluster whose thread blocks divide the K of one tile. Launch: 384
/// threads; with one split, at most a thread block for each tile, each of which computes several tiles one after
/// another; else exactly a cluster for each tile.
template <int Rows, int Stages, int Ahead, int Splits, class P>
SDX_FN void gemm_packed(const P& early) {
  using namespace packed_detail;
  using T = typename P::T;
  using Tile = PackedTile<Rows, Stages, Splits, P>;
  using Layout = TileLayout<Rows, Splits>;
  static_assert(sizeof(T) == 2 && P::kAccessA == Access::kVector && P::kBits < 16 && P::kRowHeight == 0);
  const u32 lds = shared_address(dynamic_lds), full = lds + Tile::kLayout.barriers_at(), empty = full + 8 * Stages;
  const u32 sums = lds + Tile::kLayout.sums_at();
  const u32 wave = same(thread_id() / 32), lane = thread_id() % 32;
  TmaWork<Tile, false> work(early, lds, full, empty);
  {
    const u32 steps = (early.k + kStep<P> - 1) / kStep<P>;
    work.from = steps * work.own_split / Splits;
    work.count = steps * (work.own_split + 1) / Splits - work.from;
  }
  if (thread_id() == 256) {
    for (u32 s = 0; s < Stages; ++s) {
      init_barrier(full + 8 * s, 4);
      init_barrier(empty + 8 * s, 8);
    }
    publish_barriers();
  }
  Weights<P> weights[Ahead];
  u32 z = 0, row = 0, col = 0, cols[2] = {};
  const auto begin = [&](u32 id) {
    work.place_of(early, id, z, row, col);
#pragma clang loop unroll(full)
    for (u32 c = 0; c < 2; ++c) {
      const u32 own = col + wave * 16 + c * 8 + lane / 4;
      cols[c] = own < early.n ? own : early.n - 1;
    }
  };
  const auto load = [&](Weights<P>& w, u32 t) {
    if (t < work.count) w.load(early, z, cols, (work.from + t) * kStep<P> + lane % 4 * kRunLength<P>);
  };
  const auto load_first = [&] {
#pragma clang loop unroll(full)
    for (u32 u = 0; u < Ahead; ++u) load(weights[u], u);
  };
  if (wave < 8 && work.first < work.tiles) {
    begin(work.first);
    load_first();
  }
  barrier();
  wait_for_launch();
  start_next_launch();
  const P p = early.after_launch();

  if (wave >= 8) {
    write_rows<Tile, Stages>(p, work);
    // Arrives as often as the warpgroups that multiply.
    if constexpr (Splits > 1) {
      cluster_barrier();
      cluster_barrier();
    }
    return;
  }
  Ring<Stages> at;
  f32 acc[Rows / 2];
  for (u32 id = work.first; id < work.tiles; id += work.stride) {
#pragma clang loop unroll(full)
    for (int e = 0; e < Rows / 2; ++e) acc[e] = 0;
    u32 before = Stages;
    const auto release = [&] {
      if (before < Stages && lane == 0) arrive(empty + 8 * before);
    };
#pragma nounroll
    for (u32 first = 0; first < work.count; first += Ahead) {
#pragma clang loop unroll(full)
      for (u32 u = 0; u < Ahead; ++u) {
        if (first + u >= work.count) continue;  // a break would prevent unrolling
        wait_phase(full + 8 * at.stage, at.round & 1);
        multiply_step<Rows>(p, weights[u], (shared_vec*)dynamic_lds + at.stage * (Tile::kStageBytes / 16), acc,
                            release);
        load(weights[u], first + u + Ahead);
        before = at.stage;
        at.next();
      }
    }
    wgmma_wait<0>();
    detail::wgmma_arrived<Rows / 2>(acc);
    release();
    const u32 own_z = z, own_row = row, own_col = col;
    if (id + work.stride < work.tiles) {
      begin(id + work.stride);
      load_first();
    }
    auto* to = (shared_f32*)((shared_vec*)dynamic_lds + Tile::kLayout.sums_at() / 16);
#pragma clang loop unroll(full)
    for (u32 e = 0; e < Rows / 2; ++e)
      to[(e / 4 * 8 + lane % 4 * 2 + e % 2) * Layout::kPitch + wave * 16 + lane / 4 + e / 2 % 2 * 8] = acc[e];
    if constexpr (Splits > 1)
      cluster_barrier();
    else
      barrier_of_workers<Layout::kWorkers>();
    store_sums<Layout>(p, sums, own_z, own_row, own_col, work.own_split);
    if constexpr (Splits > 1)
      cluster_barrier();
    else
      barrier_of_workers<Layout::kWorkers>();
  }
}

}  // namespace sdx
#endif
