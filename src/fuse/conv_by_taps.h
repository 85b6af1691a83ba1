// Internal to fuse/: convolutions of large images to few channels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Splits a convolution of a large image to few channels (the last one of an image or depth decoder) in two: a GEMM
/// multiplies every pixel by the weights of all taps, and a loop adds up the results of neighbouring pixels. The
/// implicit GEMM would load each pixel once per tap, to multiply it by only one to three columns. Where all taps would
/// be too many columns (7 x 7 to three channels), a convolution by columns of the window takes the GEMM's place: its
/// channels are the outputs' taps of a row. Applies to 16-bit floats; the result between is float32. A remark says why
/// other convolutions to few channels stay.
void conv_by_taps(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
