// Passes the sums of matrix instructions to the epilogue, whole rows at a time.
#pragma once
#include "gemm_problem.h"

namespace sdx {
namespace gemm_detail {

struct NothingRead {};
template <class P>
struct ReadOf {
  using Type = NothingRead;
};
template <class P>
  requires requires { typename P::Read; }
struct ReadOf<P> {
  using Type = typename P::Read;
};

/// Columns that one thread stores at a time, where n is a multiple of it.
inline constexpr int kRun = 8;

/// x, which is a multiple of Width, marked as such for the compiler. It otherwise may lose that fact before it decides
/// whether neighbouring elements can be accessed with one instruction.
template <int Width>
SDX_FN u32 multiple(u32 x) {
#if defined(__NVPTX__)
  if constexpr (Width > 1) {
    u32 part = x / Width;
    asm("" : "+r"(part));
    x = part * Width;
  }
#elif defined(__AMDGCN__)
  if constexpr (Width > 1) x = x / Width * Width;
#endif
  return x;
}

/// Calls compute(), of epilogues with sines as with_sines().
template <class P, class Compute>
SDX_FN void compute_results(const Compute& compute) {
  if constexpr (P::kSines)
    with_sines(compute);
  else
    compute();
}

#if defined(__AMDGCN__)
/// Whether results of neighbouring columns are stored with one instruction. The compiler would have to find out that
/// single stores follow one another, address by address.
template <class P>
inline constexpr bool kStoresRuns = P::kOctets && P::kFullColumns;

/// Stores the results of N neighbouring columns, from a multiple of N on: result(e, sines...) of column e.
template <int N, class P, class Result>
SDX_FN void store_run(const P& p, u32 z, u32 row, u32 col, const Result& result) {
  using Out = typename P::Out;
  struct {
    Out x[N];
  } y;
  compute_results<P>([&](auto&... sines) {
#pragma clang loop unroll(full)
    for (int e = 0; e < N; ++e) y.x[e] = result(e, sines...);
  });
  constexpr int kBytes = sizeof(y) < 16 ? int(sizeof(y)) : 16;
  using Words = u32 __attribute__((ext_vector_type(kBytes / 4)));
  auto* to = (__attribute__((address_space(1))) Words*)p.place(z, row, col);
#pragma clang loop unroll(full)
  for (int k = 0; k < int(sizeof(y)) / kBytes; ++k) {
    Words w;
    __builtin_memcpy(&w, (const char*)&y + k * kBytes, kBytes);
    to[k] = w;
  }
}
#else
template <class P>
inline constexpr bool kStoresRuns = false;
#endif

/// Reads what the epilogue needs for N neighbouring columns, from a multiple of N on.
template <class P, class Read, int N>
SDX_FN void read_columns(const P& p, u32 z, u32 row, u32 col, Read (&to)[N]) {
#if defined(__AMDGCN__)
  if constexpr (P::kReadsOctets && P::kFullColumns && N == 8) {
    p.read_octet(z, row, col, to);
    return;
  }
#endif
#pragma clang loop unroll(full)
  for (int e = 0; e < N; ++e) p.read(z, row, col + e, to[e]);
}

/// Passes sums of neighbouring columns, the first of which is even, to P.
template <int N, class P, class Acc>
SDX_FN void store_columns(const P& p, u32 z, u32 row, u32 col, const Acc* x) {
#if defined(__AMDGCN__)
  if constexpr (kStoresRuns<P> && __is_same(typename ReadOf<P>::Type, NothingRead) && N % 4 == 0) {
    store_run<N>(p, z, row, col, [&](int e, auto&... sines) { return p.result(z, row, col + e, x[e], sines...); });
    return;
  }
#endif
#pragma clang loop unroll(full)
  for (int e = 0; e < N; e += P::kPairs ? 2 : 1) {
    if constexpr (P::kPairs)
      p.pair(z, row, (col + e) / 2, x[e], x[e + 1]);
    else
      p.element(z, row, col + e, x[e]);
  }
}

/// The same with what the epilogue reads.
template <int N, class P, class Acc, class Read>
SDX_FN void store_columns(const P& p, u32 z, u32 row, u32 col, const Acc* x, const Read (&reads)[N]) {
#if defined(__AMDGCN__)
  if constexpr (kStoresRuns<P> && N % 4 == 0) {
    store_run<N>(p, z, row, col,
                 [&](int e, auto&... sines) { return p.result(z, row, col + e, x[e], reads[e], sines...); });
    return;
  }
#endif
#pragma clang loop unroll(full)
  for (int e = 0; e < N; ++e) p.element(z, row, col + e, x[e], reads[e]);
}

/// See store_acc(). Whole: all results lie within the output.
template <bool Whole, class P, int TM, int TN, int Slots, int Slices, class AccTile>
SDX_FN void store_parts(const P& p, AccTile& acc, shared_f32* stage, u32 z, u32 row, u32 col, u32 slot, u32 slice) {
  using M = Matrix<typename P::T>;
  using Acc = typename M::Acc;
  constexpr int kPart = TN < 4 ? TN : 4, kPitch = kPart * 16 + 4, kSize = 16 * kPitch;
  static_assert(TN % kPart == 0);
  auto* mine = (__attribute__((address_space(3))) Acc*)stage + (slice * Slots + slot) * kSize;
  auto* all = (__attribute__((address_space(3))) Acc*)stage + slot * kSize;
  const u32 lane = thread_id() % kWave;
#pragma clang loop unroll(full)
  for (int i = 0; i < TM; ++i)
#pragma clang loop unroll(full)
    for (int h = 0; h < TN; h += kPart) {
      // Full runs of columns are stored 16 bytes at a time. Where rows are not aligned to these, neighbouring lanes
      // take fewer columns each.
      constexpr int kWidth = P::kFullColumns ? kRun : P::kPairs ? 2 : P::kColumnRun;
      constexpr int kRuns = 16 * kPart * 16 / kWidth, kLanes = int(kWave) * Slices;
      constexpr int kRounds = (kRuns + kLanes - 1) / kLanes;
      const auto place_of = [&](int q, u32& r, u32& c) {
        const u32 run = slice * kWave + lane + q * kLanes;
        r = run / (kPart * 16 / kWidth);
        c = run % (kPart * 16 / kWidth) * kWidth;
      };
      using Read = typename ReadOf<P>::Type;
      constexpr bool kReads = !__is_same(Read, NothingRead);
      Read reads[kReads ? kRounds : 1][kWidth];
      if constexpr (kReads) {
      // Results outside of the output are clamped for reading and not stored.
#pragma clang loop unroll(full)
        for (int q = 0; q < kRounds; ++q) {
          u32 r, c;
          place_of(q, r, c);
          const u32 out_row = row + i * 16 + r, out_col = col + h * 16 + c;
          const u32 in_row = Whole || out_row < p.m ? out_row : p.m - 1,
                    in_col = multiple<kWidth>(Whole || P::kWholeN || out_col < p.n ? out_col : 0);
          read_columns(p, z, in_row, in_col, reads[q]);
        }
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < kPart; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < M::kCount; ++e)
          mine[M::acc_row(lane, e) * kPitch + j * 16 + M::acc_col(lane, e)] = acc[i][h + j][e];
      if constexpr (Slices > 1)
        lds_barrier();
      else
        wave_barrier();
#pragma clang loop unroll(full)
      for (int q = 0; q < kRounds; ++q) {
        u32 r, c;
        place_of(q, r, c);
        if (kRuns % kLanes != 0 && r >= 16) break;
        Acc x[kWidth];
#pragma clang loop unroll(full)
        for (int e = 0; e < kWidth; ++e) {
          x[e] = all[r * kPitch + c + e];
#pragma clang loop unroll(full)
          for (int s = 1; s < Slices; ++s) x[e] += all[s * Slots * kSize + r * kPitch + c + e];
        }
        const u32 out_row = row + i * 16 + r, out_col = multiple<kWidth>(col + h * 16 + c);
        if (!Whole && (out_row >= p.m || (!P::kWholeN && out_col >= p.n))) continue;
        if constexpr (kReads)
          store_columns<kWidth>(p, z, out_row, out_col, x, reads[q]);
        else
          store_columns<kWidth>(p, z, out_row, out_col, x);
      }
      if constexpr (Slices > 1)
        lds_barrier();
      else
        wave_barrier();
    }
}

/// Passes a wave's accumulators to P::element in row order rather than in the matrix instruction's layout. They go
/// through LDS, 16 rows by up to 64 columns at a time. `row` and `col`: of the wave's first sum. The sums of waves with
/// the same `slot` are added up.
template <class P, int TM, int TN, int Slots, int Slices, class AccTile>
SDX_FN void store_acc(const P& p, AccTile& acc, shared_f32* stage, u32 z, u32 row, u32 col, u32 slot, u32 slice) {
#if defined(__GFX9__)
  // On GFX9 loads and stores share one counter (vmcnt). After a store that may have been skipped, the compiler no
  // longer knows how many are in flight, and waits for all of them where it needs an operand of the epilogue. Products
  // of float32 take so long that a second copy of the epilogue is not worth its time to compile.
  constexpr bool kTwice = sizeof(typename P::T) <= 2 && !__is_same(typename ReadOf<P>::Type, NothingRead);
  if constexpr (kTwice)
    if (row + TM * 16 <= p.m && (P::kWholeN || col + TN * 16 <= p.n)) {
      store_parts<true, P, TM, TN, Slots, Slices>(p, acc, stage, z, row, col, slot, slice);
      return;
    }
#endif
  store_parts<false, P, TM, TN, Slots, Slices>(p, acc, stage, z, row, col, slot, slice);
}

/// How many neighbouring columns TransposedAcc gives a lane of a wave with TN tiles of columns; 0 if it cannot.
template <class P, int TN>
inline constexpr int transposed_run = [] {
#if SDX_MATRIX_I8 == 16  // CDNA 2
  return 0;              // by the clock, ResNet-50's convolutions take up to 7 % longer than through LDS
#endif
  if (Matrix<typename P::T>::kFamily != MatrixFamily::kMfma || !P::kFullColumns) return 0;
  return P::kResultBytes * 8 <= (P::kPairs ? 32 : 16) && TN % 2 == 0 ? 8 : 4;
}();

/// Waits for this wave's loads. Within a branch the compiler would wait for them, and for earlier stores too.
SDX_FN void wait_for_loads() {
#if defined(__GFX9__)
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

/// Passes a wave's sums to P::element without LDS, where matrix instructions computed the transposed tile: with the
/// weights as its first operand, a lane has 4 sums of one row (pixel) that follow one another, and `Run` of them if the
/// columns are divided among tiles accordingly (turned_row()). Four lanes store neighbouring runs of a row. What the
/// epilogue reads is read before anything is stored.
template <class P, int TM, int TN, int Run>
struct TransposedAcc {
  using Read = typename ReadOf<P>::Type;
  static constexpr bool kReads = !__is_same(Read, NothingRead), kEarly = kReads && !P::kReadsRows;
  static constexpr int kTiles = Run / 4, kRuns = TN / kTiles;  // tiles of a run; runs of a lane in a row
  // Rows of tiles whose reads are on their way at a time.
  static constexpr int kTogether = P::kReadsRows && TM * TN > 16 && TM % 2 == 0 ? TM / 2 : TM;
  Read columns[kEarly ? kRuns : 1][kEarly ? Run : 1];

  static SDX_FN u32 column(u32 col, int run) { return col + (run * 4 + thread_id() % kWave / 16) * Run; }
  static SDX_FN void read_run(const P& p, u32 z, u32 row, u32 col, Read (&to)[Run]) {
    const u32 in_col =
        multiple<P::kFullColumns ? Run : 1>(P::kWholeN || col < p.n ? col : 0);  // what is not stored may be anything
    read_columns(p, z, row, in_col, to);
  }
  /// Starts reading what the epilogue needs of columns, from column `col` of the wave on.
  SDX_FN void begin(const P& p, u32 z, u32 col) {
    if constexpr (kEarly)
#pragma clang loop unroll(full)
      for (int run = 0; run < kRuns; ++run) read_run(p, z, 0, column(col, run), columns[run]);
  }
  /// whole_rows, whole_columns: no tile of any workgroup reaches past the output; known while compiling where sizes
  /// are.
  template <class AccTile>
  SDX_FN void store(const P& p, const AccTile& acc, u32 z, u32 row, u32 col, bool whole_rows,
                    bool whole_columns) const {
    using Acc = typename Matrix<typename P::T>::Acc;
    const u32 own = row + thread_id() % 16;
    if (kEarly && !(whole_rows && whole_columns)) wait_for_loads();
#pragma clang loop unroll(full)
    for (int first = 0; first < TM; first += kTogether) {
      Read reads[P::kReadsRows ? kTogether : 1][kRuns][Run];
      if constexpr (P::kReadsRows)
#pragma clang loop unroll(full)
        for (int i = 0; i < kTogether; ++i)
#pragma clang loop unroll(full)
          for (int run = 0; run < kRuns; ++run) {
            const u32 at = own + (first + i) * 16;
            read_run(p, z, whole_rows || at < p.m ? at : p.m - 1, column(col, run), reads[i][run]);
          }
#pragma clang loop unroll(full)
      for (int i = 0; i < kTogether; ++i) {
        const u32 at = own + (first + i) * 16;
        if (!whole_rows && at >= p.m) continue;
#pragma clang loop unroll(full)
        for (int run = 0; run < kRuns; ++run) {
          const u32 c = column(col, run);
          if (!whole_columns && c >= p.n) continue;
          Acc x[Run];
#pragma clang loop unroll(full)
          for (int e = 0; e < Run; ++e) x[e] = acc[first + i][run * kTiles + e / 4][e % 4];
          if constexpr (kEarly)
            store_columns<Run>(p, z, at, c, x, columns[run]);
          else if constexpr (kReads)
            store_columns<Run>(p, z, at, c, x, reads[i][run]);
          else
            store_columns<Run>(p, z, at, c, x);
        }
      }
    }
  }
};

/// Where matrix instructions compute the tile as it is.
template <class P, int TM, int TN>
struct TransposedAcc<P, TM, TN, 0> {
  SDX_FN void begin(const P&, u32, u32) {}
};

}  // namespace gemm_detail
}  // namespace sdx
