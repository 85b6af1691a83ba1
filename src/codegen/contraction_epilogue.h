// The text of a contraction's epilogue: how kernels store a sum (kernels/gemm_problem.h).
#pragma once
#include <string>

#include "codegen/contraction.h"
#include "codegen/emit.h"

namespace sardonyx::codegen {

/// Emits the epilogue, and returns the declaration of the struct that holds what it reads: this is read by a separate
/// function before the sum is complete, as far as it fits in registers. `fetches`: for kernels/gemm_tma.h, which
/// prefetches operands that are read by rows to L2, and stores eight results at a time; `octets`: kernels read and
/// store eight at a time without it too.
std::string emit_epilogue(Emitter& e, const Contraction& c, const Value& accumulator, bool fetches, bool octets);

}  // namespace sardonyx::codegen
