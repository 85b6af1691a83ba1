// The kernels of simd.h for AVX-512 F, BW, DQ and VL.
#include <immintrin.h>

#include "host/integer_kernels.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace avx512 {
namespace {
#include "host/simd_kernels.inc"
}
}  // namespace avx512

const SimdKernels kSimdAvx512 = SARDONYX_SIMD_TABLE(avx512, "avx512");
const IntegerKernels kIntegerAvx512 = SARDONYX_INTEGER_TABLE(avx512, "AVX-512");

}  // namespace sardonyx::host
