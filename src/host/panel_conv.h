// Convolutions as products with panels of 64 output channels.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null where it has no steps for that or would not be faster than oneDNN's.
/// Sums are float32, in the order of taps and then of channels; what is not finite reaches only the results whose taps
/// have it.
std::shared_ptr<const TileKernel> make_panel_convolution(const ConvDesc& desc);

}  // namespace sardonyx::host
