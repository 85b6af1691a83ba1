// Depthwise convolutions of images with channels last, row by row (SimdKernels::depthwise_row).
#pragma once
#include <cstdint>
#include <memory>

#include "host/conv.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

constexpr std::int64_t kMostTaps = 128;  // of a depthwise convolution

/// Null where another kernel is faster, or where this one cannot compute it. `d`: what make_depthwise() accepts.
std::shared_ptr<const TileKernel> make_depthwise_rows(const ConvDesc& d);

/// Weights of a depthwise convolution: [tap][channel].
std::shared_ptr<const Buffer> weights_by_taps(const ConvDesc& d, PackedWeights& packed, const void* original);

}  // namespace sardonyx::host
