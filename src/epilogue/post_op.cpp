#include "epilogue/post_op.h"

#include <cmath>

namespace sardonyx {
namespace {

using Kind = PostKind;

double apply(const PostOp& op, double x) {
  const double a = op.alpha, b = op.beta;
  auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  auto clip = [](double z, double lo, double hi) { return std::fmin(std::fmax(z, lo), hi); };
  switch (op.kind) {
    case Kind::kRelu:
      return std::fmax(x, 0);
    case Kind::kLeakyRelu:
      return x > 0 ? x : a * x;
    case Kind::kClip:
      return clip(x, a, b);
    case Kind::kSigmoid:
      return sigmoid(x);
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kSwish:
      return x * sigmoid(a * x);
    case Kind::kHardSwish:
      return x * clip(a * x + b, 0, 1);
    case Kind::kHardSigmoid:
      return clip(a * x + b, 0, 1);
    case Kind::kGeluErf:
      return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
    case Kind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Kind::kElu:
      return x > 0 ? x : a * std::expm1(x);
    case Kind::kMish:
      return x * std::tanh(std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))));
    case Kind::kAbs:
      return std::fabs(x);
    case Kind::kSquare:
      return x * x;
    case Kind::kLinear:
      return a * x + b;
    case Kind::kExp:
      return std::exp(x);
    case Kind::kSqrt:
      return std::sqrt(x);
    case Kind::kPow:
      return a * std::pow(x, b);
    case Kind::kRound:
      return std::nearbyint(x);
    default:
      return NAN;  // with a tensor
  }
}

}  // namespace

double apply_post_op(const PostOp& op, double x, double y) {
  switch (op.kind) {
    case Kind::kAddTensor:
      return x + y;
    case Kind::kSubTensor:
      return x - y;
    case Kind::kMulTensor:
      return x * y;
    case Kind::kDivTensor:
      return x / y;
    case Kind::kMaxTensor:
      return std::fmax(x, y);
    case Kind::kMinTensor:
      return std::fmin(x, y);
    default:
      return apply(op, x);
  }
}

}  // namespace sardonyx
