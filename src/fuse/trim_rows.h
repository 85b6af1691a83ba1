// GEMMs of whose result only one row is used.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// A GEMM whose users all read the same row of its result (the logits of the last token) computes only that row. A
/// remark says where one user reads a single row and the GEMM still computes all.
void trim_rows(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
