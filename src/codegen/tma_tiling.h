// Products on Hopper whose operands its copy engine (TMA) fetches, kernels/gemm_tma.h: which operands it can, and the
// tilings there are.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/tiling.h"
#include "expr/expr.h"

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

/// The left operand of a convolution in memory, of which the copy engine fetches what lies under one tap of the filter
/// for many outputs at a time ("im2col"). In elements; what is first or in pairs is of x, then of y.
struct CopiedWindows {
  Expr offset, images;
  std::array<Expr, 2> sizes, out, pitches;  ///< of the input, of the output, between neighbours of the input
  Expr pitch;                               ///< between images
  std::array<Expr, 2> pads;
  std::array<std::int64_t, 2> strides{}, taps{};
  std::int64_t channels = 0;  ///< 64 are fetched at a time, or 32 where they are no multiple of 64
};

/// Few channels under taps side by side become more channels under one tap. Empty where the copy engine can't read
/// them: channels that are no multiple of 32 then or do not lie side by side, strides above 8, windows that reach
/// farther than it counts.
std::optional<CopiedWindows> copied_windows(const Windows& w);

struct TmaCandidate {
  std::string kernel;  ///< a call of kernels/gemm_tma.h without its arguments
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic LDS
  std::string bounds;        ///< directives of its launch
};
/// For sums over `depth` products. `full`: the columns are a multiple of 8. `whole`: operands are fetched by
/// 64 k's, or are a multiple of as many.
std::vector<TmaCandidate> tma_candidates(std::int64_t depth, bool full, bool whole);

}  // namespace sardonyx::codegen
