// Tile kernels of GPUs as C++: the struct that kernels/gemm.h asks for, and which tilings are compiled.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tile_choices.h"
#include "codegen/tma_tiling.h"
#include "fuse/schedule.h"
#include "kernels/layout_gemm.h"
#include "program/kernel_spec.h"
#include "program/tiling.h"

namespace sardonyx::codegen {

/// Kernel texts NAME(buffers..., symbols..., i64 batches, i64 m, i64 n, i64 k), launched with kGpuThreads threads a
/// workgroup, one workgroup a tile.
struct GpuTileSource {
  struct Kernel {
    KernelSpec spec;
    std::string name;  ///< of the candidate, in TunedSize
  };
  std::vector<Kernel> kernels;  ///< one a tiling
  std::vector<GpuTiling> tilings;
  std::vector<Value*> buffers;
  /// If any tiling has shares: its kernel, and the one to launch behind it, have one more buffer behind the others, of
  /// `partial` numbers of four bytes, and at the end `i64 shares`.
  KernelSpec finish;
  Expr partial;
  /// Operands that tilings which copy (GpuTiling::copies) fetch themselves, and whose tensor maps are the first
  /// parameters of their kernels.
  struct Copied {
    std::int32_t buffer = -1;  ///< index into `buffers`
    CopiedOperand at;
  };
  Copied copied_a, copied_b;
  std::optional<CopiedWindows> windows;  ///< of copied_a, in place of what it has
  Exprs symbols;
  Expr batches, m, n, k;
  KernelSpec unpack;             ///< see GpuUnpackedTile; no body: b is of 16 bits or more
  std::string problem;           ///< see TileChoices
  std::vector<TunedSize> tuned;  ///< by candidates that are among `kernels`
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
  std::shared_ptr<Value> unpacked;  ///< columns by k's
  std::int64_t above = 0;           ///< for more rows than this
};
/// Empty if the right operand is none that kernels/skinny.h reads in blocks, or there are never so many rows.
std::optional<GpuUnpackedTile> generate_gpu_unpacked_tile(const TileKernel& kernel, std::string_view arch,
                                                          const TileSelection& selection = {});

/// A product whose left operand is made by `rows`, as one kernel for up to `rows` rows.
struct GpuRowTile {
  GpuTileSource source;  ///< of one tiling
  int rows = 0;
};
/// Empty if these are of another form: a sum over each row, then its elements (RMSNorm); see row_prologue.h.
std::optional<GpuRowTile> generate_gpu_row_tile(const TileKernel& kernel, const LoopKernel& rows, std::string_view arch,
                                                const TileSelection& selection = {});

}  // namespace sardonyx::codegen
