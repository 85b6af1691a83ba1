// Internal to fuse/: long reductions with few results, and reductions of short runs of memory.
#pragma once
#include <vector>

#include "fuse/epilogues.h"
#include "fuse/options.h"

namespace sardonyx {

/// Splits a reduction of many elements to few results in two: partial reductions, enough to keep all workgroups busy,
/// and the reduction of their results. With few_threads only very long ones are divided, and those whose elements are
/// contiguous in runs shorter than a vector (the channels of a group, with channels last), which become columns. A
/// reduction that stays whole gets one variable for each dim that it reads. split_reductions.cpp has the limits. A
/// remark says why a long reduction stays whole. What `epilogues` read is not replaced.
void split_reductions(Graph& g, const std::vector<Epilogue>& epilogues, const FuseOptions& options);

}  // namespace sardonyx
