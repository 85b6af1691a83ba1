// Products on Hopper whose operands its copy engine (TMA) fetches, kernels/gemm_tma.h: which operands it can, and the
// tilings there are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/tiling.h"
#include "expr/expr.h"

namespace sardonyx::codegen {

/// An operand of a product as what it is in memory: element [z, line, k] is at offset + z * batch + line * pitch + k.
/// In elements; pitch and batch are such that each line begins at a multiple of 16 bytes if the buffer does.
struct CopiedOperand {
  std::int64_t offset = 0, pitch = 0, batch = 0;
};

/// Of an operand whose element k = vec * index + j is at offset + j. Empty where it is not of that form, or lies where
/// the copy engine can't read (pitches that are no multiple of 16 bytes or beyond 2^40 bytes). `batches`: of z.
std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth);

struct TmaCandidate {
  std::string kernel;  ///< a call of kernels/gemm_tma.h without its arguments
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic LDS
  std::string bounds;        ///< directives of its launch
};
/// For sums over `depth` products.
std::vector<TmaCandidate> tma_candidates(std::int64_t depth);

}  // namespace sardonyx::codegen
