// Internal to fuse/: integer tensors whose elements are functions of their position.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// Positions, their differences and running sums, and conditions on them (a causal mask that an exporter spells out)
/// are computed from their indices rather than stored: loads of such tensors become expressions without loads.
/// Attention then sees which keys a mask allows.
void find_closed_forms(Graph& g);

}  // namespace sardonyx
