// GEMM through oneDNN. The interface does not expose oneDNN.
#pragma once
#include <memory>
#include <string>

#include "host/gemm.h"
#include "host/gemm_problem.h"

namespace sardonyx::host {

/// The kernel for `problem` with the types, epilogue and threads of `desc`, or null and the reason.
std::shared_ptr<const TileKernel> make_dnnl_gemm(const GemmDesc& desc, const GemmProblem& problem, std::string& why);

}  // namespace sardonyx::host
