// New rows of caches are read where a product has left them.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// The routine `append` takes new keys and values at any distance from each other. Where they are a copy of a part of a
/// larger tensor (queries, keys and values of one product), it reads that tensor instead.
void append_from_source(Graph& g);

}  // namespace sardonyx
