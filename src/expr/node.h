// Internal to expr/: a node as it is, without simplification.
#pragma once
#include "expr/expr.h"

namespace sardonyx {
Expr make_node(Op op, DType dtype, Exprs args, std::int64_t i = 0, double f = 0, const Value* value = nullptr,
               std::string name = {}, Exprs vars = {});
}
