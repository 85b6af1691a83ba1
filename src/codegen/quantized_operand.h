// Weights of 4 or 8 bits in blocks with a scale and a zero point each, as kernels/skinny.h reads them. Recognises them
// in the expression that dequantisation (MatMulNBits, QMoE, DequantizeLinear) has become: (cast(element) - zero) *
// scale.
#pragma once
#include <optional>

#include "codegen/contraction.h"

namespace sardonyx::codegen {

/// Operand b of a contraction over z, col and `run`, which counts runs of elements that fill 16 bytes along k.
struct QuantizedOperand {
  int bits = 4;
  bool is_signed = false, float_zeros = false;
  Expr run;
  Expr packed;       ///< load (flat) of a run's first byte
  Expr scale, zero;  ///< of a run; float32
};

/// Empty if b is anything else, or has another layout: runs must be contiguous, aligned to 16 bytes, and within one
/// block.
std::optional<QuantizedOperand> quantized_operand(const Contraction& c);

}  // namespace sardonyx::codegen
