// GEMMs of more than a few rows with weights of 4 or 8 bits, on Hopper: kernels/packed_ring.h, gemm_packed.h and
// gemm_wgmma_packed.h.
#include <algorithm>

#include "codegen/kernel_family.h"
#include "kernels/layout_gemm.h"

namespace sardonyx::codegen {
namespace {

class PackedFamily : public ContractionFamily {
 public:
  bool supports(const ContractionProblem& p) const override { return packed_supports(p); }

  std::vector<KernelCandidate> candidates(const ContractionProblem& p) const override {
    struct Shape {
      int n, stages, slices, ahead;
      float alone_start, alone, busy_start, busy;
    };
    // Fitted like those of gemm_families.cpp, on an H200, to GEMMs of 32 to 128 rows with 4-bit weights in blocks of 32
    // (N and K of Llama's layers). Of nine tilings these are the best or within 5 %.
    constexpr Shape kShapes[] = {{64, 3, 2, 4, 3250, 4.76f, 1300, 4.36f}, {128, 4, 1, 8, 4050, 9.3f, 2300, 10.0f}};
    std::vector<KernelCandidate> all;
    if (p.loaded_scales) add_left(all, p);
    for (const int rows : kRingRows) add_ring(all, p, rows);
    for (const Shape& s : kShapes) {
      const sdx::layout::WgmmaLayout l{s.n, s.slices};
      KernelCandidate& c = all.emplace_back();
      c.kernel = fmt::format("gemm_wgmma_packed<{}, {}, {}, {}>", s.n, s.stages, s.slices, s.ahead);
      c.tiling = {l.rows(), s.n, s.alone_start, s.alone, s.busy_start, s.busy};
      c.shared = static_cast<std::uint32_t>(l.bytes(s.stages));
      c.may_split = s.slices > 1;
      if (s.slices > 1) c.bounds.min_blocks = 2;  // bounds the registers
    }
    return all;
  }

 private:
  // Weights in registers: kernels/gemm_packed.h.
  static void add_left(std::vector<KernelCandidate>& all, const ContractionProblem& p) {
    using Layout = sdx::layout::PackedLayout;
    struct Shape {
      int rows;
      float alone_start, busy_start, each;
    };
    // Fitted on an H200 to GEMMs of 32 and 64 rows, as above. Tiles of 8, 16 and 128 rows, six steps ahead and clusters
    // of 8 were not better than these and the other families. 16 clusters of 6 run at once, 16 of 7 or 8 do not.
    constexpr Shape kShapes[] = {{32, 5000, 3300, 4.2f}, {64, 6000, 4200, 5.5f}};
    constexpr int kStages = 4, kAhead = 4, kThreads = 384;
    for (const Shape& s : kShapes)
      for (const int splits : {1, 2, 4, 6}) {
        KernelCandidate& c = all.emplace_back();
        c.kernel = fmt::format("gemm_packed<{}, {}, {}, {}>", s.rows, kStages, kAhead, splits);
        const float each = s.each / static_cast<float>(splits);
        c.tiling = {s.rows, Layout::kCols, s.alone_start, each, s.busy_start, each};
        c.tiling.cluster = splits;
        c.tiling.resident = splits == 1 ? 1 : 0;
        c.tiling.threads = kThreads;
        c.shared = static_cast<std::uint32_t>(Layout{s.rows, kStages, p.bits}.bytes());
        c.bounds = {.threads = kThreads, .cluster = splits > 1 ? static_cast<std::uint32_t>(splits) : 0};
      }
  }

  static void add_ring(std::vector<KernelCandidate>& all, const ContractionProblem& p, int rows) {
    const std::optional<RingShape> s = ring_shape(p, rows);
    if (!s) return;
    const sdx::layout::PackedRingLayout l{s->groups, rows, s->stages, p.bits, p.vectors_per_scale};
    KernelCandidate& c = all.emplace_back();
    c.kernel =
        fmt::format("packed_ring<{}, {}, {}, {}, {}>", s->groups, rows, s->stages, s->splits, p.vectors_per_scale);
    c.tiling = {rows, l.cols(), 0, 0, 0, 0, true};
    c.tiling.cluster = s->splits;
    c.tiling.threads = l.threads();
    c.shared = static_cast<std::uint32_t>(l.bytes());
    c.bounds.threads = static_cast<std::uint32_t>(l.threads());
    if (s->resident > 1) c.bounds.min_blocks = static_cast<std::uint32_t>(s->resident);  // bounds the registers
    if (s->splits > 1) c.bounds.cluster = static_cast<std::uint32_t>(s->splits);
  }
};

}  // namespace

bool packed_supports(const ContractionProblem& p) {
  return p.chip.has(Feature::kWgmma) && p.quantized && p.computed_rows == 0 && size_of(p.type) == 2 &&
         p.a == Access::kVector && p.b == Access::kElements && !p.padded;
}

std::optional<RingShape> ring_shape(const ContractionProblem& p, int rows) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;  // offsets of columns have 32 bits
  constexpr int kDepth = sdx::layout::PackedRingLayout{1, 8, 1, 4, 1}.depth(), kMostVectors = 4;
  if (!packed_supports(p) || !p.loaded_blocks || p.bits != 4 || p.columns <= 0 || p.depth < kDepth ||
      p.depth % kDepth != 0 || p.vectors_per_scale > kMostVectors || p.columns >= kMostBytes / (p.depth / 2))
    return {};
  // Measured on an H200 with N of 1024 to 128256 and K of 2048 to 14336. Of the sizes that are not here, the other
  // kernels were faster or nothing was measured.
  const bool many = p.columns >= 24576,
             deep = p.depth >= 8192 && p.columns <= 5632 && p.columns >= (rows == 32 ? 4096 : 2048);
  if (!p.loaded_scales && !many) return {};  // blocks with zero points of their own
  if (rows == 32) {
    if (many || deep) return RingShape{4, 4, many ? 1 : 6, 1};
  } else if (many || deep || (rows == 16 && p.columns >= 16384)) {
    return RingShape{2, rows == 8 ? 5 : 4, deep ? 6 : 1, 2};
  } else if (rows == 16 && p.depth >= 4096 && p.columns >= 6144 && p.columns < 8192) {
    return RingShape{2, 4, 4, 2};
  }
  return {};
}

bool packed_beats_skinny(const ContractionProblem& p) {
  constexpr int kCols = sdx::layout::PackedLayout::kCols;
  const bool one_wave = p.columns >= 16 * kCols && p.columns <= 28 * kCols;  // of clusters of 4
  return packed_supports(p) && p.loaded_scales &&
         (p.columns >= 8192 || (p.depth >= 4096 && (one_wave || p.columns > 32 * driver_units(p.chip))));
}

const ContractionFamily& packed_family() {
  static const PackedFamily family;
  return family;
}

}  // namespace sardonyx::codegen
