#include "codegen/recurrent_forms.h"

#include <algorithm>

#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kWorkgroup = kGpuThreads;

// 32-bit registers for a thread's weights, workgroups of a cluster, lanes of a unit, units (more would make much code),
// bytes of shared memory besides weights and states.
constexpr std::int64_t kMostWeights = 192, kMostClusterWeights = 128, kMostCluster = kPortableCluster,
                       kMostLargeCluster = 16, kMostSlices = 16, kMostHidden = 2048, kOtherShared = 1024;
constexpr int kUnitsOfGpc = 18;  // multiprocessors that can share a cluster: all of a large one are on one GPC

// Of tiles: 32-bit registers for a thread's weights; sequences of a multiprocessor that take less time one by one.
constexpr std::int64_t kMostTileWeights = 128, kFewSequences = 2;

std::int64_t round_up(std::int64_t x, std::int64_t to) { return std::max<std::int64_t>(1, (x + to - 1) / to) * to; }

std::optional<RecurrentDivision> divide(const Chip& chip, std::int64_t gates, std::int64_t hidden, std::int64_t cluster,
                                        bool halves, bool shared) {
  std::int64_t slices = kMostSlices;
  while (slices > 1 && kWorkgroup / slices * cluster < hidden) slices /= 2;
  if (kWorkgroup / slices * cluster < hidden) return {};
  const std::int64_t words = gates * (halves ? 2 : 4), rows = round_up(hidden, 4 * slices), fours = rows / slices / 4;
  // float16 needs registers to convert to.
  const std::int64_t registers = chip.has(Feature::kClusters) ? kMostClusterWeights : kMostWeights,
                     most = halves && cluster <= kMostCluster ? registers * 3 / 4 : registers;
  const std::int64_t held = std::min(fours, most / words), bytes = (fours - held) * words * kWorkgroup * 4;
  const std::int64_t states = 2 * slices * rows * 4 + kOtherShared;
  if (shared ? bytes + states > chip.lds.per_workgroup : bytes > 0) return {};
  return RecurrentDivision{hidden, slices, cluster, held, bytes, halves};
}

}  // namespace

// Fewer workgroups of a cluster if registers are enough, otherwise as many as there may be. float16 is the last resort
// of models whose weights have 16 bits anyway.
std::optional<RecurrentDivision> recurrent_division(const Chip& chip, std::int64_t gates, std::int64_t hidden,
                                                    bool narrow) {
  if (hidden < 1 || hidden > kMostHidden) return {};
  const std::int64_t most = chip.has(Feature::kClusters) ? kMostCluster : 1;
  for (std::int64_t c = 1; c <= most; c *= 2)
    if (auto n = divide(chip, gates, hidden, c, false, false)) return n;
  for (std::int64_t c = most; c >= 1; c /= 2)
    if (auto n = divide(chip, gates, hidden, c, false, true)) return n;
  for (std::int64_t c = most; narrow && c >= 1; c /= 2)
    if (auto n = divide(chip, gates, hidden, c, true, true)) return n;
  // Large clusters find no room beside others' work as easily.
  for (std::int64_t slices = kMostSlices; narrow && most > 1 && slices >= 1; slices /= 2)
    if (const std::int64_t c = (hidden * slices + kWorkgroup - 1) / kWorkgroup; c > most && c <= kMostLargeCluster)
      if (auto n = divide(chip, gates, hidden, c, true, true)) return n;
  return {};
}

std::int64_t workgroups_at_once(const Chip& chip, const RecurrentDivision& n) {
  const std::int64_t units = chip.product().units;
  return n.cluster == 1 ? units : n.cluster <= kMostCluster ? units * 3 / 4 : units / kUnitsOfGpc * n.cluster;
}

std::optional<std::int64_t> sequences_of_tiles(const Chip& chip, std::int64_t gates, std::int64_t hidden) {
  const MatrixInstruction* product = chip.matrix(DType::kFloat16);
  if (!product || hidden < 1 || hidden > kMostHidden) return {};
  const std::int64_t waves = kWorkgroup / chip.wave, tiles = (hidden + 15) / 16, per = (tiles + waves - 1) / waves;
  const std::int64_t step = step_bytes(product->layout) / 2, steps = (hidden + step - 1) / step;
  if (per * gates * steps * vectors_of_a(product->layout) * 4 > kMostTileWeights) return {};
  return 16 * std::max<std::int64_t>(1, waves / tiles);
}

std::int64_t few_sequences(const Chip& chip) { return kFewSequences * chip.product().units; }

}  // namespace sardonyx::codegen
