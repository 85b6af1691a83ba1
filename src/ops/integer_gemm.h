// GEMM and convolution of 8-bit tensors minus their zero points: as routines, which support packed operands, and
// otherwise by definition. Also those of dequantised tensors, which are the same times scales.
#pragma once
#include "ops/op.h"
#include "ops/window.h"

namespace sardonyx {

/// (a - a_zero) (b - b_zero) in int32 for a [batch..., M, K] and b [batch..., K, N] (trans_b: [batch..., N, K]), int8
/// or uint8. Zero points: null, one element, [M] for a, [N] for b. Null if the tensors have other types or shapes.
Value* integer_matmul(Graph& g, Value* a, Value* a_zero, Value* b, Value* b_zero, bool trans_b);

/// The same for a convolution over one or two axes in one group: x [N, C, spatial...], w [M, C, kernel...]; x_zero:
/// null or one element, w_zero: null, one or [M]. Padding counts as x_zero.
Value* integer_conv(Graph& g, Value* x, Value* x_zero, Value* w, Value* w_zero, const Window& window);

/// A float matmul of two results of DequantizeLinear, computed from the integers; null if they are not, or have other
/// types or shapes than above.
Value* dequantized_matmul(Graph& g, Value* a, Value* b, bool trans_b);
Value* dequantized_conv(Graph& g, Value* x, Value* w, Value* bias, const Window& window);

/// Whether x is the result of DequantizeLinear of 8-bit integers.
bool is_dequantized(const Value* x);

}  // namespace sardonyx
