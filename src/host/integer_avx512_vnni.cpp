// The kernels of integer_kernels.h for AVX512-VNNI.
#include <immintrin.h>

#include <cstddef>

#include "host/integer_kernels.h"

namespace sardonyx::host {
namespace avx512_vnni {
namespace {
#include "host/integer_avx512_vnni.inc"
}
}  // namespace avx512_vnni

using namespace avx512_vnni;
const IntegerKernels kIntegerAvx512Vnni = {"AVX512-VNNI", true,         kByteColumns,      4,        4,
                                           pack_byte_row, byte_row_sum, pack_byte_columns, byte_gemm};

}  // namespace sardonyx::host
