// Products on Hopper whose operands its copy engine (TMA) fetches, kernels/gemm_tma.h: which operands it can, and the
// tilings there are.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expr/expr.h"
#include "program/kernel_spec.h"
#include "program/tiling.h"

namespace sardonyx::codegen {

struct Windows;

/// An operand of a product as what it is in memory: element [z, line, k] is at offset + z * batch + line * pitch + k.
/// In elements; pitch and batch are such that each line begins at a multiple of 16 bytes if the buffer does.
struct CopiedOperand {
  std::int64_t offset = 0, pitch = 0, batch = 0;
};

/// Of an operand whose element k = vec * index + j is at offset + j. Empty where it is not of that form, or lies where
/// the copy engine can't read (pitches that are no multiple of 16 bytes or beyond 2^40 bytes). `batches`: of z.
std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth);

/// Few channels under taps side by side become more channels under one tap. Empty where the copy engine can't read
/// them: channels that are no multiple of 32 then or do not lie side by side, strides above 8, windows that reach
/// farther than it counts.
std::optional<CopiedWindows> copied_windows(const Windows& w);

struct TmaCandidate {
  std::string kernel;  ///< a call of kernels/gemm_tma.h without its arguments
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic LDS
  LaunchBounds bounds;
};
/// For sums over `depth` products. `full`: the columns are a multiple of 8. `whole`: operands are fetched by
/// 64 k's, or are a multiple of as many.
std::vector<TmaCandidate> tma_candidates(std::int64_t depth, bool full, bool whole);

}  // namespace sardonyx::codegen
