// GEMMs and convolutions on Hopper whose operands its copy engine (TMA) loads, kernels/gemm_tma.h: which operands it
// can load, and the tilings.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/kernel_family.h"
#include "expr/expr.h"
#include "program/program.h"

namespace sardonyx::codegen {

struct Windows;

/// Of an operand whose element k = vec * index + j is at offset + j; its buffer is left open. Empty where it is not of
/// that form, or lies where the copy engine can't read (pitches that are no multiple of 16 bytes or beyond 2^40 bytes).
std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth);

/// Few channels under taps side by side become more channels under one tap. Empty where the copy engine can't read
/// them: channels that are no multiple of 32 then or do not lie side by side, strides above 8, windows that reach
/// farther than it counts.
std::optional<CopiedWindows> copied_windows(const Windows& w);

/// For sums over `depth` products on a chip with TMA. `full`: the columns are a multiple of 8. `whole`: operands are
/// loaded by 64 elements along K, or K is a multiple of as many.
std::vector<KernelCandidate> tma_candidates(const Chip& chip, std::int64_t depth, bool full, bool whole);

}  // namespace sardonyx::codegen
