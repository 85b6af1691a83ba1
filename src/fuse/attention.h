// Internal to fuse/: softmax(Q K^T) V as one tile kernel.
#pragma once
#include "fuse/schedule.h"

namespace sardonyx {

/// Replaces matmul, softmax and matmul by an AttentionOp where the device takes it. Runs after loops have been inlined.
void find_attention(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
