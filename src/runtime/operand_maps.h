// The tensor maps with which kernels/gemm_tma.h loads the operands of a GEMM or convolution.
#pragma once
#include <vector>

#include "program/program.h"
#include "runtime/gpu_call.h"

namespace sardonyx {

/// The maps of the left and the right operand, for a tiling that loads by TMA, of elements of `bytes` bytes, 1 or 2.
/// Dims are k, row (or column), batch; a copy has 128 bytes of K of a tile. Where rows (columns) are contiguous, dims
/// are row, k, batch. For a convolution's images dims are channels, x, y, image; a copy has 128 bytes of channels under
/// one tap of the filter, or 64.
std::vector<GpuCall::Map> operand_maps(const CopiedOperands& operands, const GpuTiling& tiling,
                                       const ProblemSizes& sizes, const SymbolValues& symbols, std::size_t bytes);

}  // namespace sardonyx
