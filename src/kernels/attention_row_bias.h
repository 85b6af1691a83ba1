// For attention_wgmma.h: a 16-bit tensor that is added to the scores, contiguous along the keys. It is fetched a tile
// ahead, two elements in a register, so that the softmax does not wait for memory.
#pragma once
#include "attention_tiles.h"

#if defined(__NVPTX__)
namespace sdx {

/// P::Bias, where there is one.
template <class P>
struct BiasOf {
  using Type = f16;
};
template <class P>
  requires(P::kBias != 0)
struct BiasOf<P> {
  using Type = typename P::Bias;
};

/// What a lane needs of a tile of 2 * kScores keys: of two rows, two of every eight elements.
template <class Bias, int kScores>
struct RowBias {
  static constexpr int kWords = kScores / 2;
  const u32* row[2];  // at the lane's first two elements, aligned down
  u32 odd[2];         // 1: the row begins with the second half of a word
  bool shifted;       // whether any row of the warp is odd
  u32 held[kWords + 2];

  /// low and high: element 0 of the two rows.
  SDX_FN void begin(const Bias* low, const Bias* high, u32 lane) {
    const u64 at[2] = {u64(low), u64(high)};
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      odd[k] = at[k] >> 1 & 1;
      row[k] = (const u32*)(at[k] & ~u64(3)) + lane % 4;
    }
    // Marked as uniform for ptxas.
    shifted = __nvvm_shfl_sync_idx_i32(~0u, i32(detail::any_lane((odd[0] | odd[1]) != 0)), 0, 31) != 0;
  }
  /// For the tile of keys from the even number t0 on. left: keys from the lane's first one to the end. Words without
  /// elements of the row become 0; the caller masks what they are added to. The last word of the tensor may have only
  /// one element of it: device memory is allocated in more than words, so the other half can be read.
  SDX_FN void fetch(i32 t0, i32 left) {
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      const i32 end = left + i32(odd[k]);
      const u32* from = row[k] + u32(t0) / 2;
#pragma clang loop unroll(full)
      for (int i = 0; i < kWords; i += 2) held[i + k] = i * 4 < end ? from[i * 2] : 0;
      if (shifted) held[kWords + k] = kWords * 4 < end ? from[kWords * 2] : 0;
    }
  }
  /// The two elements of held[i]: in an odd row, halves of this word and the next, which another lane of four has.
  SDX_FN u32 pair(int i, u32 lane) const {
    if (!shifted) return held[i];
    const i32 own = i32(lane % 4 == 0 ? held[i + 2] : held[i]);
    const u32 next = __nvvm_shfl_sync_idx_i32(~0u, own, i32((lane & ~3u) | ((lane + 1) & 3)), 31);
    return __nvvm_prmt(held[i], next, odd[i % 2] ? 0x5432 : 0x3210);
  }
};

}  // namespace sdx
#endif
