// Internal to fuse/: element-wise loops that become part of the tile kernel that they follow.
#pragma once
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx {

struct Epilogue {
  TileKernel kernel;
  std::vector<Node*> loops;  ///< nodes that became part of it, in order
};

/// For each tile node the chain of element-wise loops that are the only users of its result and that the device accepts
/// as its epilogue. The graph is not changed.
std::vector<Epilogue> find_epilogues(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
