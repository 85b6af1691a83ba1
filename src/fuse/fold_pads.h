// Internal to fuse/: zeros around the images of convolutions.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// A convolution of an image that a loop has padded (with zeros, or what the convolution itself pads with) reads the
/// image and pads it itself. Only dims of the image may be padded, by known numbers of pixels.
void fold_pads(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
