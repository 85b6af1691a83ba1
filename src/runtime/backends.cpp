#include "runtime/backends.h"

#include "device/memory.h"
#include "runtime/cuda_backend.h"
#include "runtime/hip_backend.h"
#include "runtime/host_backend.h"

namespace sardonyx {

std::unique_ptr<Backend> make_backend(BackendOptions options) {
  if (!options.memory) return std::make_unique<HostBackend>(std::move(options.communicator));
  if (options.memory->gpu().info().api == GpuApi::kCuda) return std::make_unique<CudaBackend>(std::move(options));
  return std::make_unique<HipBackend>(std::move(options));
}

}  // namespace sardonyx
