// How GEMM kernels lay out shared memory and threads: compiled by the kernels and by the library, which launches them.
// Freestanding: no includes, built-in types only. Sizes are in bytes where nothing else is said.
#pragma once

namespace sdx::layout {

/// Columns that each thread of gemm_finish() computes.
inline constexpr int kFinishColumns = 4;
/// Shared memory in which gemm_skinny keeps the rows that it normalises itself.
inline constexpr int kSkinnyRowBytes = 32768;
/// Shared memory through which eight warps store their sums: 16 rows of 64 float32 columns each, padded by 4 columns.
inline constexpr int kStoreBytes = 8 * 16 * (64 + 4) * 4;
/// Bytes of K in a stage: the span of wgmma's swizzle.
inline constexpr int kStageRow = 128;
/// Elements of K in a stage.
constexpr int stage_depth(int element_bytes) { return kStageRow / element_bytes; }

/// gemm_wgmma<n, stages, slices>: with two slices, two warpgroups divide the K of each stage (sliced-K).
struct WgmmaLayout {
  int n, slices;
  constexpr int rows() const { return 128 / slices; }
  constexpr int stage_bytes() const { return slices * (rows() + n) * kStageRow; }
  constexpr int bytes(int stages) const {
    return stages * stage_bytes() > kStoreBytes ? stages * stage_bytes() : kStoreBytes;
  }
};

/// gemm_tma<TmaTiling<m, n, pingpong, stages, splits>>: stages, their barriers, then memory for storing sums.
struct TmaLayout {
  int m, n;
  bool pingpong;  ///< warpgroups alternate between tiles; otherwise each computes half of every tile
  int stages, splits;
  constexpr int stage_bytes() const { return (m + n) * kStageRow; }
  /// A stage and its two barriers.
  constexpr int step_bytes() const { return stage_bytes() + 16; }
  constexpr int store_at() const { return (stages * step_bytes() + 127) / 128 * 128; }
  /// full_columns: N is a multiple of 8, so that sums are stored from registers.
  constexpr int bytes(bool full_columns) const { return store_at() + (full_columns ? 0 : kStoreBytes); }
  // A warpgroup's part of the tile.
  constexpr bool splits_n() const { return !pingpong && m == 64; }
  constexpr int group_m() const { return pingpong || splits_n() ? m : m / 2; }
  constexpr int group_n() const { return splits_n() ? n / 2 : n; }
  /// Whether sums and the epilogue's reads need more than 168 registers. Then a whole warpgroup issues the copies, so
  /// that it can release its registers to the others (setmaxnreg).
  constexpr bool trades_registers() const { return group_m() / 64 * group_n() / 2 >= 128; }
  constexpr int threads() const { return trades_registers() ? 384 : 288; }
  /// With split-K, what the other thread blocks of a cluster send to one: each group of 32 columns has one owner, and
  /// of 64 rows of such a group each of 256 threads has four vectors of 16 bytes.
  constexpr int owned_columns() const { return (group_n() / 32 + splits - 1) / splits; }
  constexpr int exchanged_bytes() const { return (splits - 1) * owned_columns() * (group_m() / 64) * 4 * 4096; }
};

/// gemm_packed<rows, stages, ahead, splits>: stages of the rows, the sums of a tile, then the stages' barriers.
struct PackedLayout {
  static constexpr int kCols = 128;         ///< columns of a tile
  static constexpr int kPitch = kCols + 4;  ///< of the sums, in floats
  int rows, stages, bits;
  constexpr int stage_bytes() const { return rows * 4 * (128 / bits) * 2; }
  constexpr int sums_at() const { return stages * stage_bytes(); }
  constexpr int barriers_at() const { return sums_at() + rows * kPitch * 4; }
  constexpr int bytes() const { return barriers_at() + stages * 16; }
};

/// packed_ring<groups, rows, stages, splits, scale_vectors>: stages (packed weights, then rows), the stages' scales and
/// barriers. The sums of the tile replace the stages.
struct PackedRingLayout {
  static constexpr int kBytes = 128;  ///< packed weights of a column in a stage
  int groups, rows, stages, bits, scale_vectors;
  constexpr int cols() const { return groups * 64; }
  constexpr int pitch() const { return cols() + 4; }  ///< of the sums, in floats
  constexpr int threads() const { return groups * 64 + 128; }
  /// Elements of K in a stage.
  constexpr int depth() const { return kBytes * 8 / bits; }
  constexpr int packed_bytes() const { return cols() * kBytes; }
  constexpr int stage_bytes() const { return packed_bytes() + rows * depth() * 2; }
  /// Of the scales of a column in a stage.
  constexpr int scale_bytes() const { return kBytes / 16 / scale_vectors * 2; }
  constexpr int scales_at(int stage) const { return stages * stage_bytes() + stage * cols() * scale_bytes(); }
  constexpr int barriers_at() const {
    const int sums = rows * pitch() * 4;
    return scales_at(stages) > sums ? scales_at(stages) : sums;
  }
  constexpr int bytes() const { return barriers_at() + stages * 16; }
};

}  // namespace sdx::layout
