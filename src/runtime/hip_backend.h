// AMD's GPUs through HIP, and simulated ones.
#pragma once
#include "runtime/gpu_backend.h"

namespace sardonyx {

class HipBackend : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;
  /// Throws Error(kInternal): no tiling for AMD chips loads tiles by TMA.
  void add_copies(GpuCall& call, const CopiedOperands& operands, const GpuTiling& tiling, const ProblemSizes& sizes,
                  const SymbolValues& symbols, std::size_t bytes) const override;

 protected:
  /// Loads a code object.
  std::shared_ptr<GpuModule> load_object(const std::string& object) const override;
};

}  // namespace sardonyx
