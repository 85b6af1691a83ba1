// Tilings of kernels/gemm.h and kernels/gemm_wgmma.h, and matrix-vector kernels, with their times on an H200. Those of
// gemm_wgmma were fitted to 117 problems in 16-bit floats: ResNet-50's convolutions for 1 to 64 images, and BERT-Base's
// and ViT-B/16's GEMMs with 128 to 4096 rows. Each was measured with every tiling. The chosen tilings are 0.6 % slower
// than the best on average. Those for AMD's matrix instructions were fitted to times of
// the simulated GPU (docs/amd-clock.md) in the same way, chip by chip.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "codegen/kernel_family.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

/// GpuTiling::alone_start, alone, busy_start, busy.
using Times = std::array<float, 4>;

/// Of a workgroup, along M, N and K.
using Waves = std::array<int, 3>;

struct AmdTile {
  int m, n;
  Waves waves;
  int row, stages, in_flight;  ///< Tiling's parameters in kernels/gemm_problem.h
  Times ns;
};

// For matrix instructions of 16-bit and smaller types. The times were fitted in float16 to 9 GEMMs of 128 to 4096 rows
// and, on most chips, a 3x3 convolution, with every tiling (`sardonyx tune --timing`): on average the chosen tilings
// are at most 3 % slower than the best. For int8 only the ratios matter. Times of tiles of 224 rows follow from a few
// convolutions. Those of CDNA 3 were fitted again, without the time of a launch, to 150 times of 20 problems
// (ResNet-50's convolutions in a batch of 64, GEMMs of 128 to 4096 rows): on average the chosen tilings are 2 % slower
// than the best; the starts of its four smallest tiles to 80 problems of ResNet-50, MobileNetV3 and SqueezeNet with one
// image, by the time of the chosen ones (with a launch 2.3 % above the best). Those of CDNA 4 whose loads go straight
// to LDS were fitted to 10 convolutions of ResNet-50 in a batch of 64, before a launch was taken from the others. Those
// of RDNA 3 were fitted again, without a launch, to 36 problems (GEMMs of 32 to 4096 rows, convolutions of 1 and 8
// images; on average the chosen tilings are 0.2 % slower than the best, 14 % before); of equal ones the larger is
// taken, which reads less. From the starts of those of CDNA 2 and 4 a launch was taken, and they were set by hand for
// 14 problems and for cold caches. Those of RDNA 4 were fitted to 20 problems, then changed by hand for cold caches.
// Tiles in flight to registers hide the latency of memory within one workgroup, where there are few of them; one stage
// in LDS takes fewer registers, so that a second workgroup runs instead.
std::span<const AmdTile> amd_tiles(const Chip& chip) {
  static constexpr AmdTile kCdna2[] = {
      {32, 32, {1, 1, 4}, 256, 2, 2, {5900, 1.07f, 2100, 2.08f}},
      {64, 64, {2, 2, 1}, 128, 2, 2, {1420, 5.91f, 5340, 3.7f}},
      {128, 64, {2, 2, 1}, 64, 2, 2, {4700, 9.19f, 3160, 10.2f}},
      {128, 128, {2, 2, 1}, 64, 2, 2, {6200, 17.3f, 3740, 19.8f}},
  };
  static constexpr AmdTile kCdna3[] = {
      {32, 32, {1, 1, 4}, 256, 2, 2, {1700, 1.7f, 1200, 1.6f}},
      {64, 64, {2, 2, 1}, 128, 2, 2, {1100, 4.3f, 1020, 4.7f}},
      {128, 64, {2, 2, 1}, 64, 2, 2, {1200, 7.2f, 1400, 9.3f}},
      {64, 128, {2, 2, 1}, 128, 1, 1, {1500, 12.5f, 790, 8.6f}},
      {96, 64, {2, 2, 1}, 64, 2, 2, {1150, 6.8f, 1250, 8}},
      {96, 128, {2, 2, 1}, 64, 2, 2, {3900, 9.9f, 1450, 11.4f}},
      {96, 128, {2, 2, 1}, 128, 2, 2, {2400, 11, 2700, 10.5f}},
      {192, 64, {4, 1, 1}, 64, 2, 2, {3500, 11.7f, 2100, 10.4f}},
      {192, 128, {2, 2, 1}, 64, 2, 2, {4000, 18.5f, 4000, 18.2f}},
      {192, 256, {2, 2, 1}, 64, 2, 2, {6200, 30, 6200, 36.5f}},
      {128, 128, {2, 2, 1}, 64, 2, 2, {1500, 14.2f, 1900, 13.8f}},
      {128, 128, {2, 2, 1}, 128, 1, 1, {1500, 19, 1850, 13.3f}},
      {256, 128, {2, 2, 1}, 64, 1, 1, {3900, 29.7f, 4800, 24.6f}},
  };
  static constexpr AmdTile kCdna4[] = {
      {32, 32, {1, 1, 4}, 256, 2, 2, {2100, 1.41f, 1010, 1.15f}},
      {64, 64, {2, 2, 1}, 128, 2, 2, {1690, 2.92f, 1170, 3.56f}},
      {128, 64, {2, 2, 1}, 64, 2, 2, {2250, 5.6f, 1260, 7.59f}},
      {64, 128, {2, 2, 1}, 128, 1, 1, {2360, 7.32f, 998, 5.17f}},
      {128, 128, {2, 2, 1}, 64, 2, 2, {4680, 6.63f, 3870, 8.35f}},
      {128, 128, {2, 2, 1}, 128, 1, 1, {3850, 10.2f, 2420, 7.98f}},
      {224, 128, {2, 2, 1}, 64, 2, 2, {5500, 10.5f, 10500, 10.5f}},
      {256, 256, {2, 2, 1}, 128, 2, 1, {8700, 19, 13700, 19}},
      {128, 64, {2, 2, 1}, 128, 3, 0, {750, 5.5f, 2500, 5}},
      {128, 128, {2, 2, 1}, 128, 3, 0, {900, 7.1f, 2850, 8}},
      {256, 128, {2, 2, 1}, 128, 3, 0, {1500, 10.8f, 3800, 13.2f}},
  };
  // Operands of RDNA 3 take twice the registers, which leaves none for larger tiles or for more of them in flight.
  static constexpr AmdTile kRdna3[] = {
      {32, 32, {1, 1, 8}, 256, 2, 2, {60, 1.46f, 330, 1.3f}},
      {64, 32, {2, 1, 4}, 256, 2, 2, {1080, 2.71f, 560, 2.56f}},
      {64, 64, {2, 2, 2}, 128, 2, 2, {80, 5.04f, 375, 4.35f}},
      {96, 64, {2, 2, 2}, 64, 2, 2, {10, 6.99f, 350, 5.92f}},
      {128, 64, {4, 2, 1}, 64, 2, 2, {10, 9.77f, 400, 8.39f}},
      {128, 128, {4, 2, 1}, 64, 1, 1, {120, 24.1f, 1270, 16.7f}},
  };
  static constexpr AmdTile kRdna4[] = {
      {32, 32, {1, 1, 8}, 256, 2, 2, {60, 1.2f, 230, 0.71f}}, {64, 32, {2, 1, 4}, 256, 2, 2, {100, 1.03f, 300, 1.27f}},
      {64, 64, {2, 2, 2}, 128, 2, 2, {600, 2.9f, 300, 2.3f}}, {128, 64, {4, 2, 1}, 128, 2, 2, {10, 4.05f, 1050, 3.21f}},
      {96, 96, {2, 2, 2}, 64, 2, 2, {1000, 4, 1150, 3.2f}},   {128, 128, {4, 2, 1}, 64, 2, 2, {2300, 5.2f, 1500, 5.3f}},
  };
  switch (chip.family) {
    case ChipFamily::kCdna2:
      return kCdna2;
    case ChipFamily::kCdna3:
      return kCdna3;
    case ChipFamily::kCdna4:
      return kCdna4;
    case ChipFamily::kRdna4:
      return kRdna4;
    case ChipFamily::kRdna3:
    case ChipFamily::kRdna35:
      return kRdna3;
    default:
      return {};
  }
}

bool has_wgmma(const ContractionProblem& p) {
  return p.chip.has(Feature::kWgmma) && size_of(p.type) <= 2 && p.vectors();
}

class WgmmaFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return p.computed_rows == 0 && has_wgmma(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    struct Shape {
      int n, slices, stages;
      Times ns;
    };
    constexpr Shape kShapes[] = {
        {256, 1, 4, {5110, 11.5f, 6100, 8.4f}}, {192, 1, 4, {4670, 9.4f, 4050, 8.8f}},
        {128, 1, 3, {4090, 7.8f, 2060, 11.9f}}, {128, 1, 6, {3990, 6.6f, 2720, 6.7f}},
        {64, 1, 4, {2150, 5.5f, 1800, 4.5f}},   {64, 2, 6, {3530, 2.05f, 1060, 3.55f}},
        {32, 1, 4, {3530, 2.8f, 720, 4.9f}},    {32, 2, 4, {2420, 3.0f, 530, 2.7f}},
        {32, 2, 8, {2460, 2.7f, 390, 3.6f}},
    };
    const int depth = sdx::layout::stage_depth(static_cast<int>(size_of(p.type)));
    const std::int64_t steps = (p.depth + depth - 1) / depth;
    std::vector<KernelCandidate> all;
    for (const Shape& s : kShapes) {
      const sdx::layout::WgmmaLayout l{s.n, s.slices};
      const std::int64_t used =
          std::min<std::int64_t>(s.stages, steps > 0 ? (steps + s.slices - 1) / s.slices : s.stages);
      KernelCandidate& c = all.emplace_back();
      c.kernel = fmt::format("gemm_wgmma<{}, {}, {}>", s.n, s.stages, s.slices);
      // Instructions multiply 32 bytes of K in the same time, whatever the type.
      const float each = static_cast<float>(size_of(p.type)) / 2;
      c.tiling = {l.rows(), s.n, s.ns[0], each * s.ns[1], s.ns[2], each * s.ns[3]};
      c.shared = static_cast<std::uint32_t>(l.bytes(static_cast<int>(used)));
      c.may_split = s.slices > 1 && s.stages > 4;
    }
    return all;
  }
};

class TileFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override {
    return p.computed_rows == 0 && (p.groups || (!has_wgmma(p) && !packed_supports(p)));
  }
  bool has_groups() const override { return true; }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    const Chip& chip = p.chip;
    const bool wave64 = chip.wave == 64, narrow = p.type != DType::kFloat32;  // 16 bits or int8
    const int stages = chip.has(Feature::kAsyncCopy) ? 3 : 2;
    std::vector<KernelCandidate> all;
    if (narrow)
      for (const AmdTile& t : amd_tiles(chip))
        if (suits(p, t)) {
          add(all, chip, t.m, t.n, t.waves, t.row, t.stages, with_memory(p, t), t.in_flight);
          if (p.shares) all.back().depth = t.row / static_cast<int>(size_of(p.type));
        }
    if (!all.empty()) return all;
    add(all, chip, 32, 32, wave64 ? Waves{1, 1, 4} : Waves{2, 1, 4}, 256, stages,
        narrow ? Times{3120, 2.9f, 560, 2.1f} : Times{3380, 13.2f, 2300, 9.0f});
    add(all, chip, 64, 64, wave64 ? Waves{2, 2, 1} : Waves{2, 2, 2}, 128, stages,
        narrow ? Times{2030, 8.7f, 1300, 6.5f} : Times{9370, 36.6f, 8040, 31.4f});
    add(all, chip, 128, 128, wave64 ? Waves{2, 2, 1} : Waves{4, 2, 1}, 64, stages,
        narrow ? Times{3570, 19.1f, 2310, 15.8f} : Times{32500, 127.0f, 32800, 128.0f});
    return all;
  }

 private:
  static bool suits(const ContractionProblem& p, const AmdTile& t) {
    if (t.in_flight == 0) {
      // They take so much LDS that few workgroups fit. Where memory is the limit, because K is short or rows are read
      // once, more workgroups of other tiles are faster (by the clock on gfx950, K of 64 to 512).
      return p.to_lds && size_of(p.type) == 2 && (p.windows || (p.columns > t.n && p.depth >= 384));
    }
    if (t.m * t.n < 192 * 256) return true;
    return p.vectors() && size_of(p.type) == 2 && (p.linear || t.m * t.n < 256 * 256);
  }

  // The times were fitted to problems whose tiles share rows in caches. If one tile has all columns, and windows do not
  // overlap, workgroups are bound by memory: each compute unit gets its share of the bandwidth, if most units have
  // work.
  static Times with_memory(const ContractionProblem& p, const AmdTile& t) {
    Times ns = t.ns;
    const int units = driver_units(p.chip);
    if (p.windows || p.columns == 0 || p.columns > t.n || p.least_rows / t.m < units / 2) return ns;
    const double share = p.chip.product().gb_per_second / units;  // bytes a nanosecond
    ns[1] = std::max(ns[1], static_cast<float>(t.m * static_cast<double>(size_of(p.type)) / share));
    return ns;
  }

  static void add(std::vector<KernelCandidate>& all, const Chip& chip, int m, int n, const Waves& waves, int row,
                  int in_lds, const Times& ns, int in_flight = 1) {
    KernelCandidate& c = all.emplace_back();
    c.kernel = fmt::format("gemm<Tiling<{}, {}, {}, {}, {}{}>>", m, n, fmt::join(waves, ", "), row, in_lds,
                           in_flight != 1 ? fmt::format(", {}", in_flight) : "");
    c.tiling = {m, n, ns[0], ns[1], ns[2], ns[3]};
    c.tiling.threads = waves[0] * waves[1] * waves[2] * chip.wave;
    if (c.tiling.threads != 256) c.bounds.threads = static_cast<std::uint32_t>(c.tiling.threads);
    // Sums of 256 x 256 fill the accumulation registers (kernels/gemm_direct.h), and where there are few tiles smaller
    // ones are better.
    c.may_split = m * n < 192 * 256;
    if (chip.policy.split_k_tree) c.tree_acc = m * n * waves[2];
  }
};

class GemvFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override {
    return p.computed_rows == 0 && p.a != Access::kAcross && p.b != Access::kAcross && p.least_rows <= kMostRows &&
           !p.padded && !p.quantized && !gemv_wide_supports(p);
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
