// Convolutions that read a copy of the image with its padding, so that all taps of a filter row are contiguous.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// `d`, whose image has its channels last, of the padded image.
ConvDesc with_padded_image(const ConvDesc& d);

/// Copies the float32 image of `d`, over two axes, and runs `inner`, the kernel of with_padded_image(d).
std::shared_ptr<const TileKernel> make_padded_image(std::shared_ptr<const TileKernel> inner, const ConvDesc& d);

}  // namespace sardonyx::host
