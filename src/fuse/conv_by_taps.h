// Internal to fuse/: convolutions of large images to few channels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Splits a convolution of a large image to few channels (the last one of an image or depth decoder) in two: a GEMM
/// multiplies every pixel by the weights of all taps, and a loop adds up the results of neighbouring pixels. The
/// implicit GEMM would load each pixel once per tap, to multiply it by only one to three columns. Applies to 16-bit
/// floats; the GEMM's result is float32. A remark says why other convolutions to few channels stay.
void conv_by_taps(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
