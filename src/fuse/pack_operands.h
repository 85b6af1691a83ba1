// Internal to fuse/: constant operands of tile kernels and of windows in the order in which those read them.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Constant operands of matrix products and convolutions are replaced by copies (made once, when a program is loaded)
/// in which the summed dim is the innermost in memory: k of a product, the channels of a convolution's weights. Weights
/// of windows that are loops (depthwise convolutions) get the dim innermost along which the loop's outputs are
/// neighbours.
void pack_operands(Graph& g);

}  // namespace sardonyx
