// The kernels of simd.h for any CPU.
#include <emmintrin.h>

#include "host/integer_kernels.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace baseline {
namespace {
#include "host/simd_kernels.inc"
}
}  // namespace baseline

const SimdKernels kSimdBaseline = SARDONYX_SIMD_TABLE(baseline, "baseline");
const IntegerKernels kIntegerBaseline = SARDONYX_INTEGER_TABLE(baseline, "SSE2");

}  // namespace sardonyx::host
