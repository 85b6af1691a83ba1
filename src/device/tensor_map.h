// Tensor maps: how the copy engine of NVIDIA's newer cards (sm_90 and later) finds the part of a tensor that a kernel
// asks for. They are made on the host for an address, and given to kernels as parameters.
#pragma once
#include <array>
#include <cstdint>

namespace sardonyx {

/// A tensor of 16-bit elements, its innermost dim first. Copies are of `box` elements, whose innermost dim is at most
/// 64 (128 bytes, swizzled by 128 bytes in shared memory); what lies outside of the tensor becomes 0.
struct TensorMapInfo {
  static constexpr int kMaxRank = 3;
  int rank = 0;
  std::array<std::uint64_t, kMaxRank> dims{};
  std::array<std::uint64_t, kMaxRank> strides{};  ///< in bytes, multiples of 16; of dim 0 it is 2 and not read
  std::array<std::uint32_t, kMaxRank> box{};      ///< at most 256 each
};

/// The driver's form (CUtensorMap).
struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> bits{};
};

}  // namespace sardonyx
