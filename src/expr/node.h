// Internal to expr/: makes a node without simplifying it.
#pragma once
#include "expr/expr.h"

namespace sardonyx {
Expr make_node(Op op, DType dtype, Exprs args, std::int64_t i = 0, double f = 0, const Value* value = nullptr,
               std::string name = {}, Exprs vars = {});
}
