// Tile kernels of GPUs as C++: the struct that kernels/gemm_problem.h requires, and which candidates are compiled.
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

/// Kernels NAME(buffers..., symbols..., i64 m, i64 nk, i64 batches), one workgroup per tile; see kernel_family.h.
/// With split-K also the workspace, after the buffers, and `i64 splits` at the end; in one launch in the upper half of
/// m.
struct GpuTileSource : GpuChoice {
  KernelSpec unpack;  ///< see GpuUnpackedTile; empty body: b has 16 bits or more
};

/// Tells fusion what GPUs of this architecture support.
FuseOptions gpu_fuse_options(std::string_view arch);
/// Whether the device supports this tile node with this epilogue as a tile kernel; `why` if not.
bool gpu_takes_tile(const TileKernel& kernel, std::string& why);
/// `arch`: "gfx942", "sm_90". Requires gpu_takes_tile().
GpuTileSource generate_gpu_tile(const TileKernel& kernel, std::string_view arch, const TileSelection& selection = {});

/// A GEMM of many rows with quantised weights: `unpack` first dequantises them to `unpacked`.
struct GpuUnpackedTile {
  KernelSpec unpack;  ///< NAME(source's buffers but `unpacked`, T* unpacked, its symbols, m, batches, n, k)
  Expr threads;       ///< of that launch
  std::vector<Value*> buffers;
  Exprs symbols;
  GpuTileSource source;             ///< the GEMM
  std::shared_ptr<Value> unpacked;  ///< [N, K]
  bool kept = false;                ///< `elements` computes `unpacked` when the program is loaded, instead of `unpack`
  LoopKernel elements;
  Expr rows;               ///< M
  std::int64_t above = 0;  ///< used for more rows than this
};
/// Empty if the right operand is not quantised in blocks that kernels/skinny.h reads, or there are never so many rows.
std::optional<GpuUnpackedTile> generate_gpu_unpacked_tile(const TileKernel& kernel, std::string_view arch,
                                                          const TileSelection& selection = {});

/// A GEMM fused with `rows`, the step that computes its left operand, as one kernel for up to GpuRowTile::rows rows.
struct GpuRowTile {
  GpuTileSource source;  ///< has one candidate
  Expr m;                ///< number of rows
  int rows = 0;          ///< maximum number of rows
};
/// Empty if the steps do not have the form of a sum over each row, then its elements (RMSNorm); see row_prologue.h.
std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows, std::string_view arch,
                                                const TileSelection& selection = {});

}  // namespace sardonyx::codegen
