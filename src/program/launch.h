// Conventions between generated kernels and the code that launches them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/layout_gemm.h"

namespace sardonyx {

/// Threads of a workgroup, except for kernels whose tiling says otherwise.
inline constexpr int kGpuThreads = 256;

/// Columns of a work item of a AccumulatorEpilogue (program.h): a multiple of every panel of the host's integer
/// kernels.
inline constexpr std::int64_t kAccumulatorBlock = 256;

/// Columns per thread of gemm_finish (kernels/gemm_split_k.h), the second launch of split-K.
inline constexpr int kGpuFinish = sdx::layout::kFinishColumns;

/// The largest value allowed for a LaunchStep's limit. It leaves enough of 32 bits for a loop counter to pass its end.
inline constexpr std::int64_t kLargestIndex = 0x7fffffff - (std::int64_t{1} << 29);

/// The form in which a kernel receives a divisor n, to divide by a multiplication and a shift (fast_quotient in
/// kernels/gpu.h): ceil(2^(31 + s) / n) in the low half, s = ceil(log2(n)) in the high half. n < 1 counts as 1.
std::uint64_t divisor_argument(std::int64_t n);

/// Bytes of workspace that a GEMM of a vendor's library may use.
inline constexpr std::size_t kLibraryWorkspace = 8 << 20;

/// Activation that a vendor's library applies, in float32, to the sum of product, bias and residual.
enum class GemmActivation : std::uint8_t { kNone, kRelu, kGeluTanh };

}  // namespace sardonyx
