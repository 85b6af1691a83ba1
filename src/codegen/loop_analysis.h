// What code generation for any target wants to know of a loop's body. Bodies have flat loads (flatten_loads).
#pragma once
#include <optional>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// Merges adjacent variables (outermost first) that all accesses run through as through one; body and store (the offset
/// written, or empty) are rewritten.
Exprs merge_vars(Exprs vars, Expr& body, Expr& store);
/// The same for the variables of reductions inside `e`.
Expr merge_reduce_vars(const Expr& e);
/// Reductions of `e` that are always evaluated (not on one side of a select), operands first.
void top_reductions(const Expr& e, Exprs& out);
/// Whether the reductions inside r are among `reductions` and the same for all that r runs over.
bool reduces_known(const Expr& r, const Exprs& reductions);
/// Whether reductions run better side by side over `inner` (contiguous in memory) than one after another.
bool side_by_side(const Exprs& reductions, const Expr& inner);
/// A kernel of one stage: out[offset] = body over vars (outermost first), of which none has the extent 1, in the order
/// of the output's memory and merged where possible.
struct FlatLoop {
  Exprs vars;
  Expr body, offset;
};
FlatLoop flat_loop(const Stage& stage);
/// A kernel whose stages have no variables of their own, as one loop: each stored stage is an output, whose body loads
/// nothing that the kernel computes. `vars` as in FlatLoop, in the order of the last output's memory.
struct PointLoop {
  struct Output {
    const Value* out = nullptr;
    Expr body, offset;
  };
  Exprs vars;
  std::vector<Output> outputs;
};
/// Nothing for kernels with other stages, or stages that load what others store elsewhere than at their own point.
std::optional<PointLoop> point_loop(const LoopKernel& kernel);
/// A constant that divides the index expression e whatever its variables and symbols are; 0 for the constant 0.
std::int64_t divisor_of(const Expr& e);
/// Rough number of operations of one evaluation; a reduction multiplies by its extents.
Expr cost_of(const Expr& e);

}  // namespace sardonyx::codegen
