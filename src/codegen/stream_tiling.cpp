// See stream_tiling.h.
#include "codegen/stream_tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/layout_stream.h"

namespace sardonyx::codegen {
namespace {

using sdx::layout::StreamLayout;

constexpr std::int64_t kOfWave = StreamLayout::kPart, kTile = StreamLayout::kTile;
constexpr std::int64_t kBusy = 128;     // workgroups that keep memory busy
constexpr std::int64_t kMostTiles = 4;  // processed by a workgroup at a time
// With 16-bit weights and more columns, launches are long enough that the overlap of launches does not matter, and the
// matrix-vector kernel reads memory slightly faster (119 us instead of 127 for 128256 columns of 2048).
constexpr std::int64_t kMostBlocks = 1024;
constexpr int kResident = 2;  // workgroups per multiprocessor
constexpr int kStages = 4;    // more were not faster on an H200

}  // namespace

std::optional<KernelCandidate> stream_candidate(const Chip& chip, const StreamGemm& p) {
  const std::int64_t bytes = p.depth * p.bits / 8;
  if (bytes <= 0 || p.depth * p.bits % (8 * kOfWave) != 0) return {};
  std::int64_t tiles = kMostTiles;
  while (tiles > 1 && p.columns < kBusy * kTile * tiles) tiles /= 2;
  if (p.bits == 16 && p.columns > kMostBlocks * kTile * kMostTiles) return {};
  // If there are few columns, each multiprocessor has one thread block, which needs more warps to hide their latencies.
  const std::int64_t waves = tiles == 1 && bytes % (16 * kOfWave) == 0 ? 16 : 8;
  std::int64_t column_bytes = waves * kOfWave;
  while (bytes % column_bytes != 0) column_bytes -= kOfWave;
  // With less per stage, more than half of the warps would be idle.
  if (column_bytes < waves / 2 * kOfWave || (p.bits != 16 && p.scale_vectors <= 0)) return {};
  StreamLayout l{.warps = waves,
                 .tiles = tiles,
                 .stages = 0,
                 .bits = p.bits,
                 .scale_acc = p.bits == 4 && p.half,
                 .column_bytes = column_bytes,
                 .column_stages = bytes / column_bytes,
                 .scale_vectors = std::max(p.scale_vectors, 1),
                 .scales_contiguous = false};
  l.scales_contiguous = p.scales_follow && p.bits != 16 && l.column_stages == 1 && p.columns % kTile == 0;
  if (p.bits != 16 && (l.scale_bytes() % 16 != 0 || l.scale_bytes() == 0)) return {};
  const std::int64_t most_shared = chip.lds.per_workgroup / kResident;
  const std::int64_t fit = (most_shared - l.bytes()) / (l.stage_bytes() + 16), wanted = tiles * l.column_stages;
  l.stages = std::min({std::int64_t{kStages}, wanted, fit});
  if (l.stages < std::min<std::int64_t>(wanted, 2)) return {};
  KernelCandidate c;
  c.kernel =
      fmt::format("stream<StreamTiling<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}>>", l.warps, l.tiles, l.stages, l.bits,
                  l.scale_acc, l.column_bytes, l.column_stages, l.scale_vectors, l.scales_contiguous, l.bytes());
  c.tiling.rows = 1;
  c.tiling.cols = static_cast<std::int32_t>(kTile * tiles);
  c.tiling.few_rows = true;
  c.tiling.threads = static_cast<std::int32_t>(l.threads());
  c.tiling.resident = kResident;
  c.bounds.threads = static_cast<std::uint32_t>(c.tiling.threads);
  c.shared = static_cast<std::uint32_t>(l.bytes());
  return c;
}

namespace {

class StreamFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return p.streams && candidate(p); }
  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override { return {*candidate(p)}; }

 private:
  static std::optional<KernelCandidate> candidate(const ContractionProblem& p) {
    return stream_candidate(
        p.chip, {p.bits, p.type == DType::kFloat16, p.vectors_per_scale, p.columns, p.depth, p.scales_follow});
  }
};

}  // namespace

const ContractionFamily& stream_family() {
  static const StreamFamily family;
  return family;
}

}  // namespace sardonyx::codegen
