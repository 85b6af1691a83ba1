// Internal to fuse/: long sums with few results, for devices that run thousands of them at once.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A reduction of many elements to few results becomes two: of parts, by as many workgroups as a card wants, and of
/// their results. Which sizes are many and few is a matter of GPUs; see split.cpp.
void split_reductions(Graph& g);

}  // namespace sardonyx
