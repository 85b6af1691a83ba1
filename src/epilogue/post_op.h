// The steps of an epilogue: what a GEMM or a convolution applies to each result before storing it.
#pragma once
#include <cstdint>
#include <vector>

#include "epilogue/post_kind.h"
#include "support/dtype.h"

namespace sardonyx {

/// One step of an epilogue, applied in float32 to the value x at its place in the output. Steps run in order.
struct PostOp {
  using Kind = PostKind;
  Kind kind;
  float alpha = 0;
  float beta = 0;
  /// The operand's dims: of the output's rank, in its axis order (row-major), each 1 or the output's.
  std::vector<std::int64_t> dims;
  /// The operand's element type: float32, float16 or bfloat16.
  DType dtype = DType::kFloat32;

  bool has_operand() const { return sardonyx::has_operand(kind); }
};

/// The step's definition, in double precision, for x and the operand's element y (if it has an operand).
double apply_post_op(const PostOp& op, double x, double y = 0);

}  // namespace sardonyx
