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
  long bits;      ///< of a weight
  bool after;     ///< scales are applied to sums rather than to weights
  long piece;     ///< bytes of a column in a stage
  long pieces;    ///< stages that a whole column takes
  long of_scale;  ///< vectors of 16 bytes that share a scale
  bool together;  ///< the scales of 16 columns are contiguous, and copied at once

  constexpr long depth() const { return piece * 8 / bits * pieces; }
  constexpr long threads() const { return warps * 32 + 32; }
  /// Stride of columns, padded so that lanes that read together use all banks.
  constexpr long pitch() const { return piece + (after ? 16 : 64); }
  constexpr long scale_bytes() const { return bits == 16 ? 0 : piece / 8 / of_scale; }
  constexpr long scale_pitch() const { return scale_bytes() == 0 ? 0 : scale_bytes() + (together ? 0 : 16); }
  constexpr long stage_bytes() const { return kTile * (pitch() + scale_pitch()); }
  constexpr long row_at() const { return stages * stage_bytes(); }
  constexpr long sums_at() const { return row_at() + depth() * 2; }
  constexpr long totals_at() const { return sums_at() + warps * kTile * tiles * 4; }
  constexpr long barriers_at() const { return totals_at() + (after ? depth() / 32 * 4 : 0); }
  constexpr long bytes() const { return barriers_at() + stages * 16; }
};

}  // namespace sdx::layout
