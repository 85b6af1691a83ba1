// Conventions between generated kernels and whoever launches them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/layout_gemm.h"

namespace sardonyx {

/// Threads of a workgroup, except for tile kernels whose tiling says otherwise.
inline constexpr int kGpuThreads = 256;

/// Columns that each thread of TileLaunchStep::finish computes.
inline constexpr int kGpuFinish = sdx::layout::kFinishColumns;

/// The most that a LaunchStep's limit may evaluate to. Indices of 32 bits leave room for a loop counter to pass its
/// end.
inline constexpr std::int64_t kLargestIndex = 0x7fffffff - (std::int64_t{1} << 29);

/// What a kernel takes for a divisor n, so that it divides by a multiplication and a shift (fast_quotient in
/// kernels/gpu.h): ceil(2^(31 + s) / n) in the low half, s = ceil(log2(n)) in the high half. n < 1 counts as 1.
std::uint64_t divisor_argument(std::int64_t n);

/// Bytes of workspace that a product of a vendor's library may use.
inline constexpr std::size_t kLibraryWorkspace = 8 << 20;

/// Applied by a vendor's library, in float32, to the sum of product, bias and residual.
enum class ProductActivation : std::uint8_t { kNone, kRelu, kGeluTanh };

}  // namespace sardonyx
