// What both kernels of depthwise convolutions use: the image's axes, and weights by taps.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/conv.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

constexpr std::int64_t kMostTaps = 128;

/// One axis of the image.
struct Axis {
  std::int64_t in, out, kernel, stride, dilation, pad;

  std::int64_t first_of(std::int64_t pixel) const { return pixel * stride - pad; }
  bool inside(std::int64_t at) const { return at >= 0 && at < in; }
};

/// Depth, height and width; an image has depth 1.
std::array<Axis, 3> axes_of(const ConvDesc& d);

/// Extents of the results, channels last.
std::vector<std::int64_t> image_of_depthwise(const ConvDesc& d);

/// [tap][channel].
std::shared_ptr<const Buffer> weights_by_taps(const ConvDesc& d, PackedWeights& packed, const void* original);

}  // namespace sardonyx::host
