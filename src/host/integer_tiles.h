// uint8 x int8 GEMMs and convolutions as tile kernels. Their int32 accumulators are passed to the epilogue a block of
// rows at a time, while they are in the caches (TileArgs::accumulators).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/tile_kernel.h"

namespace sardonyx::host {

/// sums[batch..., M, N] = a[batch_a..., M, K] * b[batch_b..., K, N], modulo 2^32. a is uint8, b int8; both are
/// row-major.
struct ByteGemmDesc {
  std::vector<std::int64_t> batch_a;  ///< leading extents; broadcast against batch_b as numpy's matmul does
  std::vector<std::int64_t> batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_b = false;     ///< b is stored [..., N, K]
  bool b_constant = false;  ///< b is passed packed (TileArgs::packed); it then has one matrix, and K is not 0
  int threads = 1;
};

/// The convolution of an image x [N, spatial..., C] of uint8 with weights w [M, C, kernel...] of int8, modulo 2^32.
/// Elements beyond the image's edges are `padding`. Sums are [N, spatial..., M]. One spatial dim counts as two, the
/// first of extent 1.
struct ByteConvDesc {
  std::int64_t batch = 1, channels = 0, features = 0;
  using Extents = std::array<std::int64_t, 2>;
  Extents in{1, 1}, out{1, 1}, kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  Extents pad_begin{0, 0};  ///< may be negative; windows may also reach beyond the image's end
  int padding = 0;
  bool features_first = false;    ///< sums are [N, M, spatial...]; only without TileArgs::accumulators
  bool weights_constant = false;  ///< they are passed packed
  int threads = 1;
};

/// Run with TileArgs::accumulators, or else with an `out` of int32 accumulators. No extent is 0, except that K may be
/// 0.
std::shared_ptr<const TileKernel> make_byte_gemm(const ByteGemmDesc& desc);
std::shared_ptr<const TileKernel> make_byte_convolution(const ByteConvDesc& desc);

}  // namespace sardonyx::host
