// GEMMs of one to four rows on AMD's chips, with weights of 4, 8, 16 or 32 bits: on vector units (kernels/gemv_wide.h);
// with weights of 4 bits and several rows on CDNA's smallest matrix instruction (kernels/gemv_mfma.h).
#include <algorithm>

#include "codegen/kernel_family.h"

namespace sardonyx::codegen {
namespace {

constexpr int kWorkgroup = 256;
// Columns of a team, by the simulated GPU's clock. More leave too few waves.
constexpr int kMostColumns = 16, kFewestColumns = 4, kBlockColumns = 16;

constexpr std::int64_t kLeastBytes = 32 << 10;  // of b, of a workgroup

// Bits of an element of b in memory.
int bits_of(const ContractionProblem& p) { return p.quantized ? p.bits : 8 * static_cast<int>(size_of(p.type)); }

bool has_mfma(const ContractionProblem& p) { return p.chip.layout() == MatrixLayout::kMfma; }

// Whether kernels/gemv_mfma.h supports a problem of two to four rows, and is faster.
bool suits_blocks(const ContractionProblem& p) {
  return has_mfma(p) && p.quantized && p.bits == 4 && p.type == DType::kFloat16;
}

class GemvWideFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return gemv_wide_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    if (p.computed_rows > 0) {
      add(all, p, p.computed_rows);
    } else {
      for (const int rows : {1, 2, 4})
        if (rows == 1 || (p.least_rows <= rows && !(rows == 2 && suits_blocks(p)))) add(all, p, rows);
    }
    return all;
  }

 private:
  // Each wave of a team, which divides K, has at least one vector of each column. A team has as many columns as leave
  // enough workgroups, because every workgroup reads a.
  static void add(std::vector<KernelCandidate>& all, const ContractionProblem& p, int rows) {
    const bool blocks = rows > 1 && suits_blocks(p);
    // Blocks of the matrix instruction divide K among four lanes each.
    const int waves = kWorkgroup / p.chip.wave, lanes = blocks ? p.chip.wave / 4 : p.chip.wave;
    const std::int64_t span = std::int64_t{128} / bits_of(p) * lanes, spans = (p.depth + span - 1) / span;
    int slices = 1;
    while (slices < waves && slices * 2 <= spans) slices *= 2;
    // Small problems wait for memory once, however many waves they have. Quantised weights take many more instructions,
    // which a unit with one workgroup does not hide; on CDNA, fewer columns leave registers for more waves.
    const std::int64_t bytes = p.columns * p.depth / 8 * bits_of(p), teams = waves / slices;
    const std::int64_t enough = std::min<std::int64_t>(std::int64_t{p.quantized ? 2 : 1} * driver_units(p.chip),
                                                       std::max<std::int64_t>(bytes / kLeastBytes, 1));
    std::int64_t columns = blocks ? kBlockColumns : p.quantized && has_mfma(p) ? kFewestColumns : kMostColumns / rows;
    while (columns > kFewestColumns && p.columns / (columns * teams) < enough) columns /= 2;
    KernelCandidate& c = all.emplace_back();
    c.kernel = blocks ? fmt::format("gemv_mfma<{}, {}>", columns, slices)
                      : fmt::format("gemv_wide<{}, {}, {}>", rows, columns, slices);
    c.tiling = {rows, static_cast<std::int32_t>(columns * teams), 0, 0, 0, 0, true};
  }
};

}  // namespace

bool gemv_wide_supports(const ContractionProblem& p) {
  constexpr std::int64_t kMostRows = 4;
  const bool wide = p.type == DType::kFloat32;
  if (!p.chip.policy.wide_gemv || !(wide || size_of(p.type) == 2) || p.padded || p.b == Access::kAcross) return false;
  if (p.computed_rows > 0) return p.computed_rows <= kMostRows && !wide && (p.b == Access::kVector || p.quantized);
  // Every load of 16 bytes is inside of K.
  const bool whole = p.b == Access::kVector || p.quantized || p.depth >= 128 / bits_of(p);
  return whole && p.a != Access::kAcross && p.least_rows <= kMostRows;
}

const ContractionFamily& gemv_wide_family() {
  static const GemvWideFamily family;
  return family;
}

}  // namespace sardonyx::codegen
