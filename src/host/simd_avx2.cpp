// The kernels of simd.h for AVX2, FMA and F16C.
#include <immintrin.h>

#include "host/integer_kernels.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace avx2 {
namespace {
#include "host/simd_kernels.inc"
}
}  // namespace avx2

const SimdKernels kSimdAvx2 = SARDONYX_SIMD_TABLE(avx2, "avx2");
const IntegerKernels kIntegerAvx2 = SARDONYX_INTEGER_TABLE(avx2, "AVX2");

}  // namespace sardonyx::host
