// The kernels of simd.h for any CPU.
#include <emmintrin.h>

#include "host/simd.h"

namespace sardonyx::host {
namespace baseline {
namespace {
#include "host/simd_kernels.inc"
}
}  // namespace baseline

const SimdKernels kSimdBaseline = SARDONYX_SIMD_TABLE(baseline, "baseline");

}  // namespace sardonyx::host
