// Tensor maps: descriptors with which the copy engine (TMA) of NVIDIA sm_90 and later finds a part of a tensor. They
// are made on the host for an address, and passed to kernels as parameters.
#pragma once
#include <array>
#include <cstdint>

namespace sardonyx {

/// A tensor, innermost dim first. A copy has `box` elements; the innermost dim has at most 128 bytes (with a 128-byte
/// swizzle in shared memory, or a 64-byte one if there are at most 64). Elements outside of the
/// tensor read as 0.
struct TensorMapInfo {
  static constexpr int kMaxRank = 4;
  int rank = 0;
  std::uint32_t bytes = 2;  ///< of an element, 1 or 2
  std::array<std::uint64_t, kMaxRank> dims{};
  std::array<std::uint64_t, kMaxRank> strides{};  ///< bytes, multiples of 16; entry 0 is unused
  std::array<std::uint32_t, kMaxRank> box{};      ///< at most 256 each
  /// im2col mode. Images (dims: channels, x, y, image; rank 4) under a window that moves in steps along x and y, from
  /// `lower` relative to an image's first pixel to `upper` relative to its last one. A copy has box[0] channels of
  /// box[1] pixels, one per position of the window, continuing across images.
  bool windows = false;
  std::array<std::int32_t, 2> lower{}, upper{};  ///< of x and y: -128 to 127
  std::array<std::uint32_t, 2> steps{1, 1};      ///< 1 to 8
};

/// The driver's encoding (CUtensorMap).
struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> bits{};
};

}  // namespace sardonyx
