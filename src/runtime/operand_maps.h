// The tensor maps with which kernels/gemm_tma.h loads the operands of a GEMM or convolution.
#pragma once
#include <vector>

#include "program/program.h"
#include "runtime/gpu_call.h"

namespace sardonyx {

/// Of the left and the right operand, for a tiling that copies; dims are k, row (column), batch, and a copy is of 64
/// elements along K of a tile. Of a convolution's images dims are channels, x, y, image, and a copy is of 64 channels
/// under one tap of the filter.
std::vector<GpuCall::Map> operand_maps(const CopiedOperands& operands, const GpuTiling& tiling,
                                       const ProblemSizes& sizes, const SymbolValues& symbols);

}  // namespace sardonyx
