// Shared by the files of com.microsoft operators.
#pragma once
#include <string>
#include <vector>

#include "ops/op.h"

namespace sardonyx::contrib {

Expr gelu(const Expr& x);       ///< by erf
Expr fast_gelu(const Expr& x);  ///< by tanh
/// The activation that FusedConv, FusedGemm and FusedMatMulActivation name, with its parameters in order; empty: none.
Expr fused_activation(OpContext& c, const std::string& name, const Expr& x, const std::vector<float>& params);
/// The same on a tensor, computed in fp32.
Value* activate(OpContext& c, Value* x, const std::string& name, const std::vector<float>& params);

}  // namespace sardonyx::contrib
