// Which of Winograd's forms computes a convolution, and how its work is divided.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "host/conv.h"
#include "host/simd.h"

namespace sardonyx::host {

inline std::span<const WinogradAxis, 2> axes_of(WinogradForm form) { return kWinogradAxes[static_cast<int>(form)]; }

/// Whether squares of 2 x 2 pixels are taken as pixels of four times as many channels, so that a convolution with
/// stride 2 is one with stride 1: images of few channels.
inline bool of_squares(WinogradForm form) {
  return form == WinogradForm::k4x4Squares || form == WinogradForm::k3x3Squares;
}

/// Squares of padding at the beginning, and taps that the first has before the kernel's.
struct Squares {
  explicit Squares(const ConvDesc& d, std::size_t axis)
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
  std::int64_t groups;         ///< of panels, which threads take with patches of their own; 1: threads take blocks
  std::int64_t block, blocks;  ///< tiles in one
  std::int64_t depth;          ///< channels of a patch's pixels
  std::int64_t columns;        ///< of one panel of weights
  std::int64_t patch_row;      ///< floats from one patch to the next
};

/// The form that is fastest for a float32 convolution over two axes in one group, or none where a direct sum is.
std::optional<WinogradPlan> plan_winograd(const ConvDesc& d);

}  // namespace sardonyx::host
