// Internal to fuse/: what a loop does along a row. `outer_at`: for each dim of its output the index of the row kernel's
// outer variable, or -1 for a dim of the row or of 1.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// Whether the loop computes more than one element of each row.
bool has_inner(const Node& loop, const std::vector<int>& outer_at);
/// Elements of the loop's row, if it has more than one, and of what each of its reductions sums up; 0 where that is not
/// known.
std::vector<std::int64_t> row_lengths(const Node& loop, const std::vector<int>& outer_at);
/// Raises `longest` to the elements that each of the loop's reductions sums up. Returns whether all are known.
bool most_terms(const Node& loop, std::int64_t& longest);
/// The variable of the result's innermost dim in memory, without those of extent 1; empty if there is none.
Exprs innermost_of(const Node& loop);
/// The outer variable along which the loop's result runs in memory; -1 where it runs along the row.
int innermost_outer(const Node& loop, const std::vector<int>& outer_at);

}  // namespace sardonyx
