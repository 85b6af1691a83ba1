// Tensor maps: how the copy engine of NVIDIA's newer cards (sm_90 and later) finds the part of a tensor that a kernel
// asks for. They are made on the host for an address, and given to kernels as parameters.
#pragma once
#include <array>
#include <cstdint>

namespace sardonyx {

/// A tensor of 16-bit elements, its innermost dim first. Copies are of `box` elements, whose innermost dim is at most
/// 64 (128 bytes, swizzled in shared memory by 128 bytes, or by 64 if it is at most 32); what lies outside of the
/// tensor becomes 0.
struct TensorMapInfo {
  static constexpr int kMaxRank = 4;
  int rank = 0;
  std::array<std::uint64_t, kMaxRank> dims{};
  std::array<std::uint64_t, kMaxRank> strides{};  ///< in bytes, multiples of 16; of dim 0 it is 2 and not read
  std::array<std::uint32_t, kMaxRank> box{};      ///< at most 256 each
  /// Of images (dims: channels, x, y, images; rank 4) under a window that goes over them, in steps along x and y, from
  /// `lower` of an image's first pixel to `upper` of its last one. A copy is of box[0] channels of box[1] pixels, one
  /// for each place of the window, through the images.
  bool windows = false;
  std::array<std::int32_t, 2> lower{}, upper{};  ///< of x and y: -128 to 127
  std::array<std::uint32_t, 2> steps{1, 1};      ///< 1 to 8
};

/// The driver's form (CUtensorMap).
struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> bits{};
};

}  // namespace sardonyx
