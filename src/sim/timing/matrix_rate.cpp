// Cycles follow from the operations of an instruction and the rate of a SIMD's matrix pipe for its type. Rates are
// those behind AMD's peak figures (white papers of CDNA 2 to 4; GPUOpen's "Using the Matrix Cores of AMD RDNA 4
// architecture GPUs"), and agree with the passes in the ISA documents' tables of dependency checks.
#include "sim/timing/matrix_rate.h"

#include <algorithm>
#include <cstdlib>

namespace sardonyx::sim::timing {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

struct Shape {
  int m = 16, n = 16, k = 16;
  std::string_view types;  ///< what follows the shape
};

Shape parse(std::string_view name) {
  Shape s;
  const std::size_t x = name.find('x');
  // "v_wmma_f32_16x16x16_f16", "v_mfma_f32_32x32x1f32": digits around two letters x.
  std::size_t at = x;
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  const auto number = [&](int& value) {
    value = 0;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9') value = value * 10 + (name[at++] - '0');
    if (at < name.size() && name[at] == 'x') ++at;
  };
  if (x == std::string_view::npos) return s;
  number(s.m), number(s.n), number(s.k);
  s.types = name.substr(at);
  return s;
}

/// Operations a cycle of one SIMD of CDNA.
double cdnaRate(std::string_view t, const Shape& s, const Chip& chip, const Inst& in) {
  const bool cdna2 = chip.mi200Matrix, cdna4 = !cdna2 && !chip.fp8Fnuz;
  if (has(t, "f8f6f4")) {
    // cbsz and blgp say the operands' formats: 0 and 1 are 8-bit floats, at half the rate of the narrower ones.
    const unsigned a = in.raw[1] >> 29 & 7, b = in.raw[0] >> 8 & 7;
    return a <= 1 || b <= 1 ? 2048 : 4096;
  }
  if (has(t, "xf32")) return 256;
  if (has(t, "f64")) return cdna4 ? 32 : 64;
  if (has(t, "bf16") && cdna2 && !has(t, "1k")) return 128;
  if (has(t, "f16")) {
    if (cdna2) return 256;
    const bool wide = cdna4 && (s.m == 16 ? s.k >= 32 : s.m == 32 && s.k >= 16);
    return wide ? 1024 : 512;
  }
  if (has(t, "f32")) return 64;
  if (cdna2) return 256;  // 8-bit integers
  const bool wide = cdna4 && has(t, "i8") && (s.m == 16 ? s.k >= 64 : s.k >= 32);
  return wide ? 2048 : 1024;
}

double rdnaRate(std::string_view t, const Chip& chip) {
  const bool four = has(t, "iu4"), eight = has(t, "iu8") || has(t, "fp8") || has(t, "bf8");
  if (chip.gen == Gen::kGfx12) return four ? 2048 : eight ? 1024 : 512;
  return four ? 512 : 256;
}

}  // namespace

int matrixCycles(std::string_view name, int dwords, const Chip& chip, int waveSize, const Inst& in) {
  const Shape s = parse(name);
  const bool sparse = has(name, "smfmac") || has(name, "swmmac");
  double operations = 2.0 * s.m * s.n * s.k / (sparse ? 2 : 1);
  if (chip.gen != Gen::kGfx9) return std::max(4, static_cast<int>(operations / rdnaRate(s.types, chip)));
  const int elements = dwords * waveSize / (has(name, "_f64_") ? 2 : 1);
  operations *= std::max(1, elements / (s.m * s.n));  // blocks
  const int least = has(name, "_f64_") ? 16 : 8;
  return std::max(least, static_cast<int>(operations / cdnaRate(s.types, s, chip, in)));
}

}  // namespace sardonyx::sim::timing
