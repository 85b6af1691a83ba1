// Internal to ops/: parts into which an axis is divided.
#pragma once
#include "ops/op.h"

namespace sardonyx {

/// Checks given sizes of the parts of a dim: none is negative (an error if one is known to be), and they add up to the
/// dim (checked when it is known, at the latest at run time).
void check_parts(OpContext& c, const Exprs& sizes, const Expr& dim);

}  // namespace sardonyx
