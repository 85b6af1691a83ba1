// Tile kernels computed as they are defined, for the few sizes that the library has no kernel for (sums over nothing).
#pragma once
#include <vector>

#include "host/gemm.h"

namespace sardonyx::tiles {

/// out = post(a . b) for float32 tensors, as host::GemmDesc says.
void gemm_by_definition(const host::GemmDesc& d, const void* a, const void* b, const std::vector<const void*>& operands,
                        void* out);

}  // namespace sardonyx::tiles
