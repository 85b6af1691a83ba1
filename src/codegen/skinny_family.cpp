// GEMMs of few rows on matrix instructions, with weights of 4, 8 or 16 bits: kernels/skinny.h.
#include <algorithm>

#include "codegen/kernel_family.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

constexpr std::uint32_t kThreads = 256;
// One tile of a matrix instruction. Weights that have to be dequantised pay for up to four: other kernels dequantise
// them for each tile of rows, without overlapping that with loads.
constexpr std::int64_t kMostRows = 16, kMostQuantizedRows = 64;
constexpr int kColumns = 16;  // of a matrix instruction

class SkinnyFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return skinny_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    if (p.computed_rows > 0) {
      if (!gemv_wide_supports(p)) add(all, p, 8, p.computed_rows);
    } else {
      for (const int rows : {8, 16, 32, 64})
        if (rows <= 16 || (p.bits < 16 && (rows <= 32 || !packed_supports(p)) && !packed_beats_skinny(p)))
          add(all, p, rows, rows);
    }
    return all;
  }

 private:
  // Candidates differ in columns and in how many spans of K are in flight, at most as many as a wave has. `width`: rows
  // of an instruction.
  static void add(std::vector<KernelCandidate>& all, const ContractionProblem& p, int width, int rows) {
    const bool wmma = p.chip.layout() == MatrixLayout::kWmma11;
    const int lanes = lanes_along_k(p.chip.layout()), waves = p.chip.wave == 64 ? 4 : 8;
    const std::int64_t span = std::max(128 / p.bits, wmma ? 16 : 8) * lanes, spans = (p.depth + span - 1) / span;
    for (const int tiles : {1, 2, 4}) {
      // More columns take too many registers; with 4 bits, 64 columns pay only if each workgroup computes its rows
      // (measured on an H200).
      if (tiles == 4 && (width >= 16 || p.bits == 8 || (p.bits == 4 && p.computed_rows == 0))) continue;
      // More in flight spills registers.
      const int most = p.bits == 16 && tiles == 1  ? 8
                       : p.bits == 4 && tiles == 4 ? 2
                       : width == 64               ? 2 / tiles
                                                   : 4 / tiles;
      const auto ahead = std::clamp<std::int64_t>((spans + waves - 1) / waves, 1, most);
      KernelCandidate& c = all.emplace_back();
      c.kernel = fmt::format("skinny<{}, {}, {}>", width, tiles, ahead);
      c.tiling = {rows, kColumns * tiles, 0, 0, 0, 0, true};
      c.bounds = {.threads = kThreads, .min_blocks = 2};  // bounds the registers
    }
  }
};

}  // namespace

bool skinny_supports(const Chip& chip, DType type) { return size_of(type) == 2 && chip.matrix(type) != nullptr; }

bool skinny_supports(const ContractionProblem& p) {
  // Lanes load runs of 16 elements of 16-bit floats, stored or computed.
  if (!skinny_supports(p.chip, p.type) || p.padded || !(p.b == Access::kVector || p.quantized)) return false;
  return p.computed_rows > 0 ||
         (p.a != Access::kAcross && p.least_rows <= (p.quantized ? kMostQuantizedRows : kMostRows));
}

const ContractionFamily& skinny_family() {
  static const SkinnyFamily family;
  return family;
}

}  // namespace sardonyx::codegen
