// Internal to fuse/: grouped convolutions with few channels in each group, for devices with matrix instructions.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Merges several groups of a convolution into one of up to 32 channels, with zeros in its weights for channels of
/// different groups: matrix instructions always multiply 16 or 32 columns at a time. Applies to 16-bit floats with
/// constant weights and at least 8 channels in each group; with fewer, a loop over windows is faster than multiplying
/// so many zeros.
void merge_groups(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
