// Sizes that routines' kernels and the library that launches them agree on. Freestanding: no includes.
#pragma once

namespace sdx::layout {

inline constexpr int kSortedInShared = 2048;  ///< entries of a row that top-k sorts in shared memory
inline constexpr int kSortChunk = 1024;       ///< rows that `unique` sorts in shared memory
inline constexpr int kFlagsPerThread = 16;    ///< elements that a thread of `nonzero` tests
inline constexpr int kMostOwners = 1024;      ///< groups of `group`
inline constexpr int kRecurrentUnits = 32;    ///< elements of the hidden state that a block computes

}  // namespace sdx::layout
