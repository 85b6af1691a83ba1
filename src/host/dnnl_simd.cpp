// Chooses our own vector kernels by the instruction set that oneDNN selected.
#include <oneapi/dnnl/dnnl.hpp>

#include "host/simd.h"

namespace sardonyx::host {

const SimdKernels& simd() {
  static const SimdKernels& chosen = [&]() -> const SimdKernels& {
    // oneDNN's values are bit sets: a newer instruction set contains the bits of an older one.
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto has = [&](dnnl::cpu_isa set) {
      return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
    };
    if (has(dnnl::cpu_isa::avx512_core)) return kSimdAvx512;
    if (has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return kSimdAvx2;
    return kSimdBaseline;
  }();
  return chosen;
}

}  // namespace sardonyx::host
