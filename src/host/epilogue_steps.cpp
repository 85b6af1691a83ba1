#include "host/epilogue_steps.h"

#include <algorithm>

#include "support/error.h"

namespace sardonyx::host {
namespace {

// The kinds that apply_steps() in simd_epilogue.inc implements.
bool has_step(PostOp::Kind kind) {
  using Kind = PostOp::Kind;
  switch (kind) {
    case Kind::kAddTensor:
    case Kind::kSubTensor:
    case Kind::kMulTensor:
    case Kind::kMaxTensor:
    case Kind::kMinTensor:
    case Kind::kRelu:
    case Kind::kLeakyRelu:
    case Kind::kClip:
    case Kind::kSigmoid:
    case Kind::kTanh:
    case Kind::kSwish:
    case Kind::kHardSwish:
    case Kind::kHardSigmoid:
    case Kind::kGeluErf:
    case Kind::kLinear:
    case Kind::kAbs:
    case Kind::kSquare:
      return true;
    default:
      return false;
  }
}

/// Empty if the operand has neither one value, one per channel, nor one per element.
std::optional<EpilogueStep::Extent> extent_of(const PostOp& op, const std::vector<std::int64_t>& image) {
  using Extent = EpilogueStep::Extent;
  if (op.dims == image) return Extent::kWhole;
  if (!std::all_of(op.dims.begin(), op.dims.end() - 1, [](std::int64_t x) { return x == 1; })) return {};
  return op.dims.back() == 1 ? Extent::kScalar : Extent::kChannels;
}

}  // namespace

bool has_steps(const std::vector<PostOp>& post, const std::vector<std::int64_t>& image) {
  return std::all_of(post.begin(), post.end(), [&](const PostOp& op) {
    return has_step(op.kind) && (!op.has_operand() || (op.dtype == DType::kFloat32 && extent_of(op, image)));
  });
}

bool has_exponential(const std::vector<PostOp>& post) {
  using Kind = PostOp::Kind;
  return std::ranges::any_of(post, [](const PostOp& op) {
    return op.kind == Kind::kSigmoid || op.kind == Kind::kSwish || op.kind == Kind::kTanh || op.kind == Kind::kGeluErf;
  });
}

std::vector<EpilogueStep> epilogue_steps(const std::vector<PostOp>& post, std::span<const void* const> operands,
                                         const std::vector<std::int64_t>& image) {
  std::vector<EpilogueStep> steps;
  std::size_t operand = 0;
  for (const PostOp& op : post) {
    EpilogueStep s{.kind = op.kind, .alpha = op.alpha, .beta = op.beta};
    if (op.has_operand()) {
      check(operand < operands.size(), "{} operands of an epilogue", operands.size());
      s.operand = static_cast<const float*>(operands[operand++]);
      s.extent = extent_of(op, image).value();
    }
    steps.push_back(s);
  }
  check(operand == operands.size(), "{} operands of an epilogue", operands.size());
  return steps;
}

}  // namespace sardonyx::host
