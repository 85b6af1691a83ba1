// Internal to fuse/: the memory that a reduction reads.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace sardonyx {

/// A reduction whose order does not matter: a sum, a product, an extreme.
struct ReducedDigits {
  Exprs vars;  ///< those with the largest strides first, if all strides are known
  Expr body;
  Exprs terms;  ///< each variable of the reduction, over `vars`
};
/// `reduce` with one variable for each dim of the tensors that it reads. Reductions of a view have variables that stand
/// for several dims: the sum of x[r // 64, r % 64] over r < 4096 is that of x[a, b] over a < 64, b < 64. Empty if
/// quotients or remainders of variables would remain.
std::optional<ReducedDigits> digits_of(const Expr& reduce);

/// The offset in memory that a load reads.
Expr memory_offset(const Expr& load);
/// How many loads of `body` have stride 1 along `var`, among those that depend on any of `reduced`. (Others, such as
/// the mean in a sum of squared differences, read the same element for the whole reduction.)
int unit_loads(const Expr& body, const Expr& var, const Exprs& reduced);
/// How many loads in e read neighbouring elements for neighbouring values of the variable. Other indices, also those
/// that are read from memory, may depend on a multiple of it (the head of a channel).
int loads_along(const Expr& e, const Expr& variable);

/// The product of extents; unknown ones count as 8 (a batch). To decide whether there are few results.
std::int64_t assumed_product(const Exprs& extents);

}  // namespace sardonyx
