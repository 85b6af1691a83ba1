// See environment.h.
#include "api/environment.h"

#include <cstdlib>

#include "support/profiler.h"

namespace sardonyx {
namespace {

std::string variable(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

}  // namespace

PtxasSearch ptxas_search_of_environment() {
  return {variable("SARDONYX_PTXAS"), variable("PATH"), {variable("CUDA_HOME"), variable("CUDA_PATH")}};
}

void listen_to_profilers_of_environment() { listen_to_profilers(variable("NVTX_INJECTION64_PATH")); }

}  // namespace sardonyx
