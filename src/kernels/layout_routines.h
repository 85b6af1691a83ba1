// Sizes that routines' kernels and the library that launches them agree on. Freestanding: no includes.
#pragma once

namespace sdx::layout {

inline constexpr int kSortedInShared = 2048;  ///< entries of a row that top-k sorts in shared memory
inline constexpr int kTopkInWave = 32;        ///< up to so many of a short row are found by one wave,
inline constexpr int kTopkRow = 1024;         ///< if the row has no more elements than this
inline constexpr int kTopkPart = 4096;        ///< elements of a long row of which a workgroup finds 512,
inline constexpr int kTopkHeld = 4096;        ///< and the most that a workgroup has in registers, or sorts if all are
inline constexpr int kRankedItems = 16;       ///< of a long row, whose places a workgroup counts
inline constexpr int kScanNeighbours = 32;    ///< lines next to each other that are scanned together
inline constexpr int kScanInWave = 2048;      ///< elements of a line that a wave scans,
inline constexpr int kScanPart = 8192;        ///< and of a part of a long line that a workgroup does
inline constexpr int kScanLanes = 8;          ///< neighbouring threads that scan columns, of 8 bytes each,
inline constexpr int kMoreScanLanes = 32;     ///< or so many
inline constexpr int kScanSegment = 16;       ///< rows of a thread that scans columns
inline constexpr int kSortChunk = 1024;       ///< rows that `unique` sorts in shared memory
inline constexpr int kFlagsPerThread = 16;    ///< elements that a thread of `nonzero` tests
inline constexpr int kMostOwners = 1024;      ///< groups of `group`

/// Tiles of 16 units of a workgroup of routines_recurrent_step_tiles.h, and of 16 sequences: more, if there are many.
inline constexpr int kRecurrentUnitTiles = 4, kRecurrentSequenceTiles = 2, kMoreRecurrentSequenceTiles = 8;

}  // namespace sdx::layout
