// Transposed convolutions of images to few channels.
#pragma once
#include <memory>

#include "host/conv.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

/// A kernel for a transposed convolution of an image to at most 16 channels, with its epilogue, or null if it is not
/// supported. A GEMM multiplies each pixel with the weights of all taps, side by side as columns, and the products are
/// added where they belong (col2im), so that few channels fill vectors. Sums are float32, over channels first.
/// Infinities and NaN affect only results whose taps contain them.
std::shared_ptr<const TileKernel> make_transposed_columns(const ConvDesc& d);

}  // namespace sardonyx::host
