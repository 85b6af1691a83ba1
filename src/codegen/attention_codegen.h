// Attention on GPUs as C++: the struct that kernels/attention.h asks for, and which of its kernels runs when.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// One kernel NAME(buffers..., f32* partial (if `partial`), symbols...), of which a point is the work of a workgroup of
/// kGpuThreads threads. Kernels follow one another; those that these sizes do not need have no points.
struct GpuAttentionKernel {
  std::string body;
  Expr points;
  bool partial = false;
  std::uint32_t shared = 0;  ///< bytes of dynamic LDS
};
struct GpuAttentionSource {
  std::vector<GpuAttentionKernel> kernels;
  std::vector<Value*> buffers;
  Exprs symbols;  ///< values of these expressions
  Expr partial;   ///< float32 elements of working memory; empty: none
  Expr limit;     ///< must be below 2^31 - 2^29
};

/// Whether the device computes this attention as a kernel; `why` if not.
bool gpu_takes_attention(const TileKernel& kernel, std::string& why);
/// `arch`: "gfx942", "sm_90". The kernel has been accepted by gpu_takes_attention.
GpuAttentionSource generate_gpu_attention(const TileKernel& kernel, std::string_view arch);

}  // namespace sardonyx::codegen
