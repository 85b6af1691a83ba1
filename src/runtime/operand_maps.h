// The tensor maps with which kernels/gemm_tma.h fetches the operands of a product.
#pragma once
#include <vector>

#include "program/program.h"
#include "runtime/gpu_call.h"
#include "runtime/tile_tuner.h"

namespace sardonyx {

/// Of the left and the right operand of a step, for a tiling that copies; dims are k, row (column), batch, and a copy
/// is of 64 k's of a tile. Of a convolution's images dims are channels, x, y, image, and a copy is of 64 channels under
/// one tap of the filter.
std::vector<GpuCall::Map> operand_maps(const TileLaunchStep& step, const GpuTiling& tiling, const TileSizes& sizes,
                                       const SymbolValues& symbols);

}  // namespace sardonyx
