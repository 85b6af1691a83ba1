// Normalisation shared by several operators.
#pragma once
#include <vector>

#include "ops/op.h"

namespace sardonyx {

/// Mean and (population) variance of x over `axes`, which stay as dims of 1, in `t`.
struct Moments {
  Value *mean, *variance;
};
Moments moments(Graph& g, Value* x, const std::vector<int>& axes, DType t);

/// Layer normalisation over the dims from `axis` on, in fp32 (fp64 for fp64): ((x - mean) / sqrt(variance + epsilon)) *
/// scale + bias with scale and bias (null: none) broadcast to x. `rms`: without the mean. The result has dtype `out`.
struct LayerNorm {
  Value *y, *mean /* null for rms */, *inverse /* 1 / sqrt(variance + epsilon) */;
};
LayerNorm layer_norm(Graph& g, Value* x, Value* scale, Value* bias, int axis, double epsilon, bool rms, DType out);

}  // namespace sardonyx
