// How tile kernels of GPUs cut their output into workgroups, and which cut is fastest for given sizes.
#pragma once
#include <cstdint>
#include <vector>

namespace sardonyx::codegen {

/// One way to compute a contraction.
struct GpuTiling {
  std::int32_t rows = 1, cols = 1;  ///< of the output that a workgroup computes
  /// Time of a workgroup that has a compute unit to itself: what it takes at all and per k; and of each of many that
  /// share one. In nanoseconds on an H200; elsewhere only how tilings compare counts.
  float alone_start = 256, alone = 1, busy_start = 256, busy = 1;
  bool few_rows = false;    ///< for up to `rows` rows only
  float finish = 0;         ///< with shares: time of the second launch
  std::int32_t shares = 1;  ///< how many workgroups share the k's of a tile; a second launch adds up their sums
  /// Of kernels/gemm_tma.h: no more workgroups are launched than there are units, and they take several tiles each,
  /// unless clusters of workgroups share the k's of a tile.
  bool copies = false;
  std::int32_t cluster = 1;    ///< how many workgroups share the k's of a tile and add up their sums by themselves
  std::int32_t threads = 256;  ///< of a workgroup
  /// Of kernels/stream.h, if not 0: no more workgroups than so many a unit are launched, and they take several tiles
  /// each.
  std::int32_t resident = 0;
};

/// The sums that wait for the second launch: shares * batches * m * n, at most this many.
constexpr std::int64_t kMostPartialSums = 1 << 20;
/// Whether a tiling can compute these sizes.
bool can_compute(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n);

/// Workgroups that have a tile or a share of one. What is launched is launched_workgroups().
double workgroups(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n);
/// Workgroups of the launch on a GPU with so many compute units.
double launched_workgroups(const GpuTiling& tiling, std::int64_t batches, std::int64_t m, std::int64_t n, int units);

/// Which tiling is the fastest for these sizes on a GPU with so many compute units, by a model of cost.
std::size_t choose_tiling(const std::vector<GpuTiling>& tilings, std::int64_t batches, std::int64_t m, std::int64_t n,
                          std::int64_t k, int units);

}  // namespace sardonyx::codegen
