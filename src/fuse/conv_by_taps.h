// Internal to fuse/: convolutions of large images to few channels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Splits a convolution of a large image to few channels (the last one of an image, depth or flow decoder) in two: a
/// GEMM multiplies every pixel by the weights of all taps, and a loop adds up the results of neighbouring pixels. The
/// implicit GEMM would load each pixel once per tap, to multiply it by only one to three columns. Where all taps would
/// be too many columns (7 x 7 or 3 x 3 x 3 to three channels), only the window's last dims are divided into taps, and a
/// convolution along the others takes the GEMM's place. Applies to 16-bit floats; the result between is float32. A
/// remark says why other convolutions to few channels stay.
void conv_by_taps(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
