// Tilings of GPU tile kernels: how each divides its output among workgroups, and the cost model that picks one for
// given sizes. Shared by the code generator, the program format and the runtime.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "expr/expr.h"

namespace sardonyx {

/// One way to compute a GEMM or convolution.
struct GpuTiling {
  std::int32_t rows = 1, cols = 1;  ///< output tile of a workgroup
  /// Measured time of a workgroup, fixed part and part per K element: `alone` on a compute unit, and `busy` when many
  /// workgroups share one. In nanoseconds on an H200; on other chips only the ratios matter.
  float alone_start = 256, alone = 1, busy_start = 256, busy = 1;
  bool few_rows = false;    ///< supports outputs of up to `rows` rows only
  float finish = 0;         ///< split-K: time of the launch that adds the partial sums
  std::int32_t splits = 1;  ///< split-K: workgroups that divide the K of a tile; a second launch adds their sums
  /// Split-K without a second launch: the workgroups of a tile add their accumulators as a tree
  /// (kernels/gemm_split_k_tree.h). Accumulators of a workgroup, of 4 bytes each; 0: a second launch. With one split,
  /// such a kernel computes whole tiles.
  std::int32_t tree_acc = 0;
  /// The operands are loaded by TMA (kernels/gemm_tma.h). At most one workgroup per unit is launched, each computing
  /// several tiles, unless clusters of workgroups divide the K of a tile.
  bool tma = false;
  /// Each row belongs to one batch only, whose rows follow one another: the batches divide the rows.
  bool groups = false;
  std::int32_t cluster = 1;    ///< workgroups of a cluster, which divide the K of a tile and add their sums
  std::int32_t threads = 256;  ///< of a workgroup
  /// kernels/stream.h: at most this many workgroups per unit are launched, each computing several tiles. 0: no limit.
  std::int32_t resident = 0;
};

/// The input of a convolution in memory, of which Hopper's copy engine (TMA) loads the pixels under one tap of the
/// filter for many outputs at a time ("im2col" mode). In elements; arrays hold x, then y.
struct CopiedWindows {
  Expr offset, images;
  std::array<Expr, 2> sizes, out, pitches;  ///< extents of the input and the output; stride of pixels
  Expr pitch;                               ///< stride of images
  std::array<Expr, 2> pads;
  std::array<std::int64_t, 2> strides{}, taps{};
  std::int64_t channels = 0;  ///< 128 bytes are loaded at a time, or 64 if it is no multiple of 128
};

/// Maximum number of partial sums of split-K: splits * batches * m * n.
constexpr std::int64_t kMostPartialSums = 1 << 20;
/// Maximum number of sums that the workgroups of a launch add in pairs, and of these workgroups.
constexpr std::int64_t kMostTreeAcc = 1 << 24, kMostTreeGroups = 4096;
/// Whether a tiling supports these sizes.
bool can_compute(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n);

/// Workgroups' worth of work: tiles times splits times cluster size. With `groups`, of which each may end within a
/// tile, the maximum. launched_workgroups() gives the grid's size.
double workgroups(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n);
/// Size of the grid on a GPU with `units` compute units.
double launched_workgroups(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n, int units);

/// The cost model: nanoseconds, or a negative rank for tilings of few rows, which are preferred where they apply.
/// Requires sizes that can_compute() accepts. `units`: compute units of the GPU.
double tiling_cost(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n, std::int64_t k,
                   int units);
/// The index of the tiling with the least cost that supports these sizes; of equal cost, the first.
std::size_t choose_tiling(const std::vector<GpuTiling>& tilings, std::int64_t batches, std::int64_t m, std::int64_t n,
                          std::int64_t k, int units);

}  // namespace sardonyx
