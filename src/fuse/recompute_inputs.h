// A routine computes an input itself if nothing else reads it (fuse/routine_inputs.h). Where loops read it too (the
// logarithms of what is left of light, and their running sum), they compute it again, if that is cheap; where several
// routines read it (the rows of a graph's edges), each has a loop of its own.
#pragma once
#include "fuse/options.h"
#include "graph/graph.h"

namespace sardonyx {

void recompute_routine_inputs(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
