// Internal to fuse/: which memory a reduction runs through.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace sardonyx {

/// A reduction that has no order: a sum, a product, an extreme.
struct ReducedDigits {
  Exprs vars;  ///< those with the largest strides first, if all strides are known
  Expr body;
};
/// `reduce` with one variable for each dim of the tensors that it reads. Reductions of a view have variables that stand
/// for several dims: the sum of x[r // 64, r % 64] over r < 4096 is that of x[a, b] over a < 64, b < 64. Empty if
/// quotients or remainders of variables would be left.
std::optional<ReducedDigits> digits_of(const Expr& reduce);

/// The offset in memory that a load reads.
Expr memory_offset(const Expr& load);
/// How many loads of `body` have stride 1 along `var`, of those that depend on any of `reduced`. (Others, such as the
/// mean in a sum of squares, read the same element for the whole reduction.)
int unit_loads(const Expr& body, const Expr& var, const Exprs& reduced);

/// The product of extents, each unknown one taken to be 8 (a batch): to decide whether there are few results.
std::int64_t assumed_product(const Exprs& extents);

}  // namespace sardonyx
