// Internal to fuse/: element-wise operations after a change of layout.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Moves element-wise operations before the change of layout that they follow: a loop reads the result of a windowed
/// reduction (a depthwise convolution) transposed or reshaped, and computes something of each element (the activation
/// of an MLP over tokens). In the reduction's order of dims, this can be part of the reduction's kernel. What remains
/// of the loop only moves elements, and is a view where the result is channels last in memory.
void hoist_elementwise(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
