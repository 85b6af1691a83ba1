// WinogradPlan: see winograd_plan.h.
#include "host/winograd_plan.h"

#include <algorithm>
#include <vector>

namespace sardonyx::host {
namespace {

/// Bytes of transformed weights that stay in the L3 cache. If there are more, or few tiles per thread, threads divide
/// the weights instead of the tiles. An L3 cache has 32 MiB or more, which other buffers share.
constexpr std::int64_t kCachedWeights = 16 << 20, kFewTiles = 6;
/// Bytes of transformed patches and products that are processed at a time: what fits the L2 cache or, if threads divide
/// the weights, what is left of the L3 cache. (An L2 cache has 1 to 2 MiB.)
constexpr std::int64_t kBlockBytes = 1 << 20, kSplitPatches = 4 << 20, kSplitProducts = 1 << 19;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

std::int64_t tile_count(const ConvDesc& d, int axis, int results) {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t step = results * d.dilation[i], whole = d.out[i] / step, rest = d.out[i] % step;
  return whole * d.dilation[i] + std::min(rest, d.dilation[i]);
}

/// Taps of all results along an axis. With a dilation those in the padding, which are then many, do not count: direct
/// kernels skip them.
double taps(const ConvDesc& d, int axis) {
  const auto i = static_cast<std::size_t>(axis);
  const auto kernel = static_cast<double>(d.kernel[i]);
  if (d.dilation[i] == 1) return kernel * static_cast<double>(d.out[i]);
  double inside = 0;
  for (std::int64_t k = 0; k < d.kernel[i]; ++k) {
    const std::int64_t shift = k * d.dilation[i] - d.pad_begin[i];
    inside += static_cast<double>(
        std::max<std::int64_t>(0, std::min(d.out[i], d.in[i] - shift) - std::max<std::int64_t>(0, -shift)));
  }
  return inside;
}

double direct_multiplications(const ConvDesc& d) {
  return static_cast<double>(d.batch) * taps(d, 0) * taps(d, 1) * static_cast<double>(d.in_channels) *
         static_cast<double>(d.out_channels);
}

/// Time in units of a multiplication. The costs of everything else were measured with AVX-512 (EPYC 9004).
double direct_cost(const ConvDesc& d) {
  constexpr double kResult = 60, kWeight = 12;  // overhead of a sum, and reading a weight from memory
  return direct_multiplications(d) +
         kWeight * static_cast<double>(d.kernel[0] * d.kernel[1] * d.in_channels * d.out_channels) +
         kResult * static_cast<double>(d.batch) * static_cast<double>(d.out[0] * d.out[1]) *
             static_cast<double>(d.out_channels);
}

/// The same for a plan.
double cost(const ConvDesc& d, const WinogradPlan& plan) {
  constexpr double kTransform = 15;             // per channel of a product, for both transforms
  constexpr double kMemory = 12, kCache = 2.5;  // reading a weight for the first block of tiles, and for a later one
  const auto in = static_cast<double>(plan.depth), out = static_cast<double>(d.out_channels);
  const auto products = static_cast<double>(plan.products), tiles = static_cast<double>(plan.tiles);
  const auto columns = static_cast<double>(round_up(d.out_channels, WinogradPlan::kVector));
  const double again = (static_cast<double>(plan.blocks) - 1) * (plan.groups > 1 ? kMemory : kCache);
  return products * (tiles * (in * columns + kTransform * (in + out)) + in * columns * (kMemory + again));
}

/// The forms that can compute this convolution, smaller ones first.
std::vector<WinogradForm> forms_of(const ConvDesc& d) {
  for (std::size_t i = 0; i < 2; ++i)  // all but one tap of each result lie in the padding
    if (d.kernel[i] > 1 && d.dilation[i] > d.out[i]) return {};
  // With AVX2 oneDNN's direct convolution of so few channels takes 0.4 to 0.9 of the time.
  if (vector_level() != VectorLevel::kAvx2 && d.stride[0] == 2 && d.stride[1] == 2 && d.dilation[0] == 1 &&
      d.dilation[1] == 1 && d.in[1] % 2 == 0 && 2 * d.in_channels <= kMaxFoldedRow && d.kernel[0] < 8 &&
      d.kernel[1] < 8) {
    const std::int64_t height = FoldedAxis(d, 0).taps, width = FoldedAxis(d, 1).taps;
    if (height == 3 && width == 3) return {WinogradForm::k4x4Folded};
    if (height == 4 && width == 4) return {WinogradForm::k3x3Folded};
  }
  if (d.kernel[1] != 3 || d.stride[1] > 2 || (d.stride[1] == 2 && d.dilation[1] != 1)) return {};
  const bool strided = d.stride[1] == 2;
  if (d.kernel[0] == 1) {
    if (d.stride[0] != 1 || d.pad_begin[0] != 0 || d.pad_end[0] != 0) return {};
    return {strided ? WinogradForm::k1x4Stride2 : WinogradForm::k1x4};
  }
  if (d.kernel[0] != 3 || d.stride[0] != d.stride[1] || (strided && d.dilation[0] != 1)) return {};
  if (strided) return {WinogradForm::k2x2Stride2, WinogradForm::k4x4Stride2};
  return {WinogradForm::k4x4};
}

}  // namespace

WinogradPlan::WinogradPlan(const ConvDesc& d, WinogradForm of)
    : form(of),
      products(axes_of(of)[0].products * axes_of(of)[1].products),
      tiles(d.batch * tile_count(d, 0, axes_of(of)[0].results) * tile_count(d, 1, axes_of(of)[1].results)) {
  const std::int64_t rows = simd().winograd_rows;
  columns = simd().winograd_columns;
  if (d.out_channels <= columns / 2) columns /= 2;
  // One vector of padding: rows at a distance of a power of two would fall into the same sets of the cache.
  depth = d.in_channels * (folds_pixels(of) ? 4 : 1);
  patch_row = round_up(depth, kVector) + kVector;
  const std::int64_t weights = products * depth * d.out_channels * 4;
  const bool split = weights > kCachedWeights || tiles < d.threads * kFewTiles;
  const std::int64_t panels = (d.out_channels + columns - 1) / columns;
  groups = split ? std::min<std::int64_t>(d.threads, panels) : 1;
  const std::int64_t patch = products * patch_row * 4, results = products * columns * 4;
  const std::int64_t fits =
      groups > 1 ? std::min(kSplitPatches / patch, kSplitProducts / results) : kBlockBytes / (patch + results);
  // Every thread gets the same number of blocks, of nearly equal size.
  const std::int64_t even = groups > 1 ? 1 : d.threads, most = std::max(fits, 2 * rows);
  blocks = std::min(round_up((tiles + most - 1) / most, even), tiles);
  block = (tiles + blocks - 1) / blocks;
  blocks = (tiles + block - 1) / block;
}

std::optional<WinogradPlan> plan_winograd(const ConvDesc& d) {
  constexpr double kLeast = 1 << 19;  // multiplications; smaller convolutions are not worth the transforms
  const std::vector<WinogradForm> forms = forms_of(d);
  if (forms.empty() || direct_multiplications(d) < kLeast) return std::nullopt;
  double least = 0.95 * direct_cost(d);
  std::optional<WinogradPlan> best;
  for (const WinogradForm form : forms) {
    const WinogradPlan plan(d, form);
    const double here = cost(d, plan);
    if (here >= least) continue;
    best.emplace(plan);
    least = 0.92 * here;  // a larger form must gain 8 %, because its weights take more memory
  }
  return best;
}

}  // namespace sardonyx::host
