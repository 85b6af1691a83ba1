// GEMM of few rows with a large constant matrix. Only dnnl_*.cpp include this.
#pragma once
#include <memory>

#include "host/dnnl_common.h"
#include "host/gemm.h"
#include "host/gemm_problem.h"

namespace sardonyx::host {

/// A kernel without epilogue for `problem`, or null if it is not of this kind. These GEMMs are bound by memory
/// bandwidth, of which oneDNN's kernel reaches two thirds of what this one reaches by prefetching.
std::shared_ptr<const TileKernel> make_few_rows_kernel(const GemmDesc& desc, const GemmProblem& problem);

}  // namespace sardonyx::host
