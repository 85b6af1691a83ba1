// Internal to fuse/: loops that transpose the result of a GEMM.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// If a loop transposes a GEMM's result (tokens x channels, for a depthwise convolution over channels x tokens; it may
/// split dims, such as queries, keys and values of heads), gives it the GEMM's order of dims instead, so that it
/// becomes the GEMM's epilogue. The loops, GEMMs and attention that read it (there must be no other readers) permute
/// their indices, and read contiguous memory along the channels; attention only if its rows remain contiguous. Views
/// that only split dims (tokens into rows and columns of an image) follow; a convolution reads such a view as an image
/// with channels last. A remark says which loops keep their order.
void untranspose(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
