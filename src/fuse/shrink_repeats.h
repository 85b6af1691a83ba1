// Internal to fuse/: tensors that hold the same elements again and again.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A dim along which all elements of a loop's output are equal (a mask that an exporter expands for all queries)
/// becomes 1, where only expressions load the tensor: it takes less memory and its reads stay in caches.
void shrink_repeats(Graph& g);

}  // namespace sardonyx
