// Internal to fuse/: the order of dims in memory.
#pragma once
#include <vector>

#include "fuse/epilogues.h"
#include "fuse/schedule.h"

namespace sardonyx {

/// Chooses storage orders: channels last around convolutions that run as tile kernels and for windows that are read
/// along their channels, row-major elsewhere. Adds copies where a value is needed row-major, and makes loops of views
/// that no longer have the same memory order as their source.
void choose_layouts(Graph& g, std::vector<Epilogue>& epilogues, const FuseOptions& options);

}  // namespace sardonyx
