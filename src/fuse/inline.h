// Internal to fuse/: composing loops.
#pragma once
#include "fuse/schedule.h"

namespace sardonyx {

/// Replaces loads of views and of cheap or single-use loops by what those compute, in place, for all loops and the
/// operands of tile kernels.
void inline_loops(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
