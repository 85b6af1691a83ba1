// GEMM of two to four rows with weights of 4 or 8 bits on CDNA's smallest matrix instruction, which multiplies 4 rows
// by 4 columns in each of 16 blocks (AMDGPU ISA: V_MFMA_F32_4X4X4_16B_F16). Blocks divide K: four neighbouring lanes
// load contiguous elements of four rows of a, and of four columns of b. So a lane loads a quarter of what vector
// arithmetic needs of a, and multiplications take no vector instructions, which are needed to convert weights. Integers
// minus their zero point are exact in float16; the scale multiplies the sum of a block, as in gemv_wide.h.
//
// The lanes of a block need the same place of four columns. L1 serves four lanes in a cycle if they lie in different
// banks, and such places are all in one. So 16 neighbouring lanes load a part of one column, contiguous weights and
// scales, and lanes exchange them.
#pragma once
#include "gemv_wide.h"

#if defined(__GFX9__)
namespace sdx {

/// Each team of Shares waves computes Columns columns of four rows (or fewer); its waves and their blocks divide K.
/// Launch: ceil(m / 4) * ceil(n / (Columns * 4 / Shares)) * batches workgroups.
template <int Columns, int Slices, class P>
SDX_FN void gemv_mfma(const P& p) {
  using namespace gemm_detail;
  using namespace gemv_detail;
  using namespace skinny_detail;
  using half4 = vec<f16, 4>;
  using sums4 = vec<f32, 4>;
  static_assert(kWave == 64 && is_same<typename P::T, f16> && P::kBits < 16 && P::kAccessA != Access::kAcross);
  constexpr int kRows = 4, kTiles = Columns / 4, kRun = 128 / P::kBits, kGroups = kRun / 8, kWords = P::kBits / 4;
  constexpr u32 kWaves = kThreads / kWave, kColumns = Columns * (kWaves / Slices);
  constexpr u32 kSpan = kRun * 16, kStride = kSpan * Slices;
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave, team = wave / Slices;
  const u32 tiles_n = (p.n + kColumns - 1) / kColumns, tiles_m = (p.m + kRows - 1) / kRows;
  const u32 id = block_id(), z = id / (tiles_m * tiles_n), rest = id % (tiles_m * tiles_n);
  const u32 row0 = rest / tiles_n * kRows, height = p.m - row0 < kRows ? p.m - row0 : kRows;
  const u32 first_col = rest % tiles_n * kColumns;
  const u32 row = lane % 4 < height ? lane % 4 : height - 1;  // others repeat it, and are not stored

  // A part of a for all waves, so that memory is read contiguously; or all of it, if this kernel computes its rows.
  constexpr u32 kVectors = kStride / 8, kEach = kRows * kVectors / kThreads;
  constexpr int kSumVectors = kWaves * 4 * kRows * Columns / 4;
  constexpr int kHeld = P::kRowHeight ? kRowBytes / 16 : int(kRows * kVectors);
  static SDX_SHARED vec16 lds[kSumVectors > kHeld ? kSumVectors : kHeld];
  if constexpr (P::kRowHeight != 0) make_rows<P::kBits == 4>(p, (shared_vec*)lds, z, row0, height);
  // A read covers four rows and two blocks, which use all banks.
  const auto place = [&](u32 r, u32 vector) {
    return r * kVectors + (vector ^ (kGroups == 4 ? r : (r & 1) | (r & 2) << 1));
  };

  u32 cols[kTiles];
#pragma clang loop unroll(full)
  for (int t = 0; t < kTiles; ++t) {
    const u32 col = first_col + team * Columns + t * 4 + lane / 16;
    cols[t] = col < p.n ? col : p.n - 1;
  }
  const auto load_a = [&](u32 r, u32 k) {
    vec16 x = {};
    const bool there = k < p.k;
    if constexpr (P::kAccessA == Access::kVector) {
      bool inside = true;
      x = load16(p.a(z, row0 + r, there ? k : 0, inside));
      if (!(inside && there)) x = vec16{};
    } else if (there) {
      f16 e[8] = {};
      p.a_elements(z, row0 + r, k, e);
      __builtin_memcpy(&x, e, 16);
    }
    return P::kBits == 4 ? in_order(x) : x;
  };
  f32 acc[kRows][kTiles] = {};
  const u32 slice = wave % Slices, block = lane / 4;
  const i32 source =
      i32((lane % 4 * 16 + block) * 4);  // of ds_bpermute: the lane that loads this one's column and place
  const auto exchanged = [&](auto x) {
    static_assert(sizeof x == 4);
    return bit_cast<decltype(x)>(__builtin_amdgcn_ds_bpermute(source, bit_cast<i32>(x)));
  };
  // A round is 16 bytes of each of a lane's columns.
  for (u32 first = 0; first < p.k; first += kStride) {
    const u32 at = first + slice * kSpan + block * kRun, loaded = first + slice * kSpan + lane % 16 * kRun;
    const bool there = at < p.k;
    const u32 k = there ? at : 0, from = loaded < p.k ? loaded : 0;
    vec16 part[kEach], w[kTiles];
    f32 scale[kTiles], zero[kTiles];
    if constexpr (P::kRowHeight == 0)
#pragma clang loop unroll(full)
      for (u32 i = 0; i < kEach; ++i) {
        const u32 v = thread_id() + i * kThreads, r = v / kVectors;
        part[i] = load_a(r < height ? r : height - 1, first + v % kVectors * 8);
      }
#pragma clang loop unroll(full)
    for (int t = 0; t < kTiles; ++t) {
      w[t] = load16(p.b_packed(z, cols[t], from));
      p.b_block(z, cols[t], from, scale[t], zero[t]);
    }
    loads_in_flight();
    if constexpr (P::kRowHeight == 0) {
      if (first > 0) lds_barrier();  // the part before has been read
#pragma clang loop unroll(full)
      for (u32 i = 0; i < kEach; ++i) {
        const u32 v = thread_id() + i * kThreads;
        lds[place(v / kVectors, v % kVectors)] = part[i];
      }
      lds_barrier();
    }
#pragma clang loop unroll(full)
    for (int t = 0; t < kTiles; ++t) {
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; ++i) w[t][i] = exchanged(w[t][i]);
      scale[t] = exchanged(scale[t]);
      if (!__builtin_constant_p(zero[t])) zero[t] = exchanged(zero[t]);
    }
    sums4 blocks[kTiles] = {};
#pragma clang loop unroll(full)
    for (int g = 0; g < kGroups; ++g) {
      vec16 a;
      if constexpr (P::kRowHeight != 0)
        a = lds[place_row(row, k / 8 + g, p.k)];
      else
        a = lds[place(lane % 4, (slice * 16 + block) * kGroups + g)];
#pragma clang loop unroll(full)
      for (int t = 0; t < kTiles; ++t) {
        const vec16 y = dequantized<f16, P::kBits, P::kSigned, P::kFloatZeros>(
            w[t][g * kWords], w[t][g * kWords + kWords - 1], 1.0f, zero[t]);
        struct Halves {
          half4 low, high;
        };
        const Halves left = bit_cast<Halves>(a), right = bit_cast<Halves>(y);
        blocks[t] = __builtin_amdgcn_mfma_f32_4x4x4f16(left.low, right.low, blocks[t], 0, 0, 0);
        blocks[t] = __builtin_amdgcn_mfma_f32_4x4x4f16(left.high, right.high, blocks[t], 0, 0, 0);
      }
    }
#pragma clang loop unroll(full)
    for (int t = 0; t < kTiles; ++t) {
      const f32 s = there ? scale[t] : 0.0f;
#pragma clang loop unroll(full)
      for (int r = 0; r < kRows; ++r) acc[r][t] = fma(blocks[t][r], s, acc[r][t]);
    }
  }
  lds_barrier();  // a has been read
  // A lane has sums of column lane % 4 of each tile, of its block.
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r)
#pragma clang loop unroll(full)
    for (int t = 0; t < kTiles; ++t) {
      acc[r][t] += from_lanes<0x128>(acc[r][t]);  // row_ror:8
      acc[r][t] += from_lanes<0x124>(acc[r][t]);  // row_ror:4
    }
  add_up_rows<Slices, Columns>(p, (shared_f32*)lds, acc, z, row0, height, first_col);
}

}  // namespace sdx
#endif
