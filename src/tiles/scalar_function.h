// Recognises a function of one number.
#pragma once
#include <optional>

#include "epilogue/post_op.h"
#include "expr/expr.h"

namespace sardonyx::tiles {

/// f(x) where x stands for `argument`, in double precision. Empty if the expression holds anything but arithmetic on
/// it.
std::optional<double> evaluate_function(const Expr& f, const Expr& argument, double x);

/// The post-operation that equals the function `f` of `argument`. Models spell activations in many ways, so the
/// comparison is by value: at points from -1e30 to 1e30, dense around zero, to the rounding of float32. Functions made
/// of the operations of expressions that agree with an activation at all of them are that activation.
std::optional<PostOp> recognize_function(const Expr& f, const Expr& argument);

}  // namespace sardonyx::tiles
