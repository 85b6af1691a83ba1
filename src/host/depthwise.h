// Depthwise convolutions that oneDNN's depthwise kernels refuse, or for which ours are faster.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// A kernel for `desc` with its epilogue, or null if oneDNN has a depthwise kernel for it that is as fast, or the
/// epilogue or the layout is not supported. oneDNN's depthwise kernels are for images, and take padding of at most a
/// tile of pixels along a row. Others, such as those of large dilations and of volumes, are computed as dense
/// convolutions or GEMMs of single channels: on a Xeon with AVX-512, 3 taps with dilation 16 over 1999 x 512 take 38 ms
/// that way, and 0.3 ms with dilation 4.
std::shared_ptr<const TileKernel> make_depthwise(const ConvDesc& desc);

}  // namespace sardonyx::host
