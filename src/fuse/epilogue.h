// Internal to fuse/: loops that melt into the tile kernel before them.
#pragma once
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx {

struct Epilogue {
  TileKernel kernel;
  std::vector<Node*> loops;  ///< nodes that became part of it, in order
};

/// For each tile node the chain of element-wise loops that alone use its result and that the device takes as its
/// epilogue.
std::vector<Epilogue> find_epilogues(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
