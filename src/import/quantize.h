// Float models with 8-bit products: the operands of matrix products and convolutions are rounded to int8 or float8.
#pragma once
#include "import/calibration.h"
#include "model/model.h"
#include "sardonyx/options.h"

namespace sardonyx {

/// Rounds the operands of MatMul, Gemm and Conv nodes that multiply a float32 activation by constant float32 weights,
/// in nested graphs too. `type`: kInt8, kFloat8E4M3FN or kFloat8E4M3FNUZ, whose largest value is q (127, 448, 240).
///
/// Weights get a scale for each output channel, its largest absolute value / q; activations one for the tensor, the
/// table's largest value / q. Both scales are symmetric, rounded to nearest even, and kept at the ends of the range.
/// The node then multiplies what DequantizeLinear makes of both, which lowers to products of 8-bit values: sums in
/// int32 or float32, times both scales in float32; bias and everything else stays in float32. (As TensorRT and MIGraphX
/// quantise; see Wu et al., "Integer Quantization for Deep Learning Inference", 2020, for the choice of scales.)
///
/// A layer stays in float if the table has no range of its activation, if its weights are not constant or not the right
/// operand, or if it has groups, a transposed activation, or more than two spatial axes. The report says which. Float
/// weights that nothing reads any more are dropped.
QuantizationReport quantize_layers(model::Model& model, const CalibrationTable& table, DType type);

/// Which nodes stay in float32 with precision fp16 and these ranges, because their results or the activations that they
/// multiply reach beyond half of float16's range: with reasons, in `in_float`. `quantized`: the other MatMul, Gemm,
/// Conv and ConvTranspose nodes. Nested graphs too.
QuantizationReport out_of_half(const model::Model& model, const std::map<std::string, float, std::less<>>& largest);

}  // namespace sardonyx
