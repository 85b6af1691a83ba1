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

/// Element k of the `bits`-bit numbers packed into the bytes of the last dim of `packed`, low bits first, as uint8.
/// `i`: the other indices, and any last one.
Expr unpack(const Value* packed, Exprs i, const Expr& k, std::int64_t bits);

}  // namespace sardonyx::contrib
