// The cost model of tilings.
#include "program/tiling.h"

#include <algorithm>
#include <cmath>

namespace sardonyx {
namespace {

// A cluster lies within one group of multiprocessors (GPC). Groups differ in size, so clusters of more than two thread
// blocks leave some multiprocessors idle: on an H200 with 132 of them, 16 clusters of 4 took 5.0 us, and 32 of the same
// depth 8.6. This is the usable part in eighths.
constexpr int kClusteredEighths = 7;
constexpr double kFinishSum = 0.008;  // nanoseconds per partial sum that the second launch reads
// Split-K in one launch, by the clock on gfx942: nanoseconds of the step in which two workgroups become one, and of
// each sum that one reads, once for each workgroup of a compute unit. Each further step takes half as long.
constexpr double kTreeStep = 1500, kTreeAcc = 0.13;

}  // namespace

double workgroups(const GpuTiling& t, std::int64_t batches, std::int64_t m, std::int64_t n) {
  const double down = t.groups ? static_cast<double>(std::min(m, m / t.rows + batches))
                               : static_cast<double>(batches) * std::ceil(static_cast<double>(m) / t.rows);
  return down * std::ceil(static_cast<double>(n) / t.cols) * t.cluster * t.splits;
}

double launched_workgroups(const GpuTiling& t, std::int64_t batches, std::int64_t m, std::int64_t n, int units) {
  const double all = workgroups(t, batches, m, n);
  if (t.resident > 0) return std::min<double>(all, static_cast<double>(t.resident) * units);
  return t.tma && t.cluster == 1 ? std::min<double>(all, units) : all;
}

bool can_compute(const GpuTiling& t, std::int64_t batches, std::int64_t m, std::int64_t n) {
  if (t.few_rows && m > t.rows) return false;
  if (t.splits > 1 && t.tree_acc > 0) {
    const double parts = workgroups(t, batches, m, n);
    return parts * t.tree_acc <= static_cast<double>(kMostTreeAcc) && parts <= static_cast<double>(kMostTreeGroups);
  }
  return t.splits == 1 || static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n) * t.splits <=
                              static_cast<double>(kMostPartialSums);
}

double tiling_cost(const GpuTiling& t, std::int64_t batches, std::int64_t m, std::int64_t n, std::int64_t k,
                   int units) {
  const double tiles = workgroups(t, batches, m, n);
  if (t.few_rows) {
    // Loads its weights while the previous launch runs, whatever the number of workgroups.
    if (t.resident > 0) return -1e9 - 50 + 100.0 * static_cast<double>(t.rows - m);
    // Bound by reading b. Fewer than two workgroups per unit don't saturate memory; dividing a short column among
    // several waves only adds a reduction.
    const bool split = t.cols < 8;
    return -1e9 + std::abs(std::log(tiles / (2.0 * units))) + (split && k < 2048 ? 4 : 0) +
           100.0 * static_cast<double>(t.rows - m);
  }
  const double depth = static_cast<double>(k) / t.splits;
  const int usable = t.cluster > 2 ? std::max(1, units * kClusteredEighths / 8) : units;
  double cost = std::max(t.alone_start + t.alone * depth, std::ceil(tiles / usable) * (t.busy_start + t.busy * depth));
  if (t.splits > 1 && t.tree_acc > 0)
    cost += (1 + std::ceil(std::log2(t.splits))) / 2 * (kTreeStep + kTreeAcc * t.tree_acc * std::ceil(tiles / usable));
  else if (t.splits > 1)
    cost += t.finish + kFinishSum * static_cast<double>(batches * m * n * t.splits);
  return cost;
}

std::size_t choose_tiling(const std::vector<GpuTiling>& tilings, std::int64_t batches, std::int64_t m, std::int64_t n,
                          std::int64_t k, int units) {
  std::size_t best = 0;
  double least = INFINITY;
  for (std::size_t i = 0; i < tilings.size(); ++i) {
    if (!can_compute(tilings[i], batches, m, n)) continue;
    const double cost = tiling_cost(tilings[i], batches, m, n, k, units);
    if (cost < least) {
      least = cost;
      best = i;
    }
  }
  return best;
}

}  // namespace sardonyx
