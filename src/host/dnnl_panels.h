// GEMM of many rows with a constant matrix. Only dnnl_*.cpp include this.
#pragma once
#include <memory>

#include "host/dnnl_common.h"
#include "host/gemm.h"
#include "host/gemm_problem.h"

namespace sardonyx::host {

/// A kernel for `problem` with the epilogue of `desc`. Null if it is not of this kind, if the epilogue is not
/// supported, or if it would not be faster than oneDNN's: the matrix is too small for prefetching, or there is no
/// AVX-512.
std::shared_ptr<const TileKernel> make_panel_kernel(const GemmDesc& desc, const GemmProblem& problem);

}  // namespace sardonyx::host
