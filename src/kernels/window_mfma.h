// Windows whose channels are not mixed (depthwise convolutions) on CDNA's smallest matrix instruction, which multiplies
// 4 rows by 4 columns in each of 16 blocks (AMDGPU ISA: V_MFMA_F32_4X4X4_16B_F16). A block has one channel of one
// image. Its rows are four neighbouring outputs of a row of the image, its columns four groups of them, and K are
// four neighbouring elements of a row:
//
//   out[x + i] = sum over k of taps[k - kFirst - kStep * i] * in[kStep * x - pad - kFirst + k]
//
// So the first operand has the taps of one row of the window, shifted by kStep for each output, with zeros around them;
// it is the same for all places of an image. The second one is read from memory as it is. A window of 7 x 7 takes 21
// instructions of 8 cycles for 256 outputs, where vector arithmetic takes 196 of 4.
#pragma once
#include "matrix.h"
#include "unroll.h"

#if defined(__GFX9__)
namespace sdx {

/// Four elements of 16 bits.
using Four = vec<u32, 2>;

template <class T>
SDX_FN vec<f32, 4> add_product(Four taps, Four image, vec<f32, 4> sums) {
  if constexpr (is_same<T, f16>)
    return __builtin_amdgcn_mfma_f32_4x4x4f16(bit_cast<vec<f16, 4>>(taps), bit_cast<vec<f16, 4>>(image), sums, 0, 0, 0);
  else
    return __builtin_amdgcn_mfma_f32_4x4x4bf16_1k(bit_cast<vec<i16, 4>>(taps), bit_cast<vec<i16, 4>>(image), sums, 0, 0,
                                                  0);
}

/// The first operands of this lane's channel, for windows of kHeight x kWidth taps.
template <int kHeight, int kWidth, int kStep, int kFirst>
struct WindowTaps {
  static constexpr int kFours = (kFirst + 3 * kStep + kWidth + 3) / 4;  ///< of a row of the image
  static constexpr int kWords = (kWidth + 1) / 2;
  Four of[kHeight][kFours];

  /// `row`: words of a row of taps, the last one filled with 0.
  SDX_FN void set_row(int y, const u32 (&row)[kWords]) {
    const auto word = [&](int k) { return k < 0 || k >= kWords ? 0u : row[k]; };
    const int shift = kFirst + kStep * int(thread_id() % 4), half = (shift + 1) / 2;
    u32 shifted[kWords + 1];  // shifted[k]: words k - 1 and k of the row, by one element if `shift` is odd
#pragma clang loop unroll(full)
    for (int k = 0; k <= kWords; ++k)
      shifted[k] = __builtin_amdgcn_alignbit(word(k), word(k - 1), u32(shift % 2) * 16);
    u32 words[2 * kFours];
#pragma clang loop unroll(full)
    for (int k = 0; k < 2 * kFours; ++k) {
      const auto at = [&](int h) { return k + 1 - h < 0 || k + 1 - h > kWords ? 0u : shifted[k + 1 - h]; };
      words[k] = at((kFirst + 1) / 2);
#pragma clang loop unroll(full)
      for (int i = 1; i < 4; ++i) {
        const int h = (kFirst + kStep * i + 1) / 2;
        if (h != (kFirst + kStep * (i - 1) + 1) / 2) words[k] = half == h ? at(h) : words[k];
      }
    }
#pragma clang loop unroll(full)
    for (int k = 0; k < kFours; ++k) of[y][k] = Four{words[2 * k], words[2 * k + 1]};
  }

  /// `taps`: those of the channel, one after another.
  template <class T>
  SDX_FN void load(const T* taps) {
    constexpr int kAll = kHeight * kWidth, kPack = kAll < 8 ? kAll < 4 ? 1 : 4 : 8;
    u16 all[kAll + 1];
#pragma clang loop unroll(full)
    for (int k = 0; k < (kAll + kPack - 1) / kPack; ++k) {
      const int first = k * kPack < kAll - kPack ? k * kPack : kAll - kPack;  // the last pack overlaps
      const auto pack = load_pack<kPack>(taps + first);
#pragma clang loop unroll(full)
      for (int l = 0; l < kPack; ++l) all[first + l] = pack[l];
    }
    all[kAll] = 0;
    set(all);
  }
  /// `all`: the taps, and a zero.
  SDX_FN void set(const u16 (&all)[kHeight * kWidth + 1]) {
#pragma clang loop unroll(full)
    for (int y = 0; y < kHeight; ++y) {
      u32 row[kWords];
#pragma clang loop unroll(full)
      for (int k = 0; k < kWords; ++k)
        row[k] = all[y * kWidth + 2 * k] | u32(2 * k + 1 < kWidth ? all[y * kWidth + 2 * k + 1] : u16(0)) << 16;
      set_row(y, row);
    }
  }
};

/// Where a lane reads four elements of a row that has `width` of them. Packs are completely inside or outside of rows
/// whose width is a multiple of four; of others, the last pack is shifted: it is read where it ends with the row.
template <bool kWhole>
struct RowPlace {
  u32 at;       ///< bytes from the row's begin, or far outside of any buffer
  bool inside;  ///< if not kWhole
  u32 shift;    ///< bits

  SDX_FN RowPlace(i32 x, i32 width) {
    inside = u32(x) < u32(width);
    if constexpr (kWhole) {
      at = inside ? u32(x) * 2 : kOutside;
    } else {
      const i32 beyond = x + 4 - width;
      shift = inside && beyond > 0 ? u32(beyond) * 16 : 0;
      at = inside ? u32(beyond > 0 ? x - beyond : x) * 2 : 0;
    }
  }
  static constexpr u32 kOutside = 0x80000000;
};

/// The image of a lane's channel. Whole: width is a multiple of 4.
template <class T, bool kWhole>
struct WindowImage {
  const T* tensor;
  u32 channel;  ///< byte of the tensor where it begins

  /// Bytes `row` from the channel's begin, the same in all lanes of a wave. Not there: zeros.
  SDX_FN Four load(const RowPlace<kWhole>& place, u32 row, bool there) const {
    if constexpr (kWhole) {
      constexpr u32 kFormat = 0x00020000;  // raw elements of 32 bits
      const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)tensor, 0, RowPlace<kWhole>::kOutside, kFormat);
      const u32 at = place.at == RowPlace<kWhole>::kOutside ? place.at : place.at + channel;
      return __builtin_amdgcn_raw_buffer_load_b64(buffer, at, there ? row : RowPlace<kWhole>::kOutside, 0);
    } else {
      const auto pack = load_pack<4>((const T*)((const char*)tensor + (channel + place.at + (there ? row : 0))));
      return bit_cast<Four>(bit_cast<u64>(pack));
    }
  }
  /// The same after loads_in_flight().
  SDX_FN Four finish(Four x, const RowPlace<kWhole>& place, bool there) const {
    if constexpr (kWhole) return x;
    const auto shifted = bit_cast<Four>(bit_cast<u64>(x) >> place.shift);
    return place.inside && there ? shifted : Four(0u);
  }
};

/// Adds windows of kRows rows of four outputs. `x`, `y`: the image's element that is multiplied with the operands'
/// first one.
template <int kRowStep, int kTapStep, class T, bool kWhole, int kHeight, int kWidth, int kStep, int kFirst, int kRows>
SDX_FN void add_windows(const WindowTaps<kHeight, kWidth, kStep, kFirst>& taps, const WindowImage<T, kWhole>& image,
                        i32 x, i32 width, i32 y, i32 height, u32 row_bytes, vec<f32, 4> (&sums)[kRows]) {
  constexpr int kFours = WindowTaps<kHeight, kWidth, kStep, kFirst>::kFours;
  constexpr int kAll = (kRows - 1) * kRowStep + (kHeight - 1) * kTapStep + 1;
  const auto tap = [](int row, int out) {  // -1: none
    const int d = row - out * kRowStep;
    return d >= 0 && d % kTapStep == 0 && d / kTapStep < kHeight ? d / kTapStep : -1;
  };
  Four in[kAll][kFours];
  each<kFours>([&](auto k) {
    const RowPlace<kWhole> place(x + 4 * k.value, width);
    each<kAll>([&](auto r) { in[r.value][k.value] = image.load(place, u32(y + r.value) * row_bytes, u32(y + r.value) < u32(height)); });
  });
  loads_in_flight();
  each<kFours>([&](auto k) {
    const RowPlace<kWhole> place(x + 4 * k.value, width);
    each<kAll>([&](auto r) {
      const Four four = image.finish(in[r.value][k.value], place, u32(y + r.value) < u32(height));
      each<kRows>([&](auto u) {
        constexpr int t = tap(r.value, u.value);
        if constexpr (t >= 0) sums[u.value] = add_product<T>(taps.of[t][k.value], four, sums[u.value]);
      });
    });
  });
}

/// Adds windows of one dim: kGroups neighbouring groups of four outputs.
template <class T, bool kWhole, int kWidth, int kStep, int kFirst, int kGroups>
SDX_FN void add_windows(const WindowTaps<1, kWidth, kStep, kFirst>& taps, const WindowImage<T, kWhole>& image, i32 x,
                        i32 width, vec<f32, 4> (&sums)[kGroups]) {
  constexpr int kFours = WindowTaps<1, kWidth, kStep, kFirst>::kFours, kAll = (kGroups - 1) * kStep + kFours;
  Four in[kAll];
  each<kAll>([&](auto r) { in[r.value] = image.load(RowPlace<kWhole>(x + 4 * r.value, width), 0, true); });
  loads_in_flight();
  each<kAll>([&](auto r) {
    const Four four = image.finish(in[r.value], RowPlace<kWhole>(x + 4 * r.value, width), true);
    each<kGroups>([&](auto u) {
      constexpr int t = r.value - u.value * kStep;
      if constexpr (t >= 0 && t < kFours) sums[u.value] = add_product<T>(taps.of[0][t], four, sums[u.value]);
    });
  });
}

/// The last group of a row that is no multiple of four ends with the row: kShared of its outputs are also the last
/// ones of the group before.
template <int kShared>
SDX_FN vec<f32, 4> moved_back(vec<f32, 4> sums, vec<f32, 4> before, bool last) {
  vec<f32, 4> x = sums;
#pragma clang loop unroll(full)
  for (int l = 0; l < 4; ++l) {
    const f32 moved = l < kShared ? before[4 - kShared + l] : sums[l - kShared];
    x[l] = last ? moved : sums[l];
  }
  return x;
}
/// Sums of the group before, which the lane before has.
SDX_FN vec<f32, 4> from_lane_before(vec<f32, 4> x) { return from_lanes<0x111>(x); }  // row_shr:1

}  // namespace sdx
#endif
