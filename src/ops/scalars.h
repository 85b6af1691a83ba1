// Inputs and attributes that hold one value: as expressions for the bodies of loops.
#pragma once
#include "ops/op.h"

namespace sardonyx {

/// The only element of a tensor, for use in a loop's body: its known value, or a load. The tensor must have one
/// element; this is checked, at run time if need be.
Expr scalar_element(OpContext& c, const Value* v);

/// Input k, which must have one element (checked, at run time if need be), as a tensor of rank 0.
Value* one_element(OpContext& c, int k);

/// The dtype attribute `name`, or `fallback` if absent.
DType dtype_attr(const OpContext& c, std::string_view name, DType fallback);

/// An integer scalar input as an int64 expression: known, or read at run time. For sizes and positions.
Expr int_input(OpContext& c, int k, bool size = false);

}  // namespace sardonyx
