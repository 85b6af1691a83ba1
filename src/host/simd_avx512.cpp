// The kernels of simd.h for AVX-512 F, BW, DQ and VL.
#include <immintrin.h>

#include "host/simd.h"

namespace sardonyx::host {
namespace avx512 {
namespace {
#include "host/simd_kernels.inc"
}
}  // namespace avx512

const SimdKernels kSimdAvx512 = SARDONYX_SIMD_TABLE(avx512, "avx512");

}  // namespace sardonyx::host
