// Convolutions of 3 x 3 by Winograd's minimal filtering.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null where it has no steps for that or would not be faster than a
/// direct one. F(4x4, 3x3) of Lavin and Gray, "Fast algorithms for convolutional neural networks" (2016): a quarter of
/// the multiplications. Sums are float32; what is not finite reaches all results of its tile of 4 x 4.
std::shared_ptr<const TileKernel> make_winograd(const ConvDesc& desc);

}  // namespace sardonyx::host
