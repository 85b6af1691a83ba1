// Which kernels a run needs, before its steps are prepared.
#pragma once
#include <cstddef>
#include <functional>
#include <set>
#include <vector>

#include "runtime/run_state.h"

namespace sardonyx {

/// The candidates of a choice that are launched, or timed, for sizes that are all known.
using TakenCandidates = std::function<std::vector<std::size_t>(const Choice&, const SymbolValues&)>;

/// The kernels of the block's steps that run for these sizes. Steps whose sizes are not known yet count as far as their
/// kernels do not depend on them. Of an If neither branch counts: the executor asks for the one that it takes.
std::set<int> needed_kernels(const Block& block, const RunState& run, const TakenCandidates& taken);

}  // namespace sardonyx
