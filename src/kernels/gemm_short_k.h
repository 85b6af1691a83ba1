// GEMM with a short K on NVIDIA's mma.m16n8k16, where writing the result takes most of the time. Lanes load both
// operands from memory straight to the registers that instructions take; there is no shared memory and no barrier, so
// that many warps are at work on a multiprocessor, each at another point of its rows.
//
// Sums over K may have any order. A group of four lanes loads 16 bytes each of 32 consecutive elements; the first half
// of every lane's vector is the operand of one instruction, the second half that of the next. Columns are ordered so
// that a lane gets the sums of eight neighbouring ones.
//
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16".
#pragma once
#include "gemm_store_octets.h"

#if defined(__NVPTX__)
namespace sdx {
namespace short_k_detail {

inline constexpr int kSpan = 32;  // elements of K of four lanes' vectors

/// Eight elements of operand A (Row) or B from k on; zeros past K.
template <bool Row, class P>
SDX_FN vec16 load(const P& p, u32 z, u32 line, u32 k) {
  bool inside = true;
  const auto* from = Row ? p.a(z, line, k, inside) : p.b(z, line, k, inside);
  if constexpr (Row ? P::kMaskedA : P::kMaskedB)
    return inside ? gemm_detail::load16(from) : vec16{};
  else
    return gemm_detail::load16(from);
}

/// Operands of one line of K.
template <int Spans, bool Row, class P>
SDX_FN void load_line(const P& p, u32 z, u32 line, vec16 (&to)[Spans]) {
#pragma clang loop unroll(full)
  for (int s = 0; s < Spans; ++s) {
    const u32 k = s * kSpan + thread_id() % 4 * 8;
    to[s] = k < p.k ? load<Row>(p, z, line, k) : vec16{};
  }
}

/// What the epilogue reads for a lane's eight columns of 32, from `col` on, of rows `row` + lane / 4 and 8 after it.
template <class P>
struct Reads {
  using Read = typename gemm_detail::ReadOf<P>::Type;
  static constexpr bool kAny = !__is_same(Read, gemm_detail::NothingRead);
  Read of[2][kAny ? gemm_detail::kRun : 1];

  SDX_FN void begin(const P& p, u32 z, u32 row, u32 col) {
    using namespace gemm_detail;
    if constexpr (kAny)
#pragma clang loop unroll(full)
      for (int half = 0; half < 2; ++half) {
        // What is outside of the output is clamped for reading and not stored.
        const u32 r = row_of(row, half), at = column_of(col), c = multiple<kRun>(at < p.n ? at : 0);
#pragma clang loop unroll(full)
        for (int e = 0; e < kRun; ++e) p.read(z, r < p.m ? r : p.m - 1, c + e, of[half][e]);
      }
  }
  static SDX_FN u32 row_of(u32 row, int half) { return row + thread_id() % 32 / 4 + half * 8; }
  static SDX_FN u32 column_of(u32 col) { return gemm_detail::multiple<gemm_detail::kRun>(col + thread_id() % 4 * 8); }

  /// Stores the results of sums of the same rows and columns.
  SDX_FN void store(const P& p, const f32 (&acc)[4][4], u32 z, u32 row, u32 col) const {
    using namespace gemm_detail;
    const u32 c = column_of(col);
#pragma clang loop unroll(full)
    for (int half = 0; half < 2; ++half) {
      const u32 r = row_of(row, half);
      f32 x[kRun];
#pragma clang loop unroll(full)
      for (int e = 0; e < kRun; ++e) x[e] = acc[e / 2][half * 2 + e % 2];
      if constexpr (P::kOctets) {
        if constexpr (kAny) {
          store_octet(p, z, r, c, x, of[half]);
        } else {
          const Read none[kRun] = {};
          store_octet(p, z, r, c, x, none);
        }
      } else {
        if (r >= p.m || c >= p.n) continue;
        if constexpr (kAny) {
#pragma clang loop unroll(full)
          for (int e = 0; e < kRun; ++e) p.element(z, r, c + e, x[e], of[half][e]);
        } else {
          store_columns<kRun>(p, z, r, c, x);
        }
      }
    }
  }
};

}  // namespace short_k_detail

/// Warps compute BN columns (a multiple of 32) of Tiles x 16 rows each; WM of a thread block's four are along M, the
/// others along N. K is at most Spans * 32 and a multiple of 8, n is a multiple of 8. Launch: ceil(m / (16 * Tiles *
/// WM)) * ceil(n / (BN * 4 / WM)) * batches thread blocks of 128 threads.
template <int BN, int Tiles, int Spans, int WM, class P>
SDX_FN void gemm_short_k(const P& p) {
  using namespace gemm_detail;
  using namespace short_k_detail;
  using T = typename P::T;
  static_assert(P::kAccessA == Access::kVector && P::kAccessB == Access::kVector && P::kFullColumns && BN % 32 == 0);
  constexpr int kRows = 16 * Tiles, kBlocks = BN / 8;
  constexpr u32 kTileM = kRows * WM, kTileN = BN * 4 / WM;
  const u32 lane = thread_id() % 32, line = lane / 4, wave = thread_id() / 32;
  u32 z, tile_m, tile_n;
  choose_tile(block_id(), p.batches, (p.m + kTileM - 1) / kTileM, (p.n + kTileN - 1) / kTileN, z, tile_m, tile_n);
  const u32 first_row = tile_m * kTileM + wave % WM * kRows, first_col = tile_n * kTileN + wave / WM * BN;

  vec16 b[kBlocks][Spans];
#pragma clang loop unroll(full)
  for (int j = 0; j < kBlocks; ++j) {
    const u32 col = first_col + j / 4 * 32 + line / 2 * 8 + j % 4 * 2 + line % 2;
    load_line<Spans, false>(p, z, col < p.n ? col : p.n - 1, b[j]);
  }
  if (first_row >= p.m || first_col >= p.n) return;
  vec16 a[Tiles][2][Spans];
#pragma clang loop unroll(full)
  for (int i = 0; i < Tiles; ++i)
#pragma clang loop unroll(full)
    for (int half = 0; half < 2; ++half) {
      const u32 row = first_row + i * 16 + half * 8 + line;
      load_line<Spans, true>(p, z, row < p.m ? row : p.m - 1, a[i][half]);
    }
#pragma clang loop unroll(full)
  for (int i = 0; i < Tiles; ++i) {
    const u32 row = first_row + i * 16;
    Reads<P> reads[BN / 32];
#pragma clang loop unroll(full)
    for (int part = 0; part < BN / 32; ++part) reads[part].begin(p, z, row, first_col + part * 32);
#pragma clang loop unroll(full)
    for (int part = 0; part < BN / 32; ++part) {
      if (first_col + part * 32 >= p.n) continue;
      f32 acc[4][4];
#pragma clang loop unroll(full)
      for (int j = 0; j < 4; ++j) {
        const auto& columns = b[part * 4 + j];
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; ++e) acc[j][e] = 0;
#pragma clang loop unroll(full)
        for (int s = 0; s < Spans; ++s)
#pragma clang loop unroll(full)
          for (int w = 0; w < 4; w += 2)
            detail::mma<T>(a[i][0][s][w], a[i][1][s][w], a[i][0][s][w + 1], a[i][1][s][w + 1], columns[s][w],
                           columns[s][w + 1], acc[j][0], acc[j][1], acc[j][2], acc[j][3]);
      }
      reads[part].store(p, acc, z, row, first_col + part * 32);
    }
  }
}

}  // namespace sdx
#endif
