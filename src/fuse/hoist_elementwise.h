// Internal to fuse/: element-wise operations after a change of layout.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Where a loop reads the result of a windowed reduction (a depthwise convolution) transposed or reshaped, and computes
/// something of each element (the activation of an MLP over tokens), this is computed in the reduction's order of dims
/// instead, so that it can be part of its kernel. What remains of the loop only moves elements, and is a view where the
/// result is channels last in memory.
void hoist_elementwise(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
