// Chooses Winograd's form for a convolution, and how its work is divided.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "host/conv.h"
#include "host/simd.h"

namespace sardonyx::host {

inline std::span<const WinogradAxis, 2> axes_of(WinogradForm form) { return kWinogradAxes[static_cast<int>(form)]; }

/// Whether blocks of 2 x 2 pixels are folded into channels, which turns a convolution with stride 2 into one with
/// stride 1. For images of few channels.
inline bool folds_pixels(WinogradForm form) {
  return form == WinogradForm::k4x4Folded || form == WinogradForm::k3x3Folded;
}

/// Padding and taps of the folded axis. The first block may begin before the filter's first tap, by `before` pixels.
struct FoldedAxis {
  explicit FoldedAxis(const ConvDesc& d, std::size_t axis)
      : pad((d.pad_begin[axis] + 1) / 2),
        before(2 * pad - d.pad_begin[axis]),
        taps((d.kernel[axis] + before + 1) / 2) {}
  std::int64_t pad, before, taps;
};

struct WinogradPlan {
  WinogradPlan(const ConvDesc& d, WinogradForm of);

  static constexpr std::int64_t kVector = 16;  // floats
  WinogradForm form;
  std::int64_t products, tiles;
  std::int64_t parts;  ///< of the panels: each thread transforms all patches for its part; 1: threads divide the
                       ///< blocks instead
  std::int64_t block, blocks;  ///< tiles in a block; number of blocks
  /// Filters with more than 3 taps are sums of pieces of 3, along each axis, which read further channels: those of the
  /// image 3 pixels on.
  std::array<std::int64_t, 2> pieces{1, 1};
  std::int64_t depth;      ///< channels of a patch's pixels, of all pieces; of a group if the convolution has several
  std::int64_t columns;    ///< of a panel of weights
  std::int64_t patch_row;  ///< stride of patches, in floats
  /// Groups of the convolution whose patches are transformed and multiplied together.
  std::int64_t bundle;
};

/// The fastest form for a float32 convolution over two axes, or none if a direct sum is faster.
std::optional<WinogradPlan> plan_winograd(const ConvDesc& d);

}  // namespace sardonyx::host
