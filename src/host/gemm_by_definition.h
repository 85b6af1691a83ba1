// GEMM by its definition, for the few sizes that no kernel supports (K is 0).
#pragma once
#include <vector>

#include "host/gemm.h"

namespace sardonyx::host {

/// out = post(a . b) for float32 tensors, as GemmDesc defines it.
void gemm_by_definition(const GemmDesc& d, const void* a, const void* b, const std::vector<const void*>& operands,
                        void* out);

}  // namespace sardonyx::host
