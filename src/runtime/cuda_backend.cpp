#include "runtime/cuda_backend.h"

#include "compile/ptxas.h"
#include "runtime/operand_maps.h"

namespace sardonyx {

std::shared_ptr<GpuModule> CudaBackend::load_object(const std::string& object) const {
  return gpu().load(object, [cache = options().cache, search = options().ptxas](const std::string& ptx,
                                                                                const std::string& chip, int cuda) {
    return assemble_here(ptx, {chip, cuda}, cache.get(), search);
  });
}

void CudaBackend::add_copies(GpuCall& call, const CopiedOperands& operands, const GpuTiling& tiling,
                             const ProblemSizes& sizes, const SymbolValues& symbols, std::size_t bytes) const {
  call.add_maps(gpu(), operand_maps(operands, tiling, sizes, symbols, bytes));
}

}  // namespace sardonyx
