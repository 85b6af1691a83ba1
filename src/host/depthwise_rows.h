// Depthwise convolutions of images with channels last, row by row (SimdKernels::depthwise_row).
#pragma once
#include <memory>

#include "host/conv.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

/// Null where another kernel is faster, or where this one cannot compute it. `d`: what make_depthwise() accepts.
std::shared_ptr<const TileKernel> make_depthwise_rows(const ConvDesc& d);

}  // namespace sardonyx::host
