// Internal to fuse/: the order of dims in memory.
#pragma once
#include <vector>

#include "fuse/epilogues.h"
#include "fuse/schedule.h"

namespace sardonyx {

/// Chooses storage orders: channels last around convolutions that run as tile kernels, row-major elsewhere. Adds copies
/// where a value is needed row-major, and turns views that no longer are the same memory into loops.
void choose_layouts(Graph& g, std::vector<Epilogue>& epilogues, const FuseOptions& options);

}  // namespace sardonyx
