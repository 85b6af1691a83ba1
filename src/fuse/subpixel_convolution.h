// Internal to fuse/: transposed convolutions as convolutions without strides.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Computes a transposed convolution with strides s as a convolution of the image before it is enlarged. Its channels
/// are those of all s x s phases, which a loop then puts side by side (sub-pixel convolution, Shi et al. 2016). Where
/// the window is as large as the stride, or the image is one pixel, that is a GEMM. A transposed convolution would
/// multiply every pixel by every tap, of which only one in s x s meets it.
void subpixel_convolution(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
