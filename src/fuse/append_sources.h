// KV cache appends read new rows where a GEMM wrote them.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// The routine `append` takes new keys and values at any row stride and offset. Where its inputs are copies of parts of
/// a larger tensor (the merged product of queries, keys and values), it reads that tensor instead. A remark says which
/// rows are copied first.
void append_from_source(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
