// Which numbers are known to fit 32 bits.
#pragma once
#include "expr/expr.h"

namespace sardonyx::codegen {

/// Whether the value of `e`, an integer or a float, is known to lie between -2^30 and 2^30, whatever the model's inputs
/// are: indices of loops with constant extents, and arithmetic with constants on them.
bool fits_32_bits(const Expr& e);

}  // namespace sardonyx::codegen
