// GEMMs with a short K on NVIDIA's matrix instructions: kernels/gemm_short_k.h.
#include "codegen/kernel_family.h"

namespace sardonyx::codegen {
namespace {

constexpr int kWarps = 4;
constexpr std::int64_t kFewRows = 16;
// Registers hold all of B's columns, and all of A's tiles of 16 rows.
constexpr std::int64_t kSpan = 32, kMostSpans = 8, kMostOperand = 256, kMostK = 128;

class ShortKFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return short_k_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    const std::int64_t spans = (p.depth + kSpan - 1) / kSpan;
    // Few rows, as those of small matrices in a batch: warps divide columns.
    for (const int tiles : {1, 4})
      if (p.least_rows <= kFewRows * tiles && tiles * spans <= kMostSpans) add(all, 32, tiles, spans, 1);
    for (const int columns : {32, 64, 128}) {
      if (columns > 32 && p.columns > 0 && p.columns <= columns / 2) continue;
      // With several tiles of columns, more of them cost nothing, and what the epilogue reads is read by more warps.
      if (columns == 128 && p.columns > columns) continue;
      if (columns * spans > kMostOperand) continue;
      for (const int tiles : {2, 4})
        if (tiles * spans <= kMostSpans) add(all, columns, tiles, spans, kWarps);
    }
    return all;
  }

 private:
  // `columns` and `tiles` of 16 rows: of a warp, `down` of which are along M.
  static void add(std::vector<KernelCandidate>& all, int columns, int tiles, std::int64_t spans, int down) {
    // A multiprocessor's share of an H200's bandwidth, in bytes a nanosecond; a thread block that is alone on it takes
    // longer, for the latency of memory and one warp's stores.
    constexpr float kShare = 32, kAlone = 0.1f;
    KernelCandidate& c = all.emplace_back();
    c.kernel = fmt::format("gemm_short_k<{}, {}, {}, {}>", columns, tiles, spans, down);
    const int rows = 16 * tiles * down, across = columns * kWarps / down;
    const auto sums = static_cast<float>(rows * across);
    // Where there is one tile of rows, each workgroup reads other columns.
    const auto lines = static_cast<float>(down == 1 ? rows + across : rows);
    c.tiling = {rows, across, 1500 + kAlone * sums, 1, 50 + 2 * sums / kShare, 2 * lines / kShare};
    c.tiling.threads = 32 * kWarps;
    c.bounds.threads = 32 * kWarps;
  }
};

}  // namespace

// Windows of several taps were not measured.
bool short_k_supports(const ContractionProblem& p) {
  const auto* matrix = p.chip.matrix(p.type);
  return p.chip.layout() == MatrixLayout::kMma && size_of(p.type) == 2 && matrix != nullptr && p.vectors() &&
         p.full_columns && !p.padded && !p.windows && !p.quantized && !p.groups && !p.pairs && p.computed_rows == 0 &&
         p.depth > 0 && p.depth <= kMostK && p.depth % 8 == 0;
}

const ContractionFamily& short_k_family() {
  static const ShortKFamily family;
  return family;
}

}  // namespace sardonyx::codegen
