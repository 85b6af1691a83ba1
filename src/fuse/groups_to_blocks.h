// Internal to fuse/: GEMMs whose rows are sorted by group, for devices without kernels that find a tile's group.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Turns each GEMM of groups (MatMulOp::end) that the device has no tile kernel for into a batched one: its rows are
/// divided into blocks of one group each, so that the rows of a block share a reading of their group's matrix, and a
/// loop moves the blocks' results back.
void groups_to_blocks(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
