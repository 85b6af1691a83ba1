// The main loop of the tiled GEMM for CDNA 4, whose 16-byte loads go straight to LDS: no registers hold tiles in
// flight, so a wave has registers for the operands of two steps and for accumulators of 128 x 128.
#pragma once
#include "gemm_pipeline.h"
#include "loads_to_lds.h"

namespace sdx {
namespace gemm_detail {

#if defined(SDX_LOADS_TO_LDS)

// A wave's accumulators fill all 256 accumulation registers, which are assigned explicitly here: the compiler's
// allocation copies accumulators and spills. It does not know them, and could keep other values there between
// reserve_accumulators() (which is rare: it has as many vector registers). So the machine code of a kernel with the
// label sdx_own_accumulators is checked (compile/llvm/amd_accumulators.h), and compiled again with
// SDX_NO_OWN_REGISTERS if anything else writes these registers.

#define SDX_TEN(tens)                                                                                      \
  "a" #tens "0", "a" #tens "1", "a" #tens "2", "a" #tens "3", "a" #tens "4", "a" #tens "5", "a" #tens "6", \
      "a" #tens "7", "a" #tens "8", "a" #tens "9"

/// Keeps the compiler from using accumulation registers for what is needed before and after this point. LLVM's time
/// grows with the square of the registers that one statement clobbers.
SDX_FN void reserve_accumulators() {
  asm volatile("" : : : SDX_TEN(), SDX_TEN(1), SDX_TEN(2));
  asm volatile("" : : : SDX_TEN(3), SDX_TEN(4), SDX_TEN(5));
  asm volatile("" : : : SDX_TEN(6), SDX_TEN(7), SDX_TEN(8));
  asm volatile("" : : : SDX_TEN(9), SDX_TEN(10), SDX_TEN(11));
  asm volatile("" : : : SDX_TEN(12), SDX_TEN(13), SDX_TEN(14));
  asm volatile("" : : : SDX_TEN(15), SDX_TEN(16), SDX_TEN(17));
  asm volatile("" : : : SDX_TEN(18), SDX_TEN(19), SDX_TEN(20));
  asm volatile("" : : : SDX_TEN(21), SDX_TEN(22), SDX_TEN(23));
  asm volatile("" : : : SDX_TEN(24), "a250", "a251", "a252", "a253", "a254", "a255");
}
#undef SDX_TEN

// sums[Index] += a . b: 16 x 16 accumulators, K = 32. Each is updated once per step, so that no matrix instruction
// waits for another.
#define SDX_ACCUMULATE(type) "v_mfma_f32_16x16x32_" type " a[%2:%3], %0, %1, a[%2:%3]"
template <class T, int Index>
SDX_FN void accumulate(vec16 a, vec16 b) {
  if constexpr (is_same<T, f16>)
    asm volatile(SDX_ACCUMULATE("f16") : : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3));
  else
    asm volatile(SDX_ACCUMULATE("bf16") : : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3));
}
// The same with load_to_lds(from, to + Offset), where the product is the wait state.
#define SDX_LOAD_AND_ACCUMULATE(type) \
  "s_add_u32 m0, %5, %6\n\t" SDX_ACCUMULATE(type) "\n\tglobal_load_lds_dwordx4 %4, off"
template <class T, int Index, int Offset>
SDX_FN void accumulate(vec16 a, vec16 b, const void* from, u32 to) {
  if constexpr (is_same<T, f16>)
    asm volatile(SDX_LOAD_AND_ACCUMULATE("f16")
                 :
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3), "v"(from), "s"(to),
                   "n"(Offset)SDX_CLOBBERS_M0_SCC);
  else
    asm volatile(SDX_LOAD_AND_ACCUMULATE("bf16")
                 :
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3), "v"(from), "s"(to),
                   "n"(Offset)SDX_CLOBBERS_M0_SCC);
}
/// Clears eight accumulation registers.
template <int First>
SDX_FN void clear_accumulators() {
#define SDX_CLEAR(n) "v_accvgpr_write_b32 a[%0 + " #n "], 0\n\t"
  asm volatile(SDX_CLEAR(0) SDX_CLEAR(1) SDX_CLEAR(2) SDX_CLEAR(3) SDX_CLEAR(4) SDX_CLEAR(5) SDX_CLEAR(6) SDX_CLEAR(7)
               :
               : "n"(First));
#undef SDX_CLEAR
}
template <int Register>
SDX_FN f32 accumulator() {
  f32 x;
  asm volatile("v_accvgpr_read_b32 %0, a[%1]" : "=v"(x) : "n"(Register));
  return x;
}
/// Waits until products are done (CDNA 4 ISA, "Dependency Resolution: Required Independent Instructions").
SDX_FN void settle() { asm volatile("s_nop 15\n\ts_nop 7"); }

/// An operand's tile in LDS: rows of 128 bytes, which are whole lines of the cache. Chunks of 16 bytes are swizzled so
/// that lanes that LDS serves together access different banks. The pattern repeats every 8 rows, so that all tiles of a
/// wave are read from one address and constant offsets.
struct DirectPlace {
  static constexpr u32 kChunks = 8;
  static SDX_FN u32 of(u32 row, u32 chunk) { return row * kChunks + (chunk ^ row % kChunks); }
  static SDX_FN u32 row(u32 item) { return item / kChunks; }
  static SDX_FN u32 chunk(u32 item) { return item % kChunks ^ row(item) % kChunks; }
};

/// Loads the last tile of an operand, which may end past K, through registers; zeros past K. next: each chunk's address
/// in the tile `ahead` steps before it.
template <class L, int Threads, class P>
SDX_FN void load_masked_chunks(const P& p, const typename L::T* const (&next)[L::kRounds], i64 step, u32 k0, i64 ahead,
                               shared_vec* to) {
  vec16 x[L::kRounds];
  bool inside[L::kRounds];
#pragma clang loop unroll(full)
  for (int j = 0; j < L::kRounds; ++j) {
    inside[j] = k0 + DirectPlace::chunk(thread_id() + j * Threads) * L::V < p.k;
    x[j] = load16(next[j] + (inside[j] ? ahead * step : 0));
  }
#pragma clang loop unroll(full)
  for (int j = 0; j < L::kRounds; ++j) to[thread_id() + j * Threads] = inside[j] ? x[j] : vec16{};
}

/// The chunks of an operand's tile that a lane loads. The lane's number determines their position in LDS, so global
/// memory is addressed in the swizzled order.
template <class L, int Threads>
struct DirectPart {
  using T = typename L::T;
  static constexpr int kRounds = L::kRounds;
  const T* next[kRounds];
  i64 step;

  template <class P>
  SDX_FN void start(const P& p, u32 z, u32 first, u32 k0, i64 each) {
    step = L::kDepth * each;
#pragma clang loop unroll(full)
    for (int j = 0; j < kRounds; ++j) {
      const u32 item = thread_id() + j * Threads;
      bool inside = true;
      const u32 k = k0 + DirectPlace::chunk(item) * L::V;
      next[j] = L::at(p, z, L::clamped(p, first, DirectPlace::row(item)), 0, inside) + (k < p.k ? k : k0) * each;
    }
  }
  /// Loads the tile `ahead` steps from here.
  template <class P>
  SDX_FN void load_masked(const P& p, u32 k0, i64 ahead, shared_vec* to) {
    load_masked_chunks<L, Threads>(p, next, step, k0, ahead, to);
  }
};

/// Adds the products of `count` tiles along K, from tile `from` on, to a wave's sums in accumulation registers. One of
/// two tiles in LDS is read while the other arrives; a wave reads its operands half a tile ahead.
template <class Tile, class P>
SDX_FN void multiply_direct(const P& p, const WavePart<Tile, P>& part, shared_vec* lds, u32 z, u32 first_row,
                            u32 first_col, u32 from, u32 count) {
  using S = Sizes<Tile, P>;
  using M = typename S::M;
  using A = typename S::A;
  using B = typename S::B;
  using T = typename P::T;
  constexpr int TM = S::kTilesM, TN = S::kTilesN, kLoads = A::kRounds + B::kRounds, kBytes = S::kStage * 16;
  static_assert(TM * TN == 64 && S::kSteps == 2 && Tile::kWavesK == 1 && Tile::kStages == 2);
  static_assert(S::kChunks == DirectPlace::kChunks);
  const auto clear = [](auto number) __attribute__((always_inline)) { clear_accumulators<8 * number.value>(); };
  asm volatile("sdx_own_accumulators_%=:" : :);
  own_m0();
  reserve_accumulators();
  each<32>(clear);
  if (count == 0) return;
  const u32 base = u32(u64((__attribute__((address_space(3))) void*)lds));
  DirectPart<A, Tile::kThreads> a;
  DirectPart<B, Tile::kThreads> b;
  a.start(p, z, first_row, from * S::kK, p.a_step());
  b.start(p, z, first_col, from * S::kK, p.b_step());
  // The last tile along K, which may be partial, comes first.
  const u32 last = (from + count - 1) * S::kK;
  a.load_masked(p, last, count - 1, lds);
  b.load_masked(p, last, count - 1, lds + A::kSpace);
  const u32 own = base + part.wave * kWave * 16;  // where the wave's loads to the first tile go
  // Elements from the tile that is being loaded to the next; past the last tile that one is loaded again.
  i64 step_a, step_b;
  const auto loading = [&](u32 t) __attribute__((always_inline)) {
    const bool more = t + 1 < count;
    step_a = more ? a.step : 0, step_b = more ? b.step : 0;
  };
  // Part of a tile's loads are issued in the next step, so that LDS accepts them between its reads; they still arrive
  // in time.
  constexpr int kEarly = kLoads * 5 / 8, kLate = kLoads - kEarly;
  loading(1);
  each<kEarly>([&](auto number) __attribute__((always_inline)) {
    constexpr int j = number.value;
    const u32 to = own + kBytes + j * Tile::kThreads * 16;
    if constexpr (j < A::kRounds)
      load_to_lds(a.next[j], to), a.next[j] += step_a;
    else
      load_to_lds(b.next[j - A::kRounds], to), b.next[j - A::kRounds] += step_b;
  });
  vec16 x[2][TM], y[2][TN];  // operands of both halves of a tile
  u32 from_a[2], from_b[2];
#pragma clang loop unroll(full)
  for (int s = 0; s < 2; ++s) {
    const u32 chunk = s * (M::kStep / M::kVec) + M::chunk(part.lane, 0);
    from_a[s] = base + DirectPlace::of(part.m * TM * 16 + M::row_a(part.lane, 0), chunk) * 16;
    from_b[s] = base + (A::kSpace + DirectPlace::of(part.n * TN * 16 + M::row_b(part.lane, 0), chunk)) * 16;
  }
  // Operand i of half s of the tile at `at_a` and `at_b` in LDS: those of B, then of A.
  const auto read = [&](int s, u32 at_a, u32 at_b, int i) __attribute__((always_inline)) {
    if (i < TN)
      y[s][i] = *(shared_vec*)(at_b + i * (16 * S::kChunks * 16));
    else
      x[s][i - TN] = *(shared_vec*)(at_a + (i - TN) * (16 * S::kChunks * 16));
  };
  // Multiplies half s of a tile. Interleaved with the matrix instructions are reads of the other half (of this tile, or
  // of the next one at `next`) and `Loads` loads to `to`, from load First on, one per Apart instructions.
  const auto multiply = [&](auto half, u32 next, u32 to, auto first, auto loads,
                            auto apart) __attribute__((always_inline)) {
    constexpr int s = half.value, kEach = TM * TN / (TM + TN);  // products after each read
    u32 at_a = from_a[1 - s] + next, at_b = from_b[1 - s] + next;
    asm("" : "+v"(at_a), "+v"(at_b));  // otherwise the compiler keeps an address for each offset
    each<TM * TN>([&](auto index) __attribute__((always_inline)) {
      constexpr int number = index.value, kApart = apart.value, j = first.value + number / kApart;
      if (number % TN == 0) reserve_accumulators();
      if (number % kEach == 0) read(1 - s, at_a, at_b, number / kEach);
      const vec16 m = x[s][number / TN], n = y[s][number % TN];
      if constexpr (number % kApart != 2 || number / kApart >= loads.value) {
        accumulate<T, number>(m, n);
      } else if constexpr (j < A::kRounds) {
        accumulate<T, number, j * Tile::kThreads * 16>(m, n, a.next[j], to);
        a.next[j] += step_a;
      } else {
        accumulate<T, number, j * Tile::kThreads * 16>(m, n, b.next[j - A::kRounds], to);
        b.next[j - A::kRounds] += step_b;
      }
    });
  };
  lds_barrier();
#pragma clang loop unroll(full)
  for (int i = 0; i < TM + TN; ++i) read(0, from_a[0], from_b[0], i);
  u32 tile = 0;  // offset in LDS
  for (u32 t = 0; t < count; ++t) {
    const u32 next = kBytes - tile;
    multiply(Number<0>{}, tile, own + next, Number<kEarly>{}, Number<kLate>{}, Number<4>{});
    loads_arrived<0>();
    lds_barrier();
    loading(t + 2);
    multiply(Number<1>{}, next, own + tile, Number<0>{}, Number<kEarly>{}, Number<6>{});
    tile = next;
  }
  loads_arrived<0>();
  settle();
}

#endif

}  // namespace gemm_detail
}  // namespace sdx
