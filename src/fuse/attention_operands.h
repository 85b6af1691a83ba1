// Internal to fuse/: how attention reads its queries, keys and values.
#pragma once
#include <functional>

#include "graph/graph.h"

namespace sardonyx {

/// Whether rows (over `row`) of elements (over `element`) are contiguous in memory, at a constant stride.
bool contiguous_rows(const Expr& x, const Expr& row, const Expr& element);

/// The load of an operand: in place, where the rows of what views and transposes read are contiguous; otherwise x. A
/// constant factor of q and k is split off, and `factor` multiplied by it. limited: the last rows may be the same one.
Expr operand(const Expr& x, const Expr& row, const Expr& element, double* factor = nullptr, bool limited = false);

/// If x loads a tensor whose rows are int8 in pages times a number for each row: a load of the integers, and `scale`
/// becomes the row's. The same with a scale of 1 for rows of int8 or float8 that are only converted, if `converts`.
/// Otherwise empty.
Expr scaled_rows(const Expr& x, const Expr& row, const Expr& element, bool converts, Expr& scale);

/// Queries, keys and values that a loop only moves are loaded where that loop reads them, if that value has an order of
/// its own in memory in which their rows are contiguous (images with channels last). `stays`: loops that are left
/// alone.
void read_ordered_rows(AttentionOp& a, const std::function<bool(const Node*)>& stays);

}  // namespace sardonyx
