// Quantisation as element arithmetic, shared by the operators that work on quantised tensors.
#pragma once
#include <functional>

#include "ops/op.h"

namespace sardonyx {

/// x / scale rounded half to even, plus zero (of dtype `to`, or empty for 0), saturated to `to`. x and scale have one
/// float dtype, in which they are divided. For fp8 the zero point is ignored and `saturate` says what overflow gives;
/// fp4 always saturates.
Expr quantize(const Expr& x, const Expr& scale, const Expr& zero, DType to, bool saturate = true);
/// The last step alone: a quotient to be rounded (float32 or float64).
Expr quantize_quotient(const Expr& quotient, const Expr& zero, DType to, bool saturate = true);
/// (q - zero) * scale in fp32, as `out`. zero may be empty.
Expr dequantize(const Expr& q, const Expr& scale, const Expr& zero, DType out = DType::kFloat32);

/// Scale and zero point of one tensor, per tensor, per index of an axis, or per block along it.
struct Quantization {
  Value *scale = nullptr, *zero = nullptr;  ///< zero may be null
  int axis = 0;
  std::int64_t block = 0;  ///< 0: none

  /// Elements for element i of a tensor of `shape`.
  Expr scale_at(const Exprs& i, const Exprs& shape) const { return element(scale, i, shape); }
  Expr zero_at(const Exprs& i, const Exprs& shape) const { return zero ? element(zero, i, shape) : Expr(); }

 private:
  Expr element(const Value* v, const Exprs& i, const Exprs& shape) const;
};
/// Reads inputs `scale` and `zero` (may be absent) and the attributes axis and block_size for a tensor of `shape`;
/// checks their shapes.
Quantization quantization_of(OpContext& c, int scale, int zero, const Exprs& shape, std::int64_t default_axis = 1);

/// Whether v is a constant of zeros only: zero points of symmetric quantisation, of which kernels need not know.
bool all_zeros(const Value* v);

/// The element of a tensor with one element: its known value or a load.
Expr only_element(OpContext& c, const Value* v);

/// x - zero as int32 (fp8: x as float32). zero: null, one element, or broadcast to x by numpy's rules; with `rows` a
/// 1-D zero belongs to x's rows (its dim before the last).
Value* widen_quantized(OpContext& c, Value* x, Value* zero, bool rows);
/// The product of two 8-bit tensors less their zero points (null or as above), in int32; fp8 in float32.
Value* quantized_matmul(OpContext& c, Value* a, Value* a_zero, Value* b, Value* b_zero);
/// Element of a scale that is a scalar, a vector along the rows (`rows`) or columns of a matrix of `shape`, or
/// broadcast to it.
Expr matrix_scale(Graph& g, const Value* scale, const Exprs& i, const Exprs& shape, bool rows);

/// round(acc * multiplier(i)) + zero, saturated to `to`.
Value* requantize(Graph& g, Value* acc, const std::function<Expr(const Exprs&)>& multiplier, const Expr& zero,
                  DType to);

/// QLinearConv's inputs from 0 on, for the channels-first tensor `x` in place of input 0.
Value* lower_qlinear_conv(OpContext& c, Value* x);
/// y, scale and zero point of DynamicQuantizeLinear for uint8.
struct DynamicallyQuantized {
  Value *y, *scale, *zero;
};
DynamicallyQuantized quantize_dynamically(Graph& g, Value* x);

}  // namespace sardonyx
