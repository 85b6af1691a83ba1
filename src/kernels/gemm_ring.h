// The main loop of the tiled GEMM for CDNA 4 where several tiles are on their way straight to LDS: for tiles with few
// steps or few workgroups, whose loads have to be started long before they are multiplied.
#pragma once
#include "gemm_direct.h"

namespace sdx {
namespace gemm_detail {

#if defined(SDX_LOADS_TO_LDS)

/// The chunks of an operand's tile that a lane loads, tile by tile: see DirectPart, but loads may be of a convolution's
/// image, and rows in LDS may be in the order of turned_row<Run>().
template <class L, int Threads, int Run>
struct RingPart {
  using T = typename L::T;
  static constexpr int kRounds = L::kRounds;
  const T* next[L::kBuffer ? 1 : kRounds];
  u32 rows[L::kBuffer ? kRounds : 1], offsets[L::kBuffer ? kRounds : 1];
  vec16 buffer;
  i64 step;

  /// The row of the operand that is in row `at` of LDS.
  static SDX_FN u32 row(u32 at) {
    if constexpr (Run <= 4) return at;
    constexpr u32 kTiles = Run / 4;
    const u32 in = at % (16 * kTiles);
    return at - in + in % 16 / 4 * Run + in / 16 * 4 + in % 4;
  }
  template <class P>
  SDX_FN void start(const P& p, u32 z, u32 first, u32 k0, i64 each) {
    step = L::kDepth * each;
#pragma clang loop unroll(full)
    for (int j = 0; j < kRounds; ++j) {
      const u32 item = thread_id() + j * Threads, r = L::clamped(p, first, row(DirectPlace::row(item)));
      if constexpr (L::kBuffer) {
        rows[j] = r;
      } else {
        bool inside = true;
        const u32 k = k0 + DirectPlace::chunk(item) * L::V;
        next[j] = L::at(p, z, r, 0, inside) + (k < p.k ? k : k0) * each;
      }
    }
    if constexpr (L::kBuffer) {
      const u64 base = u64(p.a_base());
      buffer = vec16{u32(base), u32(base >> 32) & 0xffff, kOutside, kBufferFormat};
    }
  }
  /// Finds the offsets of the run of K (a filter's tap) that k0 is in.
  template <class P>
  SDX_FN void find_run(const P& p, u32 z, u32 k0) {
    if constexpr (L::kBuffer)
#pragma clang loop unroll(full)
      for (int j = 0; j < kRounds; ++j) {
        bool inside = true;
        const u32 at = p.a_offset(z, rows[j], k0 - k0 % L::kRun, inside) + DirectPlace::chunk(thread_id()) * L::V;
        offsets[j] = inside ? at * u32(sizeof(T)) : kOutside;
      }
  }
  /// The same for the next tile, which may be in the same run.
  template <class P>
  SDX_FN void next_run(const P& p, u32 z, u32 k0) {
    if constexpr (L::kBuffer)
      if (k0 % L::kRun == 0) find_run(p, z, k0);
  }
  /// Starts load j of the tile from K = k0 on, to LDS at `to`. Tiles come one after the other.
  SDX_FN void load(u32 k0, int j, u32 to) {
    if constexpr (L::kBuffer) {
      load_to_lds(buffer, offsets[j], k0 % L::kRun * u32(sizeof(T)), to);
    } else {
      load_to_lds(next[j], to);
      next[j] += step;
    }
  }
  /// Loads the last tile, `ahead` steps from here.
  template <class P>
  SDX_FN void load_masked(const P& p, u32 k0, i64 ahead, shared_vec* to) {
    load_masked_chunks<L, Threads>(p, next, step, k0, ahead, to);
  }
};

/// Adds the products of `count` tiles along K, from tile `from` on, to a wave's sums. Tile::kStages tiles are in LDS,
/// all but one of them on their way; a wave reads its operands half a tile ahead. Calls `at_end` when the last tiles
/// are on their way.
template <class Tile, class P, class AccTile, class AtEnd>
SDX_FN void multiply_ring(const P& p, AccTile& acc, const WavePart<Tile, P>& part, shared_vec* lds, u32 z,
                          u32 first_row, u32 first_col, u32 from, u32 count, const AtEnd& at_end) {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  using A = typename S::A;
  using B = typename S::B;
  constexpr int TM = S::kTilesM, TN = S::kTilesN, kLoads = A::kRounds + B::kRounds, kBytes = S::kStage * 16;
  constexpr int kStages = Tile::kStages, kLate = kLoads / 2, kEarly = kLoads - kLate;
  static_assert(S::kSteps == 2 && Tile::kWavesK == 1 && M::kVectorsA == 1 && M::kVectorsB == 1 && kStages >= 3);
  static_assert(S::kChunks == DirectPlace::kChunks && A::kItems % Tile::kThreads == 0 &&
                B::kItems % Tile::kThreads == 0 && Tile::kThreads / S::kChunks % 8 == 0);
  static_assert(!A::kMasked || (A::kBuffer && A::kInRun && !A::kShort), "nothing masks what is outside");
  static_assert(!B::kMasked && P::kLinearB && (A::kBuffer || P::kLinearA));
  if (count == 0) return at_end();
  own_m0();
  const u32 base = u32(u64((__attribute__((address_space(3))) void*)lds));
  RingPart<A, Tile::kThreads, 0> a;
  RingPart<B, Tile::kThreads, S::kRun> b;
  if constexpr (A::kBuffer)
    a.start(p, z, first_row, 0, 1);
  else
    a.start(p, z, first_row, from * S::kK, p.a_step());
  b.start(p, z, first_col, from * S::kK, p.b_step());
  // A tile that ends past K comes first.
  bool partial = false;
  if constexpr (!A::kBuffer && !P::kWholeK) partial = (from + count) * S::kK > p.k;
  const u32 begin = from - (partial ? 1 : 0);
  const u32 own = base + part.wave * kWave * 16;  // where the wave's loads to the first tile go
  const auto load = [&](u32 t, u32 tile, int j) __attribute__((always_inline)) {
    // Loads of A and B by turns: those of A may take more instructions, which find time between the products.
    constexpr int kPairs = A::kRounds < B::kRounds ? A::kRounds : B::kRounds;
    const bool is_a = j < 2 * kPairs ? j % 2 == 0 : A::kRounds > B::kRounds;
    const int of = j < 2 * kPairs ? j / 2 : j - kPairs;
    const u32 to = own + tile + of * Tile::kThreads * 16;
    if (is_a)
      a.load((begin + t) * S::kK, of, to);
    else
      b.load(0, of, to + A::kSpace * 16);
  };
  if (partial) {
    if constexpr (!A::kBuffer) {
      a.load_masked(p, (from + count - 1) * S::kK, count - 1, lds);
      b.load_masked(p, (from + count - 1) * S::kK, count - 1, lds + A::kSpace);
    }
  }
  each<kStages>([&](auto t) __attribute__((always_inline)) {
    if (t.value >= count || (t.value == 0 && partial)) return;
    if constexpr (t.value == 0)
      a.find_run(p, z, begin * S::kK);
    else
      a.next_run(p, z, (begin + t.value) * S::kK);
    constexpr int kNow = t.value == kStages - 1 ? kEarly : kLoads;
    each<kNow>([&](auto j) __attribute__((always_inline)) { load(t.value, t.value * kBytes, j.value); });
  });
  vec16 x[2][TM][1], y[2][TN][1];  // operands of both halves of a tile
  u32 from_a[2], from_b[2];
#pragma clang loop unroll(full)
  for (int s = 0; s < 2; ++s) {
    const u32 chunk = s * (M::kStep / M::kVec) + M::chunk(part.lane, 0);
    from_a[s] = base + DirectPlace::of(part.m * TM * 16 + M::row_a(part.lane, 0), chunk) * 16;
    from_b[s] = base + (A::kSpace + DirectPlace::of(part.n * TN * 16 + M::row_b(part.lane, 0), chunk)) * 16;
  }
  const auto read = [&](int s, u32 at_a, u32 at_b, int i) __attribute__((always_inline)) {
    if (i < TN)
      y[s][i][0] = *(shared_vec*)(at_b + i * (16 * S::kChunks * 16));
    else
      x[s][i - TN][0] = *(shared_vec*)(at_a + (i - TN) * (16 * S::kChunks * 16));
  };
  // Multiplies half s of a tile. Between matrix instructions are reads of the other half, of the tile at `next`, if
  // `reads`, and loads `first` to `first` + `loads` - 1 of tile t, to `to`.
  const auto multiply = [&](auto half, auto reads, u32 next, u32 t, u32 to, auto first,
                            auto loads) __attribute__((always_inline)) {
    constexpr int s = half.value, kMmas = TM * TN, kReads = reads.value ? TM + TN : 0;
    constexpr int kFirst = first.value, kNow = loads.value;
    u32 at_a = from_a[1 - s] + next, at_b = from_b[1 - s] + next;
    // Before product `number` the wave has started so many reads, which end before the products do, so that the barrier
    // behind them waits for none; and so many loads.
    const auto reads_before = [](int number) { return number * kReads * 4 / (3 * kMmas); };
    const auto loads_before = [](int number) { return kFirst + number * kNow / kMmas; };
    if constexpr (kMmas < 16) {
      each<kMmas>([&](auto index) __attribute__((always_inline)) {
        constexpr int number = index.value, kFrom = reads_before(number), kTo = reads_before(number + 1);
        constexpr int kLoad = loads_before(number), kUntil = loads_before(number + 1);
#pragma clang loop unroll(full)
        for (int i = kFrom; i < kTo && i < kReads; ++i) read(1 - s, at_a, at_b, i);
        S::mma(x[s][number / TN], y[s][number % TN], acc[number / TN][number % TN]);
#pragma clang loop unroll(full)
        for (int j = kLoad; j < kUntil && j < kFirst + kNow; ++j) load(t, to, j);
        keep_memory_order();
      });
    } else {
      // A loop that the compiler unrolls: with a lambda for each product, large tiles take half as long again to
      // compile.
      static_assert(kReads * 4 <= kMmas * 3 && kNow <= kMmas, "at most one of each before a product");
#pragma clang loop unroll(full)
      for (int number = 0; number < kMmas; ++number) {
        const int i = reads_before(number), j = loads_before(number);
        if (i < kReads && i < reads_before(number + 1)) read(1 - s, at_a, at_b, i);
        S::mma(x[s][number / TN], y[s][number % TN], acc[number / TN][number % TN]);
        if (j < loads_before(number + 1)) load(t, to, j);
        keep_memory_order();
      }
    }
  };
  // The first tile has to be in LDS; those after it may be on their way.
  each<kStages>([&](auto left) __attribute__((always_inline)) {
    constexpr int kLeft = left.value + 1;  // tiles of the first loads
    if (kLeft == kStages ? count >= kStages : count == kLeft)
      loads_arrived<(kLeft - 1) * kLoads - (kLeft == kStages ? kLate : 0)>();
  });
  lds_barrier();
#pragma clang loop unroll(full)
  for (int i = 0; i < TM + TN; ++i) read(0, from_a[0], from_b[0], i);
  fix_registers(acc);
  u32 tile = 0, loading = (kStages - 1) * kBytes, left = count, t = kStages - 1;  // offsets in LDS
  const auto after = [](u32 at)
                         __attribute__((always_inline)) { return at == (kStages - 1) * kBytes ? 0 : at + kBytes; };
  // After these the next tile is in LDS, and this one may be overwritten: all waves have its operands.
  const auto next_tile = [&](auto flying) __attribute__((always_inline)) {
    loads_arrived<flying.value * kLoads>();
    lds_barrier();
    loading = tile, tile = after(tile), ++t;
  };
  for (; left > kStages; --left) {
    multiply(Number<0>{}, Flag<true>{}, tile, t, loading, Number<kEarly>{}, Number<kLate>{});
    next_tile(Number<kStages - 2>{});
    a.next_run(p, z, (begin + t) * S::kK);
    multiply(Number<1>{}, Flag<true>{}, tile, t, loading, Number<0>{}, Number<kEarly>{});
  }
  at_end();
  each<kStages>([&](auto index) __attribute__((always_inline)) {
    constexpr int kLeft = kStages - index.value;
    if (left < kLeft) return;
    multiply(Number<0>{}, Flag<true>{}, tile, t, loading, Number<kEarly>{}, Number<kLeft == kStages ? kLate : 0>{});
    if constexpr (kLeft > 1) next_tile(Number<kLeft - 2>{});
    multiply(Number<1>{}, Flag<(kLeft > 1)>{}, tile, 0, 0, Number<0>{}, Number<0>{});
  });
}

#endif

}  // namespace gemm_detail
}  // namespace sdx
