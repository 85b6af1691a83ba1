// Internal to fuse/: constant operands of tile kernels in the order in which these load them.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Replaces constant operands of GEMMs and convolutions by copies, made once when a program is loaded, in which the
/// summed dim is innermost in memory: K of a GEMM, the input channels of a convolution's weights. In keys and values of
/// attention it is the elements of a head, in constants from which a loop gathers, the dim that neighbouring elements
/// of the loop's result run along.
void pack_operands(Graph& g);

}  // namespace sardonyx
