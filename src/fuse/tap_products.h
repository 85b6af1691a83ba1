// Internal to fuse/: convolutions of large images to few channels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Divides a convolution of a large image to few channels (the last one of a decoder of images or depth) in two: a GEMM
/// multiplies every pixel by the weights of all taps, and a loop adds up the results of neighbouring pixels. The
/// implicit GEMM would load each pixel once for every tap to multiply it by one column or three. Only 16-bit floats,
/// whose products with all taps are kept in float32. A remark says why other convolutions to few channels stay.
void tap_products(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
