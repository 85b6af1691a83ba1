// Tilings of kernels/gemm.h and kernels/gemm_wgmma.h, and matrix-vector kernels, with their times on an H200. Those of
// gemm_wgmma were fitted to 117 problems in 16-bit floats (ResNet-50's convolutions for 1 to 64 images, BERT-Base's and
// ViT-B/16's GEMMs with 128 to 4096 rows), each measured with every tiling, so that the fastest tiling is chosen: the
// chosen ones are 0.6 % slower than the best on average. Those for AMD follow from areas, and from smaller tiles
// reading more per operation.
#include <algorithm>
#include <array>

#include "codegen/kernel_family.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

/// GpuTiling::alone_start, alone, busy_start, busy.
using Times = std::array<float, 4>;

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
    std::vector<KernelCandidate> all;
    add(all, 32, 32, wave64 ? "1, 1, 4" : "2, 1, 4", 256, stages,
        narrow ? Times{3120, 2.9f, 560, 2.1f} : Times{3380, 13.2f, 2300, 9.0f});
    add(all, 64, 64, wave64 ? "2, 2, 1" : "2, 2, 2", 128, stages,
        narrow ? Times{2030, 8.7f, 1300, 6.5f} : Times{9370, 36.6f, 8040, 31.4f});
    const Times large = narrow ? Times{3570, 19.1f, 2310, 15.8f} : Times{32500, 127.0f, 32800, 128.0f};
    if (chip.is_nvidia() || !narrow || chip.layout() == MatrixLayout::kVector)
      add(all, 128, 128, wave64 ? "2, 2, 1" : "4, 2, 1", 64, stages, large);
    else
      add_large_amd_tiles(all, p, large);
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
  // instructions than two and lets a second workgroup run. `large`: the times of 128 x 128. Those of larger tiles are
  // scaled by their areas, and by 0.92 and 0.85 per element because they read less.
  static void add_large_amd_tiles(std::vector<KernelCandidate>& all, const ContractionProblem& p, const Times& large) {
    const auto scaled = [&](float area, float less) {
      return Times{large[0] * area / 2, large[1] * area * less, large[2] * area * less, large[3] * area * less};
    };
    switch (p.chip.layout()) {
      case MatrixLayout::kMfma:
        add(all, 128, 128, "2, 2, 1", 128, 1, large);
        add(all, 256, 256, "2, 2, 1", 64, 2, scaled(4, 0.85f));
        return;
      case MatrixLayout::kWmma12:
        add(all, 128, 128, "4, 2, 1", 128, 1, large);
        add(all, 256, 128, "4, 2, 1", 64, 1, scaled(2, 0.92f));
        return;
      default:  // operands of RDNA 3 take twice the registers: 256 x 128 would spill, and 192 x 128 if it transposes
        add(all, 128, 128, "4, 2, 1", 64, 1, large);
        if (p.vectors()) add(all, 192, 128, "4, 2, 1", 64, 1, scaled(1.5f, 0.95f));
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
