// Internal to fuse/: convolutions with few input channels, for devices that load operands 16 bytes at a time.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Folds neighbouring pixels into channels where the channels are no multiple of 16 bytes (3 of an RGB image): s pixels
/// along the last dim, where s is the stride there, which becomes 1; then pads channels with zeros to the next
/// multiple. Of one or two channels, whose vectors would be mostly zeros, all taps along the last dim become channels
/// instead. More than 32 channels only get zeros: with FuseOptions::tensor_copy up to 64 bytes, if these are at most a
/// sixth more; without it not if the kernel has one tap. With tensor_copy, small windows without strides of few
/// channels (3 x 3 of an RGB image) become channels, and the kernel 1 x 1. Where the kernel's sizes are the strides
/// (patches of a vision transformer), all pixels of a patch become channels, and the kernel 1 x 1. Weights are
/// rearranged accordingly. This is "space to depth", as common for the first layer of residual networks. With
/// FuseOptions::fold_outputs, one window computes several neighbouring outputs along the last dim, and moves by that
/// many: the weights then have that many times the output channels, all channels of an output following one another.
/// With FuseOptions::short_vectors, an image whose s pixels are 12 bytes with channels last is not copied.
void fill_channels(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
