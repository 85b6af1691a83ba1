// Internal to fuse/: GEMMs that a model writes as element-wise products and their sums.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Replaces sums over products of broadcast tensors, sum{k}(a[.., i, k] * b[.., j, k]), by GEMMs: each factor is
/// broadcast along a dim that the other has. Models write state-space recurrences and einsum this way. As a loop, each
/// product would be computed, or even stored, i * j * k times. Both factors may be products themselves; their factors
/// go to the side whose dims they have. Sums over several dims become one over their product. A remark says why other
/// sums of products of two tensors stay.
void reduce_to_gemm(Graph& g, const FuseOptions& options);

}  // namespace sardonyx
