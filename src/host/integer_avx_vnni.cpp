// The kernels of integer_kernels.h for AVX-VNNI, on CPUs without AVX-512.
#include <immintrin.h>

#include <cstddef>

#include "host/integer_kernels.h"

namespace sardonyx::host {
namespace avx_vnni {
namespace {
typedef __m256i ByteVector;
constexpr int kByteRows = 6;
inline ByteVector splat_bytes(std::int32_t four) { return _mm256_set1_epi32(four); }
#define SARDONYX_DOT_BYTES "%{vex%} vpdpbusd"
template <int... Counts>
struct ByteTiles;
using AllByteTiles = ByteTiles<1, 2, 3, 4, 5, 6>;
#include "host/integer_bytes.inc"
}  // namespace
}  // namespace avx_vnni

using namespace avx_vnni;
const IntegerKernels kIntegerAvxVnni = {"AVX-VNNI",    true,         kByteColumns,      4,        4,
                                        pack_byte_row, byte_row_sum, pack_byte_columns, byte_gemm};

}  // namespace sardonyx::host
