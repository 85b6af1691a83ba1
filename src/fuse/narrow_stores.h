// Internal to fuse/: loops whose result is only narrowed and moved.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Where one other loop does nothing but convert a loop's result to a smaller type, in another order maybe, the loop
/// stores that type itself. The other loop then only moves elements, which a GEMM reads where they are. For loops that
/// are not inlined into the other: large ones, and reductions.
void narrow_stores(Graph& g);

}  // namespace sardonyx
