// GEMMs with a short K on NVIDIA's matrix instructions: kernels/gemm_short_k.h.
#include "codegen/kernel_family.h"

namespace sardonyx::codegen {
namespace {

constexpr std::uint32_t kThreads = 128;
// Registers hold all of B's columns, and all of A's tiles of 16 rows.
constexpr std::int64_t kSpan = 32, kMostSpans = 8, kMostOperand = 256, kMostK = 128;

class ShortKFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override {
    const auto* matrix = p.chip.matrix(p.type);
    return p.chip.layout() == MatrixLayout::kMma && size_of(p.type) == 2 && matrix != nullptr && p.vectors() &&
           p.full_columns && !p.quantized && !p.groups && !p.pairs && p.computed_rows == 0 && p.depth > 0 &&
           p.depth <= kMostK && p.depth % 8 == 0;
  }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    const std::int64_t spans = (p.depth + kSpan - 1) / kSpan;
    for (const int columns : {32, 64, 128}) {
      if (columns > 32 && p.columns > 0 && p.columns <= columns / 2) continue;
      // With several tiles of columns, more of them cost nothing, and what the epilogue reads is read by more warps.
      if (columns == 128 && p.columns > columns) continue;
      if (columns * spans > kMostOperand) continue;
      for (const int tiles : {2, 4}) {
        if (tiles * spans > kMostSpans) continue;
        KernelCandidate& c = all.emplace_back();
        c.kernel = fmt::format("gemm_short_k<{}, {}, {}>", columns, tiles, spans);
        // A multiprocessor's share of an H200's bandwidth, in bytes a nanosecond; a thread block that is alone on it
        // takes longer, for the latency of memory and one warp's stores.
        constexpr float kShare = 32, kAlone = 0.1f;
        const int rows = 64 * tiles;
        const auto sums = static_cast<float>(rows * columns);
        c.tiling = {
            rows, columns, 1500 + kAlone * sums, 1, 50 + 2 * sums / kShare, static_cast<float>(2 * rows) / kShare};
        c.tiling.threads = kThreads;
        c.bounds.threads = kThreads;
      }
    }
    return all;
  }
};

}  // namespace

const ContractionFamily& short_k_family() {
  static const ShortKFamily family;
  return family;
}

}  // namespace sardonyx::codegen
