// Steps that a gemm or a convolution applies to each result before it is stored.
#pragma once
#include <cstdint>
#include <vector>

#include "support/dtype.h"

namespace sardonyx::host {

/// One step of an epilogue, applied in float32 to the value x at its place in the output. Steps run in order. These are
/// the functions that oneDNN computes within 1e-6 of max(1, |result|); its log and softplus are worse, and are not
/// here.
struct PostOp {
  enum class Kind : std::uint8_t {
    // With a tensor operand y, broadcast against the output.
    kAddTensor,  ///< x + y
    kSubTensor,  ///< x - y
    kMulTensor,  ///< x * y
    kDivTensor,  ///< x / y
    kMaxTensor,
    kMinTensor,
    // Of x alone.
    kRelu,
    kLeakyRelu,  ///< x > 0 ? x : alpha * x
    kClip,       ///< min(max(x, alpha), beta)
    kSigmoid,
    kTanh,
    kSwish,        ///< x * sigmoid(alpha * x)
    kHardSwish,    ///< x * clip(alpha * x + beta, 0, 1)
    kHardSigmoid,  ///< clip(alpha * x + beta, 0, 1)
    kGeluErf,      ///< 0.5 * x * (1 + erf(x / sqrt(2)))
    kGeluTanh,     ///< the approximation with tanh
    kElu,          ///< x > 0 ? x : alpha * (exp(x) - 1)
    kMish,         ///< x * tanh(softplus(x))
    kExp,
    kSqrt,
    kAbs,
    kSquare,
    kLinear,  ///< alpha * x + beta
    kPow,     ///< alpha * x ^ beta
    kRound,   ///< to nearest, ties to even
  };
  Kind kind;
  float alpha = 0;
  float beta = 0;
  /// The operand's extents: of the output's rank, in the output's axis order (row-major), each 1 or the output's.
  std::vector<std::int64_t> dims;
  /// The operand's element type: float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;

  bool has_operand() const { return kind <= Kind::kMinTensor; }
};

}  // namespace sardonyx::host
