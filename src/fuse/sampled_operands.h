// Internal to fuse/: operands of GEMMs that a loop samples from images.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Where a loop samples a convolution's image at computed positions for a GEMM (deformable convolutions: K is channels
/// and taps), makes channels the innermost part of K and gives the GEMM one row for each position. The image has its
/// channels last in memory, so that a sample of several channels is one load; the other operand must be constant, and
/// is rearranged when the program is loaded. Loops that read the GEMM's result follow.
void sampled_operands(Graph& g);

}  // namespace sardonyx
