// Recognises functions of one scalar.
#pragma once
#include <optional>

#include "epilogue/post_op.h"
#include "expr/expr.h"

namespace sardonyx::tiles {

/// f(x) in double precision, x being the value of `argument`. Empty if the expression contains anything but arithmetic
/// on it.
std::optional<double> evaluate_function(const Expr& f, const Expr& argument, double x);

/// The post-operation that equals the function `f` of `argument`. Models write activations in many ways, so functions
/// are compared by value, up to float32 rounding, at arguments from -1e30 to 1e30 that are dense around zero. A
/// function built from the operations of expressions that agrees with an activation at all of them is taken for that
/// activation.
std::optional<PostOp> recognize_function(const Expr& f, const Expr& argument);

}  // namespace sardonyx::tiles
