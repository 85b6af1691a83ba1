// Internal to fuse/: inlining of loops.
#pragma once
#include "fuse/schedule.h"

namespace sardonyx {

/// Replaces loads of views, and of loops that are cheap or have a single use, by what those compute, in all loops and
/// in the operands of tile kernels.
void inline_loops(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
