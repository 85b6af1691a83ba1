// See stream_tiling.h.
#include "codegen/stream_tiling.h"

#include <fmt/format.h>

#include <algorithm>

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kOfWave = 128;                 // bytes of a column in a stage that a wave has
constexpr std::int64_t kTile = 16;                    // columns
constexpr std::int64_t kBusy = 128;                   // workgroups that keep memory busy
constexpr std::int64_t kMostTiles = 4;                // of a workgroup at a time
constexpr std::int64_t kMostShared = 227 * 1024 / 2;  // bytes of LDS of which a unit has room for two
// Of 16 bits, for more columns a launch lasts long enough that its start and end don't count, and the matrix-vector
// kernel reads memory somewhat faster (119 us instead of 127 for 128256 columns of 2048).
constexpr std::int64_t kMostBlocks = 1024;
constexpr int kStages = 4;  // of which more were no faster on an H200

}  // namespace

std::optional<StreamCandidate> stream_candidate(const StreamProduct& p) {
  const std::int64_t bytes = p.depth * p.bits / 8;
  if (bytes <= 0 || p.depth * p.bits % (8 * kOfWave) != 0) return {};
  std::int64_t tiles = kMostTiles;
  while (tiles > 1 && p.columns < kBusy * kTile * tiles) tiles /= 2;
  if (p.bits == 16 && p.columns > kMostBlocks * kTile * kMostTiles) return {};
  // Where columns are few a unit has one workgroup, which needs more waves to hide what each of them waits for.
  const std::int64_t waves = tiles == 1 && bytes % (16 * kOfWave) == 0 ? 16 : 8;
  std::int64_t piece = waves * kOfWave;
  while (bytes % piece != 0) piece -= kOfWave;
  // With less for each stage, more than half of the waves would have nothing to do.
  if (piece < waves / 2 * kOfWave || (p.bits != 16 && p.of_scale <= 0)) return {};
  const std::int64_t pieces = bytes / piece, scales = p.bits == 16 ? 0 : piece / 8 / p.of_scale;
  if (p.bits != 16 && (scales % 16 != 0 || scales == 0)) return {};
  // As in kernels/stream.h.
  const bool after = p.bits == 4 && p.half;
  const bool together = p.scales_follow && p.bits != 16 && pieces == 1 && p.columns % kTile == 0;
  const std::int64_t stage = kTile * (piece + (after ? 16 : 64) + (scales ? scales + (together ? 0 : 16) : 0));
  const std::int64_t fixed = 2 * p.depth + waves * kTile * tiles * 4 + (after ? p.depth / 32 * 4 : 0);
  const std::int64_t room = (kMostShared - fixed) / (stage + 16), wanted = tiles * pieces;
  const std::int64_t stages = std::min({std::int64_t{kStages}, wanted, room});
  if (stages < std::min<std::int64_t>(wanted, 2)) return {};
  const std::int64_t shared = fixed + stages * (stage + 16);
  StreamCandidate c;
  c.kernel = fmt::format("stream<StreamTiling<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}>>", waves, tiles, stages, p.bits,
                         after, piece, pieces, std::max(p.of_scale, 1), together, shared);
  c.tiling.rows = 1;
  c.tiling.cols = static_cast<std::int32_t>(kTile * tiles);
  c.tiling.few_rows = true;
  c.tiling.threads = static_cast<std::int32_t>(waves * 32 + 32);
  c.tiling.resident = 2;
  c.shared = static_cast<std::uint32_t>(shared);
  return c;
}

}  // namespace sardonyx::codegen
