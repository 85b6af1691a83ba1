// Convolutions with 3 taps along their axes, and some with more, by Winograd's minimal filtering.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null if the epilogue is not supported or a direct convolution would be
/// faster. After Lavin and Gray, "Fast algorithms for convolutional neural networks" (2016): F(4x4, 3x3), which needs a
/// quarter of the multiplications, for stride 1, and its polyphase variants for stride 2. Sums are float32. An infinity
/// or NaN affects all results of its tile.
std::shared_ptr<const TileKernel> make_winograd(const ConvDesc& desc);

}  // namespace sardonyx::host
