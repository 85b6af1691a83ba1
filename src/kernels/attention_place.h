// Where attention on CDNA 4 has keys and values in LDS, to which loads of 16 bytes a lane bring them without registers.
// Part of the kernel of attention_direct.h.
#pragma once
#include "attention_operands.h"

namespace sdx {

template <int kD>
struct AttentionPlace;

#if defined(SDX_LOADS_TO_LDS)

/// A tile of 64 keys (or values) of kD 16-bit elements. A wave's load fills a block of 1 KiB: lanes are contiguous,
/// rows are whole. Blocks are kBlock bytes apart, so that rows of different blocks use different banks; rows that LDS
/// serves together are in different blocks. Then no address is swizzled, and all reads of a wave are at constant
/// offsets from one address.
///
/// Key 32 w + 8 (x / 4) + x % 4 + more(y), with x < 8, y < 4 and w the wave's half of the tile, is row y of block x, or
/// with 128 elements of block x + 8 w; with 64 elements it is row y + 4 w of block x.
template <int kD>
struct AttentionPlace {
  static constexpr u32 kRow = kD * 2, kBlock = 1024 + 32, kRowsOfBlock = 1024 / kRow, kBlocks = 64 / kRowsOfBlock,
                       kBytes = kBlocks * kBlock, kLanesOfRow = 64 / kRowsOfBlock;
  static constexpr bool kHalves = kRowsOfBlock == 8;  // a block has rows of both halves

  /// The key (of the tile) in row `row` of block `block`.
  template <bool IsValue>
  static SDX_FN u32 key(u32 block, u32 row) {
    const u32 x = block % 8, y = row % 4, w = kHalves ? row / 4 : block / 8;
    return w * 32 + x / 4 * 8 + x % 4 + (IsValue ? y / 2 * 16 + y % 2 * 4 : y % 2 * 16 + y / 2 * 4);
  }
  static constexpr u32 kHalf = kHalves ? 4 * kRow : 8 * kBlock;  // between the same rows of both halves, in bytes
  static SDX_FN u32 at(u32 x, u32 y, u32 w) { return x * kBlock + y * kRow + w * kHalf; }
  // Operands of the first GEMM: row r of key tile j, which is key j / 2 * 32 + r / 4 * 8 + j % 2 * 4 + r % 4.
  /// Where the lane's operands begin, in bytes.
  static SDX_FN u32 keys_of(u32 lane, u32 w) {
    const u32 r = lane % 16;
    return at(r % 8, r / 8, w) + lane / 16 * 16;
  }
  /// The operand of key tile j and K step s, in vectors of 16 bytes from there.
  static SDX_FN constexpr u32 key_at(u32 j, u32 s) { return (j / 2 * kHalf + j % 2 * 2 * kRow + s * 64) / 16; }
  // Operands of the second GEMM: element lane % 16 of a tile of 16 elements, of keys lane / 16 * 8 to + 7 of the
  // wave's. A load of 8 bytes transposes blocks of 16 lanes: lane l of a block loads elements l % 4 * 4 to + 3 of key l
  // / 4, and gets element l of four keys.
  static SDX_FN u32 values_of(u32 lane, u32 w) {
    const u32 r = lane % 16 / 4, b = lane / 16;
    return at(r + b % 2 * 4, b / 2 * 2, w) + lane % 4 * 8;
  }
  /// The operand of elements 16 d to 16 d + 15, of half `half` of the keys from there.
  static SDX_FN vec16 value(detail::shared_ptr<vec16> from, u32 d, u32 half) {
    using Four = vec<i16, 4>;
    using Pointer = detail::shared_ptr<Four>;
    const auto bytes = (detail::shared_ptr<char>)from + (d * 32 + half * kHalf);
    const Four low = __builtin_amdgcn_ds_read_tr16_b64_v4i16((Pointer)bytes),
               high = __builtin_amdgcn_ds_read_tr16_b64_v4i16((Pointer)(bytes + kRow));
    return bit_cast<vec16>(__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
  }
};

#endif

}  // namespace sdx
