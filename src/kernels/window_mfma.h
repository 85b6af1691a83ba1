// Windows whose channels are not mixed (depthwise convolutions) on CDNA's smallest matrix instruction, which multiplies
// 4 rows by 4 columns in each of 16 blocks (AMDGPU ISA: V_MFMA_F32_4X4X4_16B_F16). A block has one channel of one
// image. Its rows are four neighbouring outputs of a row of the image, its columns four groups of them, and K are
// four neighbouring elements of a row:
//
//   out[x + i] = sum over k of taps[k - kFirst - kStep * i] * in[kStep * x - pad - kFirst + k]
//
// So the first operand has the taps of one row of the window, shifted by kStep for each output, with zeros around them;
// it is the same for all places of an image. The second one is read from memory as it is. A window of 7 x 7 takes 21
// instructions of 8 cycles for 256 outputs, where vector arithmetic takes 196 of 4. An infinity or NaN of the image
// also reaches outputs whose windows end up to a few elements before it in the row, or begin after it: it is multiplied
// by 0.
#pragma once
#include "matrix.h"

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

/// x of lane `lane` of four, a constant after unrolling.
template <class T>
SDX_FN T from_lane_of_four(T x, int lane) {
  return lane == 0   ? from_lanes<0x00>(x)  // quad_perm
         : lane == 1 ? from_lanes<0x55>(x)
         : lane == 2 ? from_lanes<0xaa>(x)
                     : from_lanes<0xff>(x);
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
    for (int k = 0; k <= kWords; ++k) shifted[k] = __builtin_amdgcn_alignbit(word(k), word(k - 1), u32(shift % 2) * 16);
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

  static constexpr int kAll = kHeight * kWidth, kPacks = (kAll + 7) / 8;
  vec16 packs[(kPacks + 3) / 4];
  static constexpr int first_of(int pack) { return pack * 8 < kAll - 8 ? pack * 8 : kAll - 8; }  // the last overlaps

  /// `taps`: those of the channel, one after another. Its four lanes load a pack each.
  template <class T>
  SDX_FN void load(const T* taps) {
    static_assert(kAll >= 8);
#pragma clang loop unroll(full)
    for (int k = 0; k < (kPacks + 3) / 4; ++k)
      packs[k] = bit_cast<vec16>(load_pack<8>(taps + first_of(4 * k + int(thread_id() % 4))));
    loads_in_flight();  // before others
  }
  /// The lanes exchange them.
  SDX_FN void finish() {
    u16 all[kAll + 1];
#pragma clang loop unroll(full)
    for (int k = 0; k < kPacks; ++k) {
      const auto pack = bit_cast<vec<u16, 8>>(from_lane_of_four(packs[k / 4], k % 4));
#pragma clang loop unroll(full)
      for (int l = 0; l < 8; ++l) all[first_of(k) + l] = pack[l];
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

/// Adds the products of four elements, those number k of row r, to all sums that they are part of. Both numbers are
/// constants after unrolling.
template <int kRowStep, int kTapStep, class T, int kHeight, int kWidth, int kStep, int kFirst, int kRows, int kGroups>
SDX_FN void add_four(const WindowTaps<kHeight, kWidth, kStep, kFirst>& taps, Four four, int r, int k,
                     vec<f32, 4> (&sums)[kRows][kGroups]) {
#pragma clang loop unroll(full)
  for (int v = 0; v < kRows; ++v) {
    const int d = r - v * kRowStep;
    if (d < 0 || d % kTapStep != 0 || d / kTapStep >= kHeight) continue;
#pragma clang loop unroll(full)
    for (int u = 0; u < kGroups; ++u) {
      const int t = k - u * kStep;
      if (t >= 0 && t < WindowTaps<kHeight, kWidth, kStep, kFirst>::kFours)
        sums[v][u] = add_product<T>(taps.of[d / kTapStep][t], four, sums[v][u]);
    }
  }
}

/// Where a lane reads neighbouring groups of four elements, of a row that has `width`. Whole: width is a multiple of
/// four, so that each group is inside or outside. Otherwise the last group is read where it ends with the row, and
/// shifted.
template <bool kWhole>
struct RowPlace {
  static constexpr u32 kOutside = 0x80000000;
  u32 at;  ///< bytes from the row's begin, or outside of any buffer
  bool inside;
  u32 shift;  ///< bits, if not kWhole

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
};

/// The image of a lane's channel.
template <class T, bool kWhole>
struct WindowImage {
  const T* tensor;
  u32 channel;  ///< byte of the tensor where it begins
  u32 bytes;    ///< of the tensor

  /// `row`: bytes from the channel's begin, the same in all lanes of a wave. Not there: zeros.
  template <int kCount>
  SDX_FN void load(Four (&to)[kCount], i32 x, i32 width, u32 row, bool there) const {
    const RowPlace<kWhole> place(x, width);
    if constexpr (kWhole) {
      constexpr u32 kFormat = 0x00020000;  // raw elements of 32 bits
      const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)tensor, 0, bytes, kFormat);
      // All in one offset: a scalar one is not part of the check for the buffer's end.
      const u32 at = place.inside & there ? place.at + channel + row : RowPlace<kWhole>::kOutside;
      if constexpr (kCount == 2) {
        const vec16 both = __builtin_amdgcn_raw_buffer_load_b128(buffer, at, 0, 0);
        to[0] = both.xy, to[1] = both.zw;
      } else {
        to[0] = __builtin_amdgcn_raw_buffer_load_b64(buffer, at, 0, 0);
      }
    } else {
      static_assert(kCount == 1);
      const auto pack = load_pack<4>((const T*)((const char*)tensor + (channel + place.at + (there ? row : 0))));
      to[0] = bit_cast<Four>(pack);
    }
  }
  /// The same after loads_in_flight(). `second`: of two groups.
  SDX_FN Four finish(Four x, i32 at, i32 width, bool there, bool second) const {
    const RowPlace<kWhole> place(at, width);
    if constexpr (kWhole) return second && !place.inside ? Four(0u) : x;
    const auto shifted = bit_cast<Four>(bit_cast<u64>(x) >> place.shift);
    return place.inside && there ? shifted : Four(0u);
  }
};

/// Adds windows of kGroups neighbouring groups of four outputs, of kRows rows. `x`, `y`: the image's element that is
/// multiplied with the operands' first one. The first kLead groups of four elements may be before the row; those after
/// them are loaded in pairs.
template <int kRowStep, int kTapStep, int kLead, class T, bool kWhole, int kHeight, int kWidth, int kStep, int kFirst,
          int kRows, int kGroups>
SDX_FN void add_windows(WindowTaps<kHeight, kWidth, kStep, kFirst>& taps, const WindowImage<T, kWhole>& image, i32 x,
                        i32 width, i32 y, i32 height, u32 row_bytes, vec<f32, 4> (&sums)[kRows][kGroups]) {
  constexpr int kTaps = WindowTaps<kHeight, kWidth, kStep, kFirst>::kFours, kFours = (kGroups - 1) * kStep + kTaps;
  constexpr int kAll = (kRows - 1) * kRowStep + (kHeight - 1) * kTapStep + 1;
  const auto paired = [](int k) { return kWhole && k >= kLead && (k - kLead) / 2 * 2 + 1 + kLead < kFours; };
  const auto second = [&](int k) { return paired(k) && (k - kLead) % 2 == 1; };
  Four in[kFours][kAll];
#pragma clang loop unroll(full)
  for (int k = 0; k < kFours; ++k)
#pragma clang loop unroll(full)
    for (int r = 0; r < kAll; ++r) {
      const u32 row = u32(y + r) * row_bytes;
      const bool there = u32(y + r) < u32(height);
      if (!paired(k)) {
        Four to[1];
        image.load(to, x + 4 * k, width, row, there);
        in[k][r] = to[0];
      } else if (!second(k)) {
        if constexpr (kWhole) {
          Four to[2];
          image.load(to, x + 4 * k, width, row, there);
          in[k][r] = to[0], in[k + 1][r] = to[1];
        }
      }
    }
  loads_in_flight();
  taps.finish();
#pragma clang loop unroll(full)
  for (int k = 0; k < kFours; ++k)
#pragma clang loop unroll(full)
    for (int r = 0; r < kAll; ++r)
      add_four<kRowStep, kTapStep, T>(
          taps, image.finish(in[k][r], x + 4 * k, width, u32(y + r) < u32(height), second(k)), r, k, sums);
}

/// Channel c's elements of two pixels, or taps, that have two channels each.
SDX_FN u32 of_channel(u32 pixel, u32 next, int c) {
  return __builtin_amdgcn_perm(next, pixel, c == 0 ? 0x05040100u : 0x07060302u);
}

/// Windows of images whose channels are last. A wave has 32 channels, a lane two neighbouring ones, of which it adds
/// windows as above. Pixels, taps and results are moved by four lanes with eight channels each, 16 bytes, and come
/// through LDS, where each wave has a part of its own. kApart: elements between taps. kPasses: how often 16 lanes load
/// groups of four pixels for a row of the wave's image.
template <int kApart, int kPasses, class T, int kHeight, int kWidth, int kStep>
struct ChannelsLast {
  using Taps = WindowTaps<kHeight, kWidth, kStep, 0>;
  template <class U>
  using Shared = __attribute__((address_space(3))) U;
  static constexpr int kTaps = kHeight * kWidth, kLoads = (kTaps + 15) / 16;
  // Groups of four pixels: of a lane's eight channels when they are stored, of two neighbouring ones when they are
  // read. Bytes between channels, and more after eight of them, so that no bank is used twice.
  static constexpr u32 kChannel = 128 * kPasses + 16, kSkew = 32;
  static constexpr u32 kPixel = 144;  // between results
  static constexpr u32 kTap = 64;
  static constexpr u32 kGroupBytes = 32 * kChannel + 4 * kSkew, kTapBytes = kLoads * 16 * kTap;
  static constexpr u32 kBytes = kGroupBytes > kTapBytes ? kGroupBytes : kTapBytes;
  static inline SDX_SHARED vec16 all[kThreads / kWave][kBytes / 16];

  Shared<char>* scratch;
  u32 slot, part;  ///< the lane's pixel or tap of 16, and its first channel
  vec16 loaded[kLoads];
  Taps of[2];

  SDX_FN static u32 place(u32 channel, u32 group) { return channel * kChannel + channel / 8 * kSkew + group * 8; }

  /// `channels`: of the image from the wave's first one on, a multiple of 8. `taps`: of the first channel.
  SDX_FN ChannelsLast(const T* taps, i32 channels) {
    const u32 lane = thread_id() % kWave;
    scratch = (Shared<char>*)all[uniform(thread_id() / kWave)];
    slot = lane / 4;
    part = u32(min(i32(lane % 4 * 8), channels - 8));
#pragma clang loop unroll(full)
    for (int k = 0; k < kLoads; ++k) {
      const i32 tap = min(16 * k + i32(slot), kTaps - 1);
      loaded[k] = bit_cast<vec16>(load_pack<8>(taps + (tap * kApart + i32(part))));
    }
    loads_in_flight();  // in this order
  }
  SDX_FN void set_taps() {
    const u32 lane = thread_id() % kWave;
#pragma clang loop unroll(full)
    for (int k = 0; k < kLoads; ++k) *(Shared<vec16>*)(scratch + (16 * k + slot) * kTap + lane % 4 * 16) = loaded[k];
    u32 own[(kTaps + 3) / 4], taps[kTaps + 1];
#pragma clang loop unroll(full)
    for (int k = 0; k < (kTaps + 3) / 4; ++k) {
      const u32 tap = u32(min(4 * k + i32(lane % 4), kTaps - 1));
      own[k] = *(Shared<u32>*)(scratch + tap * kTap + lane / 4 * 4);
    }
#pragma clang loop unroll(full)
    for (int k = 0; k < kTaps; ++k) taps[k] = from_lane_of_four(own[k / 4], k % 4);
#pragma clang loop unroll(full)
    for (int c = 0; c < 2; ++c)
#pragma clang loop unroll(full)
      for (int y = 0; y < kHeight; ++y) {
        u32 row[Taps::kWords];
#pragma clang loop unroll(full)
        for (int k = 0; k < Taps::kWords; ++k) {
          const int tap = y * kWidth + 2 * k;
          row[k] = of_channel(taps[tap], 2 * k + 1 < kWidth ? taps[tap + 1] : 0u, c);
        }
        of[c].set_row(y, row);
      }
  }

  /// `first`: byte of the wave's first channel in the tensor of `bytes`; pixels are kPixelBytes apart. `x`, `y`: the
  /// image's element that is multiplied with the operands' first one.
  template <int kRowStep, int kTapStep, int kPixelBytes, int kRows, int kGroups>
  SDX_FN void add_windows(const T* tensor, u32 bytes, u32 first, i32 x, i32 width, i32 y, i32 height, u32 row_bytes,
                          vec<f32, 4> (&sums)[2][kRows][kGroups]) {
    constexpr int kFours = (kGroups - 1) * kStep + Taps::kFours;
    constexpr int kAll = (kRows - 1) * kRowStep + (kHeight - 1) * kTapStep + 1;
    constexpr int kAcross = 3 * kGroups * kStep + kFours;  // groups of a row of the wave's image
    static_assert(kAcross <= 16 * kPasses);
    constexpr int kAtOnce = kPasses == 1 ? 16 / kAcross : 1, kSteps = (kAll + kAtOnce - 1) / kAtOnce;  // rows
    constexpr u32 kFormat = 0x00020000;
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)tensor, 0, bytes, kFormat);
    vec16 in[kSteps][kPasses][4];
#pragma clang loop unroll(full)
    for (int n = 0; n < kSteps * kPasses; ++n) {
      const int s = n / kPasses, pass = n % kPasses;
      const i32 group = 16 * pass + i32(slot), row = y + s * kAtOnce + (kPasses == 1 ? group / kAcross : 0);
      const i32 pixel = x + (kPasses == 1 ? group % kAcross : group) * 4;
      const bool there = (u32(row) < u32(height)) & (group < kAcross * kAtOnce);
      const u32 at = first + part * 2 + u32(row) * row_bytes + u32(pixel) * kPixelBytes;
#pragma clang loop unroll(full)
      for (int k = 0; k < 4; ++k) {
        const bool inside = there & (u32(pixel + k) < u32(width));
        const u32 from = (at + u32(k * kPixelBytes)) | (inside ? 0u : 0x80000000u);  // outside: zeros
        in[s][pass][k] = __builtin_amdgcn_raw_buffer_load_b128(buffer, from, 0, 0);
      }
    }
    loads_in_flight();
    set_taps();
    const u32 lane = thread_id() % kWave;
    const auto stored = scratch + place(lane % 4 * 8, slot);
    const auto read = scratch + place(lane / 4 * 2, lane % 4 * u32(kGroups * kStep));
#pragma clang loop unroll(full)
    for (int s = 0; s < kSteps; ++s) {
#pragma clang loop unroll(full)
      for (int n = 0; n < 8 * kPasses; ++n) {
        const int c = n % 8, pass = n / 8;
        const auto& pixels = in[s][pass];
        *(Shared<Four>*)(stored + (u32(c) * kChannel + u32(pass) * 128)) =
            Four{of_channel(pixels[0][c / 2], pixels[1][c / 2], c % 2),
                 of_channel(pixels[2][c / 2], pixels[3][c / 2], c % 2)};
      }
#pragma clang loop unroll(full)
      for (int r = s * kAtOnce; r < (s + 1) * kAtOnce && r < kAll; ++r)
#pragma clang loop unroll(full)
        for (int k = 0; k < kFours; ++k)
#pragma clang loop unroll(full)
          for (int c = 0; c < 2; ++c)
            add_four<kRowStep, kTapStep, T>(
                of[c], *(Shared<Four>*)(read + (u32(c) * kChannel + u32((r - s * kAtOnce) * kAcross + k) * 8)), r, k,
                sums[c]);
    }
  }

  /// A lane gets eight channels of one of 16 pixels, which are groups of four results of four lanes.
  template <int kRows, int kGroups>
  SDX_FN void exchange(const vec<f32, 4> (&sums)[2][kRows][kGroups], f32 (&to)[kRows][kGroups][8]) const {
    const u32 lane = thread_id() % kWave;
#pragma clang loop unroll(full)
    for (int v = 0; v < kRows; ++v)
#pragma clang loop unroll(full)
      for (int u = 0; u < kGroups; ++u) {
#pragma clang loop unroll(full)
        for (int i = 0; i < 4; ++i)
          *(Shared<vec<f32, 2>>*)(scratch + (lane % 4 * 4 + i) * kPixel + lane / 4 * 8) = {sums[0][v][u][i],
                                                                                           sums[1][v][u][i]};
#pragma clang loop unroll(full)
        for (int k = 0; k < 2; ++k) {
          const auto four = *(Shared<vec<f32, 4>>*)(scratch + slot * kPixel + lane % 4 * 32 + k * 16);
#pragma clang loop unroll(full)
          for (int i = 0; i < 4; ++i) to[v][u][4 * k + i] = four[i];
        }
      }
  }
};

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
