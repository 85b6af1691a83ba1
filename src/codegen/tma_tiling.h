// GEMM and convolution on Hopper with operands loaded by the copy engine (TMA), kernels/gemm_tma.h: which operands it
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

/// An operand whose element k = vec * index + j is at offset + j; its buffer is left open. Empty if it does not have
/// that form, or TMA cannot load it (strides that are no multiple of 16 bytes or exceed 2^40 bytes). A vector of 16
/// bytes has `vec` elements.
std::optional<CopiedOperand> copied_operand(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                            std::int64_t vec, std::int64_t depth);

/// The same for an operand of 16 bits whose lines are contiguous: element k = index of line i is at offset + i.
/// `inner`: of more lines than these, each `inner` belong to another matrix; null if all are contiguous.
std::optional<CopiedOperand> copied_across(const Expr& offset, const Expr& z, const Expr& line, const Expr& index,
                                           const Expr& inner);

/// Folds few channels under neighbouring taps into more channels under one tap. Empty if TMA cannot load the result:
/// channels that are no multiple of 64 bytes or not contiguous, strides above 8, windows that exceed its limits. A
/// vector of 16 bytes has `vec` elements.
std::optional<CopiedWindows> copied_windows(const Windows& w, std::int64_t vec = 8);

/// For GEMMs with K = `depth` on a chip with TMA. `full`: the columns are a multiple of 8. `whole`: operands are loaded
/// 128 bytes along K at a time, or K is a multiple of as many. `across`: the columns of b are contiguous, not K.
/// `bytes`: of an element, 1 or 2.
std::vector<KernelCandidate> tma_candidates(const Chip& chip, std::int64_t depth, bool full, bool whole, bool across,
                                            int bytes = 2);

}  // namespace sardonyx::codegen
