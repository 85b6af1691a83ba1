// Internal to fuse/: tensors whose elements are equal along a dim.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A dim along which all elements of a loop's output are equal (a mask that an exporter expands for all queries) is
/// reduced to size 1, where only expressions load the tensor. The tensor then takes less memory, and its loads hit the
/// caches. So are the dims of a GEMM's result along which all matrices are equal: products that several heads share.
void shrink_repeats(Graph& g);

}  // namespace sardonyx
