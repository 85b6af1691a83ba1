// Convolutions whose groups have one input channel and several output channels, as depthwise ones of a wider image.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// Whether `d` is better computed as a depthwise convolution of an image in which each channel is repeated for each of
/// its output channels. oneDNN has depthwise kernels for one output channel only; merged groups (merged_groups.h)
/// multiply by zeros. On one core of a Xeon with AVX2, 7x7 with stride 2 over 56x56x48 to 96 channels takes 2.6 ms in
/// merged groups.
bool repeats_channels(const ConvDesc& d);

/// The depthwise convolution.
ConvDesc with_repeated_channels(const ConvDesc& d);

/// Runs `inner`, the kernel of with_repeated_channels(d), with the image of `d`.
std::shared_ptr<const TileKernel> make_repeated_channels(std::shared_ptr<const TileKernel> inner, const ConvDesc& d);

}  // namespace sardonyx::host
