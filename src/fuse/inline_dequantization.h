// Internal to fuse/: matrix products that read quantised operands as they are stored.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Whether this loop only blows up what it reads: its result takes nearly twice the memory of its operands or more
/// (weights in 8 or 4 bits that become floats).
bool is_dequantization(const Node& n);

/// An operand of a matrix product that such a loop computes becomes the loop's body, which the product's kernel
/// evaluates as it reads: the float tensor is never in memory.
void inline_dequantization(Graph& g);

}  // namespace sardonyx
