// Internal to fuse/: loops that transpose the result of a GEMM.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Gives a loop that transposes a GEMM's result (tokens x channels, which a depthwise convolution wants as channels x
/// tokens) the order of dims that the GEMM writes, so that it becomes the GEMM's epilogue; the loops that read it, and
/// nothing else may, permute their indices. Reading along the channels, they find neighbours in memory.
void untranspose(Graph& g);

}  // namespace sardonyx
