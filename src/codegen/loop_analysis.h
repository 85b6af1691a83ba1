// Analysis of loop bodies for code generation on any target. Bodies have flat loads (flatten_loads).
#pragma once
#include <optional>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// Merges adjacent variables (outermost first) if all accesses run through them as through one; rewrites body and store
/// (the offset that is written, or empty).
Exprs merge_vars(Exprs vars, Expr& body, Expr& store);
/// The same for the variables of reductions inside `e`.
Expr merge_reduce_vars(const Expr& e);
/// Reductions of `e` that are always evaluated (not on one side of a select), operands first.
void top_reductions(const Expr& e, Exprs& out);
/// Whether the reductions inside r are among `reductions`, and the same for all values of r's variables.
bool reduces_known(const Expr& r, const Exprs& reductions);
/// Whether r is the position of an extreme.
bool is_search(const Expr& r);
/// Whether reductions should run side by side over `inner` (contiguous in memory) rather than one after another.
/// `searches`: positions of extremes may.
bool side_by_side(const Exprs& reductions, const Expr& inner, bool searches = false);
/// A kernel of one stage: out[offset] = body over vars (outermost first), none of extent 1, in the order of the
/// output's memory, merged where possible.
struct FlatLoop {
  Exprs vars;
  Expr body, offset;
};
FlatLoop flat_loop(const Stage& stage);
/// The variable whose columns are reduced side by side, if it is not the innermost one: what is reduced lies across
/// memory there (the maximum over neighbours of an image whose channels are last, stored with channels first). It is
/// read several times for each element that is then stored across memory. `least`: its extent, if that is known.
std::optional<Expr> columns_of(const FlatLoop& loop, std::int64_t least);
/// The variable along which samples of an image lie (its channels, which are last), if it is not the innermost one: a
/// sample's place is computed of floats that are loaded, and is the same for all channels. Computing places again for
/// each channel takes longer than storing across memory. `least`: the variable's extent, if that is known.
std::optional<Expr> samples_along(const FlatLoop& loop, std::int64_t least);
/// The same for a kernel of several stages: these get the variable as their innermost one, instead of the kernel as an
/// outer one. Unchanged where nothing is sampled, or where values of stages are kept in registers.
LoopKernel with_channels_inside(LoopKernel kernel, std::int64_t least);
/// A body that computes with a choice by something that is the same along `var` (the part of a concatenation), as a
/// choice of what it computes; other bodies as they are.
Expr as_choice(const Expr& body, const Expr& var);
/// The variable along which a loop reads memory whose innermost variable has fewer than `least` values and runs across
/// it (the channels of an image that is stored with channels last), if the loop computes something. It is then computed
/// side by side, and stored across memory.
std::optional<Expr> long_side(const FlatLoop& loop, std::int64_t least);
/// Whether a loop over `var` has so few values, a known number, that the compiler would unroll it before it could
/// vectorise it, and all that it reads and stores is contiguous.
bool is_short_run(const Expr& body, const Expr& offset, const Expr& var);
/// Loads that run across memory in the innermost loop, and along it with another variable (a transpose).
struct Across {
  std::size_t along = 0;  ///< which variable
  Exprs loads;            ///< those that are always evaluated
};
/// Empty if there are none, or if either variable has fewer than `least` values.
std::optional<Across> reads_across(const FlatLoop& loop, std::int64_t least);
/// The float32 angles of all sines and cosines of e; empty if there are none, one is not always evaluated, or the
/// angles take long to compute.
Exprs certain_angles(const Expr& e);
/// Whether the body selects by what `var` is: a concatenation along the innermost dim.
bool in_parts(const Expr& body, const Expr& var);
/// The body of a loop that computes with a concatenation along `var` (quantises it), as a concatenation of what it
/// computes; empty if there is none, or so many that the loops would take long to compile.
Expr computed_parts(const Expr& body, const Expr& var);
/// Whether e at var + 1 is one more than at var.
bool advances(const Expr& e, const Expr& var);
/// A kernel whose stages have no variables of their own, as one loop: each stored stage is an output, whose body loads
/// nothing that the kernel computes. `vars` as in FlatLoop, in the order of the last output's memory.
struct OutputLoop {
  struct Output {
    const Value* out = nullptr;
    Expr body, offset;
  };
  Exprs vars;
  std::vector<Output> outputs;
};
/// Empty for kernels with other stages, or with stages that load what others store at other positions than their own.
std::optional<OutputLoop> output_loop(const LoopKernel& kernel);
/// A constant that divides the index expression e for all values of its variables and symbols; 0 for the constant 0.
std::int64_t divisor_of(const Expr& e);
/// Approximate number of operations of one evaluation; a reduction multiplies by its extents.
Expr cost_of(const Expr& e);

}  // namespace sardonyx::codegen
