// Tilings of kernels/gemm.h and kernels/gemm_wgmma.h, and matrix-vector kernels, with their times on an H200. Those of
// gemm_wgmma were fitted to 117 problems in 16-bit floats (ResNet-50's convolutions for 1 to 64 images, BERT-Base's and
// ViT-B/16's GEMMs with 128 to 4096 rows), each measured with every tiling, so that the fastest tiling is chosen: the
// chosen ones are 0.6 % slower than the best on average. Those for AMD's matrix instructions were fitted to times of
// the simulated GPU (docs/amd-clock.md) in the same way, chip by chip.
#include <algorithm>
#include <array>

#include "codegen/kernel_family.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

/// GpuTiling::alone_start, alone, busy_start, busy.
using Times = std::array<float, 4>;

// In float16, of 11 GEMMs with 128 to 4096 rows (`sardonyx tune --timing`, all tilings): the chosen tilings are at most
// 1.5 % slower than the best on average. For int8 only the ratios matter.
struct AmdTimes {
  Times t32, t64, t128, large;  ///< of tiles of 32 x 32, 64 x 64, 128 x 128, and of the largest
};
const AmdTimes& times_of(const Chip& chip) {
  static constexpr AmdTimes kCdna2 = {
      {10800, 4.31f, 1590, 2.81f}, {8630, 8.13f, 858, 6.62f}, {8210, 29.5f, 2270, 22.4f}, {46500, 43.9f, 10700, 98.0f}};
  static constexpr AmdTimes kCdna3 = {
      {8690, 3.95f, 439, 2.69f}, {5330, 8.2f, 798, 5.45f}, {7620, 17.1f, 2740, 12.7f}, {31600, 19.3f, 14500, 47.5f}};
  static constexpr AmdTimes kCdna4 = {
      {6210, 4.42f, 285, 1.67f}, {5330, 7.15f, 1680, 3.04f}, {7360, 10.6f, 2030, 7.65f}, {22100, 14.9f, 12000, 28.0f}};
  static constexpr AmdTimes kRdna3 = {
      {8600, 3.14f, 338, 1.68f}, {8100, 5.3f, 1240, 4.57f}, {5520, 24.7f, 3470, 16.8f}, {5780, 32.5f, 3160, 26.5f}};
  static constexpr AmdTimes kRdna4 = {
      {6370, 3.31f, 215, 0.893f}, {6900, 2.45f, 677, 2.17f}, {4620, 9.4f, 3520, 5.62f}, {5510, 19.2f, 1870, 16.3f}};
  switch (chip.family) {
    case ChipFamily::kCdna2:
      return kCdna2;
    case ChipFamily::kCdna3:
      return kCdna3;
    case ChipFamily::kCdna4:
      return kCdna4;
    case ChipFamily::kRdna4:
      return kRdna4;
    default:  // RDNA 3 and 3.5
      return kRdna3;
  }
}

bool has_wgmma(const ContractionProblem& p) {
  return p.chip.has(Feature::kWgmma) && size_of(p.type) == 2 && p.vectors();
}

class WgmmaFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return p.made_rows == 0 && has_wgmma(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    struct Shape {
      int n, shares, stages;
      Times ns;
    };
    constexpr Shape kShapes[] = {
        {256, 1, 4, {5110, 11.5f, 6100, 8.4f}}, {192, 1, 4, {4670, 9.4f, 4050, 8.8f}},
        {128, 1, 3, {4090, 7.8f, 2060, 11.9f}}, {128, 1, 6, {3990, 6.6f, 2720, 6.7f}},
        {64, 1, 4, {2150, 5.5f, 1800, 4.5f}},   {64, 2, 6, {3530, 2.05f, 1060, 3.55f}},
        {32, 1, 4, {3530, 2.8f, 720, 4.9f}},    {32, 2, 4, {2420, 3.0f, 530, 2.7f}},
        {32, 2, 8, {2460, 2.7f, 390, 3.6f}},
    };
    const std::int64_t steps = (p.depth + sdx::layout::kStageDepth - 1) / sdx::layout::kStageDepth;
    std::vector<KernelCandidate> all;
    for (const Shape& s : kShapes) {
      const sdx::layout::WgmmaLayout l{s.n, s.shares};
      const std::int64_t used =
          std::min<std::int64_t>(s.stages, steps > 0 ? (steps + s.shares - 1) / s.shares : s.stages);
      KernelCandidate& c = all.emplace_back();
      c.kernel = fmt::format("gemm_wgmma<{}, {}, {}>", s.n, s.stages, s.shares);
      c.tiling = {l.rows(), s.n, s.ns[0], s.ns[1], s.ns[2], s.ns[3]};
      c.shared = static_cast<std::uint32_t>(l.bytes(static_cast<int>(used)));
      c.may_share = s.shares > 1 && s.stages > 4;
    }
    return all;
  }
};

class TileFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return p.made_rows == 0 && !has_wgmma(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    const Chip& chip = p.chip;
    const bool wave64 = chip.wave == 64, narrow = p.type != DType::kFloat32;  // 16 bits or int8
    const int stages = chip.has(Feature::kAsyncCopy) ? 3 : 2;
    const bool amd_matrices = !chip.is_nvidia() && narrow && chip.layout() != MatrixLayout::kVector;
    const Times t32 = amd_matrices ? times_of(chip).t32
                      : narrow     ? Times{3120, 2.9f, 560, 2.1f}
                                   : Times{3380, 13.2f, 2300, 9.0f};
    const Times t64 = amd_matrices ? times_of(chip).t64
                      : narrow     ? Times{2030, 8.7f, 1300, 6.5f}
                                   : Times{9370, 36.6f, 8040, 31.4f};
    std::vector<KernelCandidate> all;
    add(all, 32, 32, wave64 ? "1, 1, 4" : "2, 1, 4", 256, stages, t32);
    add(all, 64, 64, wave64 ? "2, 2, 1" : "2, 2, 2", 128, stages, t64);
    if (amd_matrices)
      add_large_amd_tiles(all, p, times_of(chip));
    else
      add(all, 128, 128, wave64 ? "2, 2, 1" : "4, 2, 1", 64, stages,
          narrow ? Times{3570, 19.1f, 2310, 15.8f} : Times{32500, 127.0f, 32800, 128.0f});
    return all;
  }

 private:
  static void add(std::vector<KernelCandidate>& all, int m, int n, std::string_view waves, int row, int in_lds,
                  const Times& ns) {
    KernelCandidate& c = all.emplace_back();
    c.kernel = fmt::format("gemm<Tiling<{}, {}, {}, {}, {}>>", m, n, waves, row, in_lds);
    c.tiling = {m, n, ns[0], ns[1], ns[2], ns[3]};
    c.may_share = true;
  }

  // Tiles of 128 x 128 and larger for matrix instructions of 16-bit and smaller types. One stage in LDS takes fewer
  // instructions than two and lets a second workgroup run.
  static void add_large_amd_tiles(std::vector<KernelCandidate>& all, const ContractionProblem& p,
                                  const AmdTimes& times) {
    switch (p.chip.layout()) {
      case MatrixLayout::kMfma:
        add(all, 128, 128, "2, 2, 1", 128, 1, times.t128);
        add(all, 256, 256, "2, 2, 1", 64, 2, times.large);
        return;
      case MatrixLayout::kWmma12:
        add(all, 128, 128, "4, 2, 1", 128, 1, times.t128);
        add(all, 256, 128, "4, 2, 1", 64, 1, times.large);
        return;
      default:  // operands of RDNA 3 take twice the registers: 256 x 128 would spill, and 192 x 128 if it transposes
        add(all, 128, 128, "4, 2, 1", 64, 1, times.t128);
        if (p.vectors()) add(all, 192, 128, "4, 2, 1", 64, 1, times.large);
    }
  }
};

class GemvFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override {
    return p.made_rows == 0 && p.a != Access::kAcross && p.b != Access::kAcross && p.least_rows <= kMostRows &&
           !p.padded && !p.quantized;
  }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    const int waves = p.chip.wave == 64 ? 4 : 8;
    std::vector<KernelCandidate> all;
    const auto add = [&](std::string_view kernel, int rows, int columns) {
      KernelCandidate& c = all.emplace_back();
      c.kernel = kernel;
      c.tiling = {rows, columns, 0, 0, 0, 0, true};
    };
    add("gemv<1, 2, 1>", 1, 2 * waves);
    add("gemv<1, 2, 4>", 1, 2 * waves / 4);
    const int each = p.pairs ? 2 : 1;  // columns per wave
    if (!skinny_supports(p)) add(fmt::format("gemv<4, {}, 1>", each), kMostRows, each * waves);
    return all;
  }

 private:
  static constexpr int kMostRows = 4;
};

}  // namespace

const ContractionFamily& wgmma_family() {
  static const WgmmaFamily family;
  return family;
}
const ContractionFamily& tile_family() {
  static const TileFamily family;
  return family;
}
const ContractionFamily& gemv_family() {
  static const GemvFamily family;
  return family;
}

}  // namespace sardonyx::codegen
