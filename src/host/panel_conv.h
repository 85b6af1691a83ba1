// Convolution as an implicit GEMM with panels of 64 output channels.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null if the epilogue is not supported or it would not be faster than
/// oneDNN's. Sums are float32, in the order of taps and then of channels. Infinities and NaN affect only results whose
/// taps contain them.
std::shared_ptr<const TileKernel> make_panel_convolution(const ConvDesc& desc);

}  // namespace sardonyx::host
