// How kernels/stream.h lays out shared memory: compiled by the kernel and by the library, which launches it.
// Freestanding: no includes, built-in types only. Sizes are in bytes.
#pragma once

namespace sdx::layout {

/// The ring of stages, the row of A, partial sums, sums for the zero points, barriers.
struct StreamLayout {
  static constexpr long kTile = 16;   ///< columns of an instruction
  static constexpr long kPart = 128;  ///< bytes of a column in a stage that one warp reads
  long warps;                         ///< warps that multiply; one more copies
  long tiles;                         ///< groups of kTile columns that a block processes at a time
  long stages;
  long bits;               ///< of a weight
  bool scale_acc;          ///< scales are applied to sums rather than to weights
  long column_bytes;       ///< bytes of a column in a stage
  long column_stages;      ///< stages that a whole column takes
  long scale_vectors;      ///< vectors of 16 bytes that share a scale
  bool scales_contiguous;  ///< the scales of 16 columns are contiguous, and copied at once

  constexpr long depth() const { return column_bytes * 8 / bits * column_stages; }
  constexpr long threads() const { return warps * 32 + 32; }
  /// Stride of columns, padded so that lanes that read together use all banks.
  constexpr long pitch() const { return column_bytes + (scale_acc ? 16 : 64); }
  constexpr long scale_bytes() const { return bits == 16 ? 0 : column_bytes / 8 / scale_vectors; }
  constexpr long scale_pitch() const { return scale_bytes() == 0 ? 0 : scale_bytes() + (scales_contiguous ? 0 : 16); }
  constexpr long stage_bytes() const { return kTile * (pitch() + scale_pitch()); }
  constexpr long row_at() const { return stages * stage_bytes(); }
  constexpr long acc_at() const { return row_at() + depth() * 2; }
  constexpr long totals_at() const { return acc_at() + warps * kTile * tiles * 4; }
  constexpr long barriers_at() const { return totals_at() + (scale_acc ? depth() / 32 * 4 : 0); }
  constexpr long bytes() const { return barriers_at() + stages * 16; }
};

}  // namespace sdx::layout
