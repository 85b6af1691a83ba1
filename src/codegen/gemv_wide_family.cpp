// GEMMs of one to four rows on AMD's vector units, with weights of 4, 8 or 16 bits: kernels/gemv_wide.h.
#include <algorithm>

#include "codegen/kernel_family.h"

namespace sardonyx::codegen {
namespace {

constexpr int kWorkgroup = 256;
constexpr int kMostColumns = 16;  // of a team; more leave too few waves (by the simulated GPU's clock)

class GemvWideFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return gemv_wide_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    if (p.made_rows > 0) {
      add(all, p, p.made_rows);
    } else {
      for (const int rows : {1, 2, 4})
        if (rows == 1 || p.least_rows <= rows) add(all, p, rows);
    }
    return all;
  }

 private:
  // The waves that divide K have at least one vector of each column, and a team of them as many columns as leaves
  // enough workgroups: a workgroup reads a once. Quantised weights take many more instructions, which a unit with one
  // workgroup does not hide.
  static void add(std::vector<KernelCandidate>& all, const ContractionProblem& p, int rows) {
    const int waves = kWorkgroup / p.chip.wave;
    const std::int64_t span = 128 / p.bits * p.chip.wave, spans = (p.depth + span - 1) / span;
    int shares = 1;
    while (shares < waves && shares * 2 <= spans) shares *= 2;
    const std::int64_t teams = waves / shares, enough = (p.bits == 16 ? 1 : 2) * std::int64_t{driver_units(p.chip)};
    std::int64_t columns = kMostColumns / rows;
    while (columns > 4 && p.columns / (columns * teams) < enough) columns /= 2;
    KernelCandidate& c = all.emplace_back();
    c.kernel = fmt::format("gemv_wide<{}, {}, {}>", rows, columns, shares);
    c.tiling = {rows, static_cast<std::int32_t>(columns * teams), 0, 0, 0, 0, true};
  }
};

}  // namespace

bool gemv_wide_supports(const ContractionProblem& p) {
  constexpr std::int64_t kMostRows = 4;
  if (!p.chip.policy.wide_gemv || size_of(p.type) != 2 || p.padded || !(p.b == Access::kVector || p.quantized))
    return false;
  return p.made_rows > 0 ? p.made_rows <= kMostRows : p.a != Access::kAcross && p.least_rows <= kMostRows;
}

const ContractionFamily& gemv_wide_family() {
  static const GemvWideFamily family;
  return family;
}

}  // namespace sardonyx::codegen
