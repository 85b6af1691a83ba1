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
// SDX_NO_OWN_ACCUMULATORS if anything else writes these registers.
#define SDX_ACCUMULATORS                                                                                              \
  "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", "a12", "a13", "a14", "a15", "a16", "a17", \
      "a18", "a19", "a20", "a21", "a22", "a23", "a24", "a25", "a26", "a27", "a28", "a29", "a30", "a31", "a32", "a33", \
      "a34", "a35", "a36", "a37", "a38", "a39", "a40", "a41", "a42", "a43", "a44", "a45", "a46", "a47", "a48", "a49", \
      "a50", "a51", "a52", "a53", "a54", "a55", "a56", "a57", "a58", "a59", "a60", "a61", "a62", "a63", "a64", "a65", \
      "a66", "a67", "a68", "a69", "a70", "a71", "a72", "a73", "a74", "a75", "a76", "a77", "a78", "a79", "a80", "a81", \
      "a82", "a83", "a84", "a85", "a86", "a87", "a88", "a89", "a90", "a91", "a92", "a93", "a94", "a95", "a96", "a97", \
      "a98", "a99", "a100", "a101", "a102", "a103", "a104", "a105", "a106", "a107", "a108", "a109", "a110", "a111",   \
      "a112", "a113", "a114", "a115", "a116", "a117", "a118", "a119", "a120", "a121", "a122", "a123", "a124", "a125", \
      "a126", "a127", "a128", "a129", "a130", "a131", "a132", "a133", "a134", "a135", "a136", "a137", "a138", "a139", \
      "a140", "a141", "a142", "a143", "a144", "a145", "a146", "a147", "a148", "a149", "a150", "a151", "a152", "a153", \
      "a154", "a155", "a156", "a157", "a158", "a159", "a160", "a161", "a162", "a163", "a164", "a165", "a166", "a167", \
      "a168", "a169", "a170", "a171", "a172", "a173", "a174", "a175", "a176", "a177", "a178", "a179", "a180", "a181", \
      "a182", "a183", "a184", "a185", "a186", "a187", "a188", "a189", "a190", "a191", "a192", "a193", "a194", "a195", \
      "a196", "a197", "a198", "a199", "a200", "a201", "a202", "a203", "a204", "a205", "a206", "a207", "a208", "a209", \
      "a210", "a211", "a212", "a213", "a214", "a215", "a216", "a217", "a218", "a219", "a220", "a221", "a222", "a223", \
      "a224", "a225", "a226", "a227", "a228", "a229", "a230", "a231", "a232", "a233", "a234", "a235", "a236", "a237", \
      "a238", "a239", "a240", "a241", "a242", "a243", "a244", "a245", "a246", "a247", "a248", "a249", "a250", "a251", \
      "a252", "a253", "a254", "a255"

/// Keeps the compiler from using accumulation registers for what is needed before and after this point.
SDX_FN void reserve_accumulators() { asm volatile("" : : : SDX_ACCUMULATORS); }

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
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3), "v"(from), "s"(to), "n"(Offset)
                 : "m0", "scc");
  else
    asm volatile(SDX_LOAD_AND_ACCUMULATE("bf16")
                 :
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3), "v"(from), "s"(to), "n"(Offset)
                 : "m0", "scc");
}
template <int Register>
SDX_FN void clear_accumulator() {
  asm volatile("v_accvgpr_write_b32 a[%0], 0" : : "n"(Register));
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
  const auto clear = [](auto number) __attribute__((always_inline)) { clear_accumulator<number.value>(); };
  asm volatile("sdx_own_accumulators_%=:" : :);
  reserve_accumulators();
  each<256>(clear);
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
