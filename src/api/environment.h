// The environment variables that the library's interfaces read; the components below never read the environment.
#pragma once
#include "compile/ptxas.h"

namespace sardonyx {

/// SARDONYX_PTXAS, PATH, CUDA_HOME and CUDA_PATH.
PtxasSearch ptxas_search_of_environment();
/// listen_to_profilers() with NVTX_INJECTION64_PATH, which NVIDIA's profilers set.
void listen_to_profilers_of_environment();

}  // namespace sardonyx
