// Internal to fuse/: GEMM and convolution of dequantised 8-bit floats, for devices with matrix instructions for them.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// GEMMs and convolutions whose operands are both an 8-bit float `type` times a scale multiply the 8-bit floats
/// directly. Both scales are applied to the float32 accumulators. The left operand (the image) has one scale, the right
/// one (the weights) one, or one for each column (output channel).
void lower_float8_gemm(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
