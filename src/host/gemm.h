// GEMMs of known sizes, batched and broadcast, with a fused epilogue.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epilogue/post_op.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

/// out[batch..., M, N] = post(a[batch_a..., M, K] * b[batch_b..., K, N] + bias[N]).
struct GemmDesc {
  std::vector<std::int64_t> batch_a;  ///< leading extents; broadcast against batch_b as numpy's matmul does
  std::vector<std::int64_t> batch_b;
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;       ///< a is stored [..., K, M]
  bool trans_b = false;       ///< b is stored [..., N, K]
  DType a = DType::kFloat32;  ///< float32, float16 or bfloat16, also of b and out; sums are float32
  DType b = DType::kFloat32;
  DType out = DType::kFloat32;
  bool bias = false;
  std::vector<PostOp> post;  ///< operands' dims are of rank max(rank batch_a, rank batch_b) + 2
  bool b_constant = false;   ///< b is passed packed (TileArgs::packed)
  int threads = 1;
};

/// The kernel for `desc`, created on first use and kept in a bounded cache. Null if no fast kernel supports it, with
/// the reason in `why`; the caller then computes it in another way. Throws Error(kInternal) if the extents contradict
/// each other.
std::shared_ptr<const TileKernel> find_gemm(const GemmDesc& desc, std::string& why);

}  // namespace sardonyx::host
