// Convolutions shared by several operators.
#pragma once
#include "ops/op.h"
#include "ops/window.h"

namespace sardonyx {

/// Conv's attributes applied to x [N, C, spatial...], w [M, C/group, kernel...] and an optional bias [M].
Value* lower_conv(OpContext& c, Value* x, Value* w, Value* bias);

/// Integer convolution in int32: sum of (x - x_zero) * (w - w_zero); padding counts as x_zero. Zero points may be null;
/// x_zero has one element, w_zero one or one per output channel.
Value* lower_integer_conv(OpContext& c, Value* x, Value* x_zero, Value* w, Value* w_zero);

/// The columns of x that meet the weights: `element(n, channel, output position, kernel position)` as [N, group,
/// C/group * kernel, output], multiplied with w [M, C/group, kernel...] in w's dtype, giving [N, M, output...].
using ColumnElement = std::function<Expr(const Expr& n, const Expr& channel, const Exprs& o, const Exprs& k)>;
Value* conv_by_columns(OpContext& c, const Expr& batch, Value* w, const Exprs& output, const ColumnElement& element,
                       DType result);

}  // namespace sardonyx
