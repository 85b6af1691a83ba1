// Products of many rows with a constant matrix. Only dnnl_*.cpp include this.
#pragma once
#include <memory>

#include "host/dnnl_common.h"
#include "host/gemm.h"
#include "host/gemm_problem.h"

namespace sardonyx::host {

/// A kernel for `problem` with the epilogue of `desc`, or null if it is not of that kind, has no steps for the epilogue
/// or would not be faster than oneDNN's: the matrix is too small to be worth prefetching, or there is no AVX-512.
std::shared_ptr<const TileKernel> make_panel_kernel(const GemmDesc& desc, const GemmProblem& problem);

}  // namespace sardonyx::host
