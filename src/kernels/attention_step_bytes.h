// Tiles of a KV cache in 8 bits, for attention_step_mma.h: a warp loads them to registers and converts them for the
// matrix instructions.
#pragma once
#include "attention_step_instructions.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace sdx {

/// A lane's part of a tile of 16 keys and values: 16 elements of a row each. Rows: how T lie in shared memory, values
/// kTileVectors after keys.
template <class T, class Stored, u32 kDim, class Rows, u32 kTileVectors>
struct StepBytes {
  static constexpr u32 kRow = kDim / 16;
  vec16 keys[kDim / 32], values[kDim / 32];

  /// Loads the rows from `first` on, below `end`.
  static SDX_FN StepBytes fetch(const Stored* keys, const Stored* values, u32 first, u32 end) {
    StepBytes held;
#pragma clang loop unroll(full)
    for (u32 i = 0; i < kDim / 32; ++i) {
      const u32 at = i * kWave + thread_id() % kWave, row = at / kRow, chunk = at % kRow;
      const bool there = first + row < end;
      const u64 from = u64(there ? first + row : 0) * kDim + chunk * 16;
      held.keys[i] = *(const vec16*)__builtin_assume_aligned(keys + from, 16);
      held.values[i] = *(const vec16*)__builtin_assume_aligned(values + from, 16);
    }
    return held;
  }

  /// Converts what fetch() has loaded, and stores it.
  SDX_FN void place(detail::shared_ptr<vec16> to) const {
#pragma clang loop unroll(full)
    for (u32 i = 0; i < kDim / 32; ++i) {
      const u32 at = i * kWave + thread_id() % kWave, row = at / kRow, chunk = at % kRow * 2;
#pragma clang loop unroll(full)
      for (u32 half = 0; half < 2; ++half) {
        to[Rows::at(row, chunk + half)] = converted(keys[i], half);
        to[kTileVectors + Rows::at(row, chunk + half)] = converted(values[i], half);
      }
    }
  }

  /// Eight of 16 elements of 8 bits as T.
  static SDX_FN vec16 converted(const vec16& bytes, u32 half) {
    struct Words {
      u32 x[4];
    };
    const auto from = bit_cast<Words>(bytes);
    Words to;
#pragma clang loop unroll(full)
    for (u32 k = 0; k < 2; ++k) detail::widened<T, Stored>(from.x[half * 2 + k], to.x[k * 2], to.x[k * 2 + 1]);
    return bit_cast<vec16>(to);
  }
};

}  // namespace sdx
#endif
