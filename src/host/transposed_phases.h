// Transposed convolutions with strides, one phase of the results after another.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null if it is not a transposed convolution with strides of an image with
/// channels last and constant weights, or another kernel would not be slower. Sums are float32, in the order of taps
/// and then of channels.
std::shared_ptr<const TileKernel> make_transposed_phases(const ConvDesc& desc);

}  // namespace sardonyx::host
