// Functions that epilogues of GEMM and convolution apply on the host.
#pragma once
#include <cstdint>

namespace sardonyx {

/// Applied in float32 to the value x. All of these are computed within 1e-6 of max(1, |result|). oneDNN's log and
/// softplus are less exact, and therefore missing.
enum class PostKind : std::uint8_t {
  // With a tensor operand y, broadcast to the output.
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
constexpr int kPostKinds = static_cast<int>(PostKind::kRound) + 1;

constexpr bool has_operand(PostKind kind) { return kind <= PostKind::kMinTensor; }

}  // namespace sardonyx
