// Products of 8-bit tensors less their zero points: as routines, which know packed operands, and otherwise by
// definition. And the float products of dequantised tensors, which are such products times scales.
#pragma once
#include "ops/op.h"
#include "ops/window.h"

namespace sardonyx {

/// (a - a_zero) (b - b_zero) in int32 for a [batch..., M, K] and b [batch..., K, N] (trans_b: [batch..., N, K]), int8
/// or uint8. Zero points: null, one element, [M] for a, [N] for b. Null if these are no such tensors.
Value* integer_matmul(Graph& g, Value* a, Value* a_zero, Value* b, Value* b_zero, bool trans_b);

/// The same for a convolution over one or two axes in one group: x [N, C, spatial...], w [M, C, kernel...]; x_zero:
/// null or one element, w_zero: null, one or [M]. Padding counts as x_zero.
Value* integer_conv(Graph& g, Value* x, Value* x_zero, Value* w, Value* w_zero, const Window& window);

/// A float product of tensors that DequantizeLinear gave, from the integers: null if they are none, or of other kinds
/// than above.
Value* dequantized_matmul(Graph& g, Value* a, Value* b, bool trans_b);
Value* dequantized_conv(Graph& g, Value* x, Value* w, Value* bias, const Window& window);

}  // namespace sardonyx
