// Internal to fuse/: long reductions with few results, for devices that run thousands of threads.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Splits a reduction of many elements to few results in two: partial reductions, enough to keep all workgroups busy,
/// and the reduction of their results. split_reductions.cpp has the limits, which are for GPUs. A remark says why a
/// long reduction stays whole.
void split_reductions(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
