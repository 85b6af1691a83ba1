// The axes of a convolution's image, for kernels that compute images and volumes.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "host/conv.h"

namespace sardonyx::host {

/// One axis of the image.
struct Axis {
  std::int64_t in, out, kernel, stride, dilation, pad;

  std::int64_t first_of(std::int64_t pixel) const { return pixel * stride - pad; }
  bool inside(std::int64_t at) const { return at >= 0 && at < in; }
};

/// Depth, height and width; an image has depth 1.
std::array<Axis, 3> axes_of(const ConvDesc& d);

/// Extents of the results, channels last.
std::vector<std::int64_t> extents_of_results(const ConvDesc& d);

}  // namespace sardonyx::host
