// Gated layers: act(x G) * (x U) becomes one GEMM whose weights interleave the columns of G and U, so that its epilogue
// reads both (TileKernel::pairs). Weights are interleaved when they are loaded.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Applies to each loop that reads, at its own position, two GEMMs of one left operand with constant weights, or both
/// halves of the columns of one GEMM, and is their only reader.
void gated_gemm(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
