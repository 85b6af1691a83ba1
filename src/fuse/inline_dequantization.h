// Internal to fuse/: GEMMs that dequantise an operand as they load it.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Whether this loop only expands what it loads, to at least 1.5 times the bytes (8- or 4-bit weights that become
/// floats).
bool is_dequantization(const Node& n);

/// Replaces a GEMM operand that such a loop computes by the loop's body, which the GEMM evaluates as it loads: the
/// float tensor is never in memory. A remark says which loops over small integers stay tensors.
void inline_dequantization(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
