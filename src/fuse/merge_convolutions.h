// Internal to fuse/: sums of convolutions of one image.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Merges convolutions of one image whose results are added, as networks are trained whose branches are to be merged
/// (RepVGG, MobileOne): constant weights of the same kernel are added, those of 1 x 1 kernels to the tap that reads the
/// same pixel, and a multiple of the image itself, by channel, to that tap's diagonal. Float32 only: 16-bit sums of
/// weights would round once more.
void merge_convolutions(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
