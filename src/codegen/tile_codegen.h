// Tile kernels of GPUs as C++: the struct that kernels/gemm_problem.h asks for, and which tilings are compiled.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/gpu_choice.h"
#include "fuse/schedule.h"
#include "program/kernel_spec.h"

namespace sardonyx::codegen {

/// Kernels NAME(buffers..., symbols..., i64 batches, i64 m, i64 n, i64 k), one workgroup a tile; see kernel_family.h.
/// With split-K also the working memory, after the buffers, and `i64 shares` at the end.
struct GpuTileSource : GpuChoice {
  KernelSpec unpack;  ///< see GpuUnpackedTile; no body: b has 16 bits or more
};

/// For fusion: what GPUs of this architecture take.
FuseOptions gpu_fuse_options(std::string_view arch);
/// Whether the device computes this tile node with this epilogue as a tile kernel; `why` if not.
bool gpu_takes_tile(const TileKernel& kernel, std::string& why);
/// `arch`: "gfx942", "sm_90". The kernel has been accepted by gpu_takes_tile.
GpuTileSource generate_gpu_tile(const TileKernel& kernel, std::string_view arch, const TileSelection& selection = {});

/// A product of many rows with weights of few bits: `unpack` writes them as floats to `unpacked` first.
struct GpuUnpackedTile {
  KernelSpec unpack;  ///< NAME(source's buffers but `unpacked`, T* unpacked, its symbols, batches, m, n, k)
  Expr threads;       ///< of it
  std::vector<Value*> buffers;
  Exprs symbols;
  GpuTileSource source;             ///< the product
  std::shared_ptr<Value> unpacked;  ///< [N, K]
  Expr rows;                        ///< M
  std::int64_t above = 0;           ///< for more rows than this
};
/// Empty if the right operand is not quantised in blocks that kernels/skinny.h reads, or there are never so many rows.
std::optional<GpuUnpackedTile> generate_gpu_unpacked_tile(const TileKernel& kernel, std::string_view arch,
                                                          const TileSelection& selection = {});

/// A product whose left operand is made by `rows`, as one kernel for up to `rows` rows.
struct GpuRowTile {
  GpuTileSource source;  ///< of one candidate
  Expr m;                ///< how many rows there are
  int rows = 0;          ///< for up to so many
};
/// Empty if these are of another form: a sum over each row, then its elements (RMSNorm); see row_prologue.h.
std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows, std::string_view arch,
                                                const TileSelection& selection = {});

}  // namespace sardonyx::codegen
