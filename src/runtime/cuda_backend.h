// NVIDIA's GPUs through the CUDA driver. Programs hold PTX; each kernel is compiled when a run first needs it.
#pragma once
#include "runtime/gpu_backend.h"

namespace sardonyx {

class CudaBackend : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;
  /// Adds tensor maps for TMA.
  void add_copies(GpuCall& call, const CopiedOperands& operands, const GpuTiling& tiling, const ProblemSizes& sizes,
                  const SymbolValues& symbols, std::size_t bytes) const override;

 protected:
  std::shared_ptr<GpuModule> load_object(const std::string& object) const override;
};

}  // namespace sardonyx
