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

// Columns of a workgroup, in tiles of 16; spans of K that a wave has in flight at a time; workgroups for which a
// multiprocessor has registers.
struct Shape {
  int tiles, ahead, resident;
};

// In flight at most `most` of a wave's spans. The last round loads as much as the others, and each round waits for
// memory once: about as long as half a span takes with one workgroup on a multiprocessor, a quarter with two.
int spans_ahead(std::int64_t spans, int most, int resident) {
  std::int64_t best = 1, least = 0;
  for (std::int64_t ahead = 1; ahead <= most; ++ahead) {
    const std::int64_t cost = (spans + ahead - 1) / ahead * (4 * ahead + 2 / resident);
    if (ahead > 1 && cost >= least) continue;
    best = ahead;
    least = cost;
  }
  return static_cast<int>(best);
}

// Weights of 4 bits on Hopper, for up to 32 rows. If all columns fit into one wave of workgroups, one of them with more
// in flight is faster than two on a multiprocessor; with many columns it is more important that rows are read less
// often. `spans`: of a wave. Measured on an H200 with N of 1024 to 128256 and K of 2048 to 14336.
Shape hopper_shape(const ContractionProblem& p, int width, std::int64_t spans) {
  const std::int64_t tiles = (p.columns + kColumns - 1) / kColumns, units = driver_units(p.chip);
  Shape s{4, 1, width > 16 ? 1 : 2};
  if (tiles <= units)
    s = {1, 8, 1};
  else if (tiles <= 2 * units)  // with 8 rows, one workgroup needs four spans in flight
    s = width == 8 && spans % 4 != 0 ? Shape{1, 4, 2} : Shape{2, 4, 1};
  else if (tiles < 4 * units && width <= 16)
    s = {2, 2, 2};
  s.ahead = spans_ahead(spans, s.ahead, s.resident);
  return s;
}

class SkinnyFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return skinny_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    std::vector<KernelCandidate> all;
    if (p.computed_rows > 0) {
      if (!gemv_wide_supports(p)) add(all, p, 8, p.computed_rows);
    } else {
      for (const int rows : {8, 16, 32, 64})
        if (!ring_shape(p, rows) &&
            (rows <= 16 || (p.bits < 16 && (rows <= 32 || !packed_supports(p)) && !packed_beats_skinny(p))))
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
    const std::int64_t of_wave = std::max<std::int64_t>((spans + waves - 1) / waves, 1);
    const auto emplace = [&](const Shape& s) {
      KernelCandidate& c = all.emplace_back();
      c.kernel = fmt::format("skinny<{}, {}, {}>", width, s.tiles, s.ahead);
      c.tiling = {rows, kColumns * s.tiles, 0, 0, 0, 0, true};
      c.bounds = {.threads = kThreads, .min_blocks = static_cast<std::uint32_t>(s.resident)};  // bounds the registers
    };
    if (p.chip.has(Feature::kWgmma) && p.quantized && p.bits == 4 && p.computed_rows == 0 && p.columns > 0 &&
        p.depth > 0 && width <= 32)
      return emplace(hopper_shape(p, width, of_wave));
    for (const int tiles : {1, 2, 4}) {
      // More columns take too many registers; with 4 bits, 64 columns pay only if each workgroup computes its rows
      // (measured on an H200).
      if (tiles == 4 && (width >= 16 || p.bits == 8 || (p.bits == 4 && p.computed_rows == 0))) continue;
      // More in flight spills registers.
      const int most = p.bits == 16 && tiles == 1  ? 8
                       : p.bits == 4 && tiles == 4 ? 2
                       : width == 64               ? 2 / tiles
                                                   : 4 / tiles;
      emplace({tiles, static_cast<int>(std::min<std::int64_t>(of_wave, most)), 2});
    }
  }
};

}  // namespace

bool skinny_supports(const Chip& chip, DType type) { return size_of(type) == 2 && chip.matrix(type) != nullptr; }

bool skinny_supports(const ContractionProblem& p) {
  // Its waves divide K, of which there has to be enough for all.
  if (short_k_supports(p)) return false;
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
