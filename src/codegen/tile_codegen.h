// Tile kernels of GPUs as C++: the struct that kernels/gemm.h asks for, and which tilings are compiled.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tiling.h"
#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// Kernel texts NAME(buffers..., symbols..., i64 batches, i64 m, i64 n, i64 k), launched with kGpuThreads threads a
/// workgroup, one workgroup a tile.
struct GpuTileSource {
  struct Kernel {
    std::string body;
    std::uint32_t shared = 0;  ///< bytes of dynamic LDS
  };
  std::vector<Kernel> kernels;  ///< one a tiling
  std::vector<GpuTiling> tilings;
  std::vector<Value*> buffers;
  Exprs symbols;
  Expr batches, m, n, k;
};

/// For fusion: what GPUs of this architecture take.
FuseOptions gpu_fuse_options(std::string_view arch);
/// Whether the device computes this tile node with this epilogue as a tile kernel; `why` if not.
bool gpu_takes_tile(const TileKernel& kernel, std::string& why);
/// `arch`: "gfx942", "sm_90". The kernel has been accepted by gpu_takes_tile.
GpuTileSource generate_gpu_tile(const TileKernel& kernel, std::string_view arch);

}  // namespace sardonyx::codegen
