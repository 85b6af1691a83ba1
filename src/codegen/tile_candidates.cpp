// See tile_candidates.h.
#include "codegen/tile_candidates.h"

#include <algorithm>
#include <array>

#include "kernels/layout_gemm.h"
#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

constexpr std::uint32_t kBlock = 256;  // threads

/// Tiles of 128 x 128 and larger for matrix instructions of 16-bit and smaller types. One tile in LDS takes fewer
/// instructions than two and leaves room for a second workgroup. `vectors`: both operands are K-contiguous. `large`:
/// the times of 128 x 128. Those of larger tiles follow from their areas and the bytes that they read less: 0.92 and
/// 0.85 of the time for an element.
template <class Gemm>
void add_large_amd_tiles(const Gemm& gemm, MatrixLayout layout, bool vectors, const std::array<float, 4>& large) {
  const auto scaled = [&](float area, float less) {
    return std::array<float, 4>{large[0] * area / 2, large[1] * area * less, large[2] * area * less,
                                large[3] * area * less};
  };
  if (layout == MatrixLayout::kMfma) {
    gemm(128, 128, "2, 2, 1", 128, 1, large);
    gemm(256, 256, "2, 2, 1", 64, 2, scaled(4, 0.85f));
  } else if (layout == MatrixLayout::kWmma12) {
    gemm(128, 128, "4, 2, 1", 128, 1, large);
    gemm(256, 128, "4, 2, 1", 64, 1, scaled(2, 0.92f));
  } else {  // operands of RDNA 3 take twice the registers: 256 x 128 would spill, and 192 x 128 if it transposes
    gemm(128, 128, "4, 2, 1", 64, 1, large);
    if (vectors) gemm(192, 128, "4, 2, 1", 64, 1, scaled(1.5f, 0.95f));
  }
}

}  // namespace

void add_skinny(std::vector<Candidate>& t, std::string_view arch, int bits, std::int64_t depth, int width, int rows,
                bool makes_rows) {
  const Chip& chip = chip_of(arch);
  const bool wmma = chip.layout() == MatrixLayout::kWmma11;
  const int lanes = lanes_along_k(chip.layout()), waves = chip.wave == 64 ? 4 : 8;
  const std::int64_t span = std::max(128 / bits, wmma ? 16 : 8) * lanes, spans = (depth + span - 1) / span;
  for (int tiles : {1, 2, 4}) {
    // Registers; and with 4 bits workgroups of 64 columns pay only where each makes its rows (measured on an H200).
    if (tiles == 4 && (width == 16 || bits == 8 || (bits == 4 && !makes_rows))) continue;
    const int most = bits == 16 && tiles == 1 ? 8 : bits == 4 && tiles == 4 ? 2 : 4 / tiles;  // more spill registers
    const auto ahead = std::clamp<std::int64_t>((spans + waves - 1) / waves, 1, most);
    t.push_back({fmt::format("skinny<{}, {}, {}>", width, tiles, ahead), {rows, 16 * tiles, 0, 0, 0, 0, true}});
    t.back().bounds = {.threads = kBlock, .min_blocks = 2};  // registers
  }
}

// Times are what an H200 takes. Those of gemm_wgmma were fitted to 117 products of 16-bit floats (ResNet-50's
// convolutions for 1 to 64 images, BERT-Base's and ViT-B/16's products with 128 to 4096 rows), each with every tiling
// one launch after another, so that the tilings chosen are the fastest: by them they are 0.6 % behind on average. Those
// of AMD's chips follow from areas, with smaller tiles reading more for each product.
std::vector<Candidate> candidates_for(std::string_view arch, DType type, bool vectors, bool may_gemv, int skinny_bits,
                                      bool pairs, std::int64_t depth) {
  const std::int64_t steps = (depth + 63) / 64;
  const Chip& chip = chip_of(arch);
  const bool wave64 = chip.wave == 64, half_type = type != DType::kFloat32;  // or int8
  const int stages = chip.has(Feature::kAsyncCopy) ? 3 : 2;
  std::vector<Candidate> t;
  if (chip.has(Feature::kWgmma) && size_of(type) == 2 && vectors) {
    auto wgmma = [&](int n, int shares, int stages, std::array<float, 4> ns) {
      const sdx::layout::WgmmaLayout l{n, shares};
      const std::int64_t used = std::min<std::int64_t>(stages, steps > 0 ? (steps + shares - 1) / shares : stages);
      t.push_back({fmt::format("gemm_wgmma<{}, {}, {}>", n, stages, shares),
                   {l.rows(), n, ns[0], ns[1], ns[2], ns[3]},
                   static_cast<std::uint32_t>(l.bytes(static_cast<int>(used))),
                   shares > 1 && stages > 4});
    };
    wgmma(256, 1, 4, {5110, 11.5f, 6100, 8.4f});
    wgmma(192, 1, 4, {4670, 9.4f, 4050, 8.8f});
    wgmma(128, 1, 3, {4090, 7.8f, 2060, 11.9f});
    wgmma(128, 1, 6, {3990, 6.6f, 2720, 6.7f});
    wgmma(64, 1, 4, {2150, 5.5f, 1800, 4.5f});
    wgmma(64, 2, 6, {3530, 2.05f, 1060, 3.55f});
    wgmma(32, 1, 4, {3530, 2.8f, 720, 4.9f});
    wgmma(32, 2, 4, {2420, 3.0f, 530, 2.7f});
    wgmma(32, 2, 8, {2460, 2.7f, 390, 3.6f});
  } else {
    auto gemm = [&](int m, int n, std::string_view waves, int row, int in_lds, std::array<float, 4> ns) {
      t.push_back({fmt::format("gemm<Tiling<{}, {}, {}, {}, {}>>", m, n, waves, row, in_lds),
                   {m, n, ns[0], ns[1], ns[2], ns[3]},
                   0,
                   true});
    };
    using Times = std::array<float, 4>;
    gemm(32, 32, wave64 ? "1, 1, 4" : "2, 1, 4", 256, stages,
         half_type ? Times{3120, 2.9f, 560, 2.1f} : Times{3380, 13.2f, 2300, 9.0f});
    gemm(64, 64, wave64 ? "2, 2, 1" : "2, 2, 2", 128, stages,
         half_type ? Times{2030, 8.7f, 1300, 6.5f} : Times{9370, 36.6f, 8040, 31.4f});
    const Times large = half_type ? Times{3570, 19.1f, 2310, 15.8f} : Times{32500, 127.0f, 32800, 128.0f};
    if (chip.is_nvidia() || !half_type || chip.layout() == MatrixLayout::kVector)
      gemm(128, 128, wave64 ? "2, 2, 1" : "4, 2, 1", 64, stages, large);
    else
      add_large_amd_tiles(gemm, chip.layout(), vectors, large);
  }
  if (may_gemv) {
    const int waves = wave64 ? 4 : 8;
    t.push_back({"gemv<1, 2, 1>", {1, 2 * waves, 0, 0, 0, 0, true}});
    t.push_back({"gemv<1, 2, 4>", {1, 2 * waves / 4, 0, 0, 0, 0, true}});
    const int each = pairs ? 2 : 1;  // columns of a wave
    if (skinny_bits == 0) t.push_back({fmt::format("gemv<4, {}, 1>", each), {4, each * waves, 0, 0, 0, 0, true}});
  }
  if (skinny_bits)
    for (int rows : {8, 16}) add_skinny(t, arch, skinny_bits, depth, rows, rows, false);
  return t;
}

}  // namespace sardonyx::codegen
