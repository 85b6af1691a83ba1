// Chooses our own vector kernels by the instruction set that oneDNN selected.
#include <sys/syscall.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "host/integer_kernels.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

/// Whether oneDNN may use the instructions. Its values are bit sets: a newer instruction set contains an older one's.
bool has(dnnl::cpu_isa set) {
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(set)) == static_cast<unsigned>(set);
}

bool has_avx2() { return has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }

/// Linux keeps the state of AMX's tiles only for processes that ask for it.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

VectorLevel vector_level() {
  if (has(dnnl::cpu_isa::avx512_core)) return VectorLevel::kAvx512;
  return has_avx2() ? VectorLevel::kAvx2 : VectorLevel::kBaseline;
}

std::int64_t l1_cache_bytes() {
  static const std::int64_t bytes = [] {
    const long known = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return std::int64_t{known > 0 ? known : 1 << 15};
  }();
  return bytes;
}

std::int64_t l2_cache_bytes() {
  static const std::int64_t bytes = [] {
    const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::int64_t{known > 0 ? known : 1 << 20};
  }();
  return bytes;
}

const SimdKernels& simd() {
  static const SimdKernels& chosen = [&]() -> const SimdKernels& {
    const VectorLevel level = vector_level();
    if (level == VectorLevel::kAvx512) return kSimdAvx512;
    return level == VectorLevel::kAvx2 ? kSimdAvx2 : kSimdBaseline;
  }();
  return chosen;
}

const IntegerKernels& integer_kernels() {
  static const IntegerKernels& chosen = [&]() -> const IntegerKernels& {
    if (has(dnnl::cpu_isa::avx512_core_amx) && may_use_tiles()) return kIntegerAmx;
    if (has(dnnl::cpu_isa::avx512_core_vnni)) return kIntegerAvx512Vnni;
    if (has(dnnl::cpu_isa::avx512_core)) return kIntegerAvx512;
    if (has(dnnl::cpu_isa::avx2_vnni) && has_avx2()) return kIntegerAvxVnni;
    return has_avx2() ? kIntegerAvx2 : kIntegerBaseline;
  }();
  return chosen;
}

}  // namespace sardonyx::host
