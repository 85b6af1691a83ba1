// Internal to fuse/: GEMM and convolution of dequantised 8-bit floats, for devices with matrix instructions for them.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Matrix products and convolutions of two tensors that are each (8-bit float `type`) times a scale multiply the 8-bit
/// floats; both scales apply to the sums, which are in float32. The left operand (the image) has one scale, the right
/// one (the weights) one, or one for each column (output channel).
void lower_float8_products(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
