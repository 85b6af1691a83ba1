// Internal to fuse/: the order of a convolution's output channels.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// If a loop only rearranges the output channels of a convolution with constant weights (DepthToSpace between modes, a
/// shuffle of channels), the weights and the bias are rearranged instead, once, when the program is loaded. The loop
/// must be the only reader of the result, and all channels one group.
void channel_order(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
