#include "runtime/hip_backend.h"

namespace sardonyx {

void HipBackend::add_copies(GpuCall&, const CopiedOperands&, const GpuTiling&, const ProblemSizes&, const SymbolValues&,
                            std::size_t) const {
  fail(ErrorKind::kInternal, "internal error: a tiling for AMD's chips with tensor maps");
}

std::shared_ptr<GpuModule> HipBackend::load_object(const std::string& object) const { return gpu().load(object); }

}  // namespace sardonyx
