// Internal to fuse/: long reductions with few results, for devices that run thousands of threads.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Splits a reduction of many elements to few results in two: partial reductions, enough to keep all workgroups busy,
/// and the reduction of their results. split_reductions.cpp has the limits, which are for GPUs.
void split_reductions(Graph& g);

}  // namespace sardonyx
