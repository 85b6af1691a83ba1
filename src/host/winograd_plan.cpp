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
constexpr std::int64_t kPieceTaps = 3;  // of filters that are sums of pieces
constexpr std::int64_t kGroupProducts = 1 << 15, kLeastGroupTiles = 16;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

std::int64_t tile_count(const ConvDesc& d, int axis, int results) {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t step = results * d.dilation[i], whole = d.out[i] / step, rest = d.out[i] % step;
  return whole * d.dilation[i] + std::min(rest, d.dilation[i]);
}

/// Taps of all results along an axis. With a dilation or a long filter those in the padding, which are then many, do
/// not count: direct kernels skip them.
double taps(const ConvDesc& d, int axis) {
  const auto i = static_cast<std::size_t>(axis);
  const auto kernel = static_cast<double>(d.kernel[i]);
  if (d.dilation[i] == 1 && (d.kernel[i] <= kPieceTaps || d.stride[i] != 1))
    return kernel * static_cast<double>(d.out[i]);
  double inside = 0;
  for (std::int64_t k = 0; k < d.kernel[i]; ++k) {
    const std::int64_t shift = k * d.dilation[i] - d.pad_begin[i];
    inside += static_cast<double>(
        std::max<std::int64_t>(0, std::min(d.out[i], d.in[i] - shift) - std::max<std::int64_t>(0, -shift)));
  }
  return inside;
}

double direct_multiplications(const ConvDesc& d) {
  return static_cast<double>(d.batch) * taps(d, 0) * taps(d, 1) * static_cast<double>(d.in_channels / d.groups) *
         static_cast<double>(d.out_channels);
}

/// Reading a weight from memory in units of a multiplication, of which AVX2 computes half as many in the same time.
double memory_cost() { return vector_level() == VectorLevel::kAvx512 ? 12 : 6; }

/// Filters of other extents than 3 x 3 and 1 x 3, which are padded to whole pieces.
bool is_sum_of_pieces(const ConvDesc& d) {
  return d.groups == 1 && d.stride[0] == 1 && d.stride[1] == 1 &&
         (d.kernel[1] != kPieceTaps || (d.kernel[0] != kPieceTaps && d.kernel[0] != 1));
}

/// Time in units of a multiplication. The costs of everything else were measured with AVX-512 (EPYC 9004).
double direct_cost(const ConvDesc& d) {
  const double overhead = is_sum_of_pieces(d) ? 0 : 60;  // of a sum; long sums were measured on a Xeon, with AVX2 too
  return direct_multiplications(d) +
         memory_cost() * static_cast<double>(d.kernel[0] * d.kernel[1] * d.in_channels / d.groups * d.out_channels) +
         overhead * static_cast<double>(d.batch) * static_cast<double>(d.out[0] * d.out[1]) *
             static_cast<double>(d.out_channels);
}

/// The same for a plan.
double cost(const ConvDesc& d, const WinogradPlan& plan) {
  constexpr double kTransform = 15;  // per channel of a product, for both transforms
  constexpr double kNarrow = 1.5;    // measured on a Xeon
  // Reading a weight for the first block of tiles, and for a later one.
  const double memory = memory_cost(), cache = memory / 5;
  const auto in = static_cast<double>(plan.depth), out = static_cast<double>(d.out_channels);
  const auto products = static_cast<double>(plan.products), tiles = static_cast<double>(plan.tiles);
  const auto groups = static_cast<double>(d.groups);
  const std::int64_t filled = d.groups == 1 ? WinogradPlan::kVector : plan.columns;
  const double columns = groups * static_cast<double>(round_up(d.out_channels / d.groups, filled));
  const double again = (static_cast<double>(plan.blocks) - 1) * (plan.parts > 1 ? memory : cache);
  // Panels of one vector have as many broadcasts as products, and results in pieces of a cache line. (With AVX2 direct
  // kernels of such groups are slower too.)
  const bool narrow = vector_level() == VectorLevel::kAvx512 && plan.columns == WinogradPlan::kVector;
  return (narrow ? kNarrow : 1) * products *
         (tiles * (in * columns + kTransform * (groups * in + out)) + in * columns * (memory + again));
}

/// The forms that can compute this convolution, smaller ones first.
std::vector<WinogradForm> forms_of(const ConvDesc& d) {
  for (std::size_t i = 0; i < 2; ++i)  // all but one tap of each result lie in the padding
    if (d.kernel[i] > 1 && d.dilation[i] > d.out[i]) return {};
  // With AVX2 oneDNN's direct convolution of so few channels takes 0.4 to 0.9 of the time.
  if (vector_level() != VectorLevel::kAvx2 && d.groups == 1 && d.stride[0] == 2 && d.stride[1] == 2 &&
      d.dilation[0] == 1 && d.dilation[1] == 1 && d.in[1] % 2 == 0 && 2 * d.in_channels <= kMaxFoldedRow &&
      d.kernel[0] < 8 && d.kernel[1] < 8) {
    const std::int64_t height = FoldedAxis(d, 0).taps, width = FoldedAxis(d, 1).taps;
    if (height == 3 && width == 3) return {WinogradForm::k4x4Folded};
    if (height == 4 && width == 4) return {WinogradForm::k3x3Folded};
  }
  if (is_sum_of_pieces(d)) {
    if (d.in_channels < WinogradPlan::kVector) return {};  // pieces are transformed in whole vectors
    const auto untouched = [&](std::size_t i) { return d.kernel[i] == 1 && d.pad_begin[i] == 0 && d.pad_end[i] == 0; };
    if (d.kernel[0] == 1 && d.kernel[1] == 1) return {};
    if (untouched(0)) return {WinogradForm::k1x4};
    if (untouched(1)) return {WinogradForm::k4x1};
    if (d.kernel[0] < 2 || d.kernel[1] < 2) return {};
    return {WinogradForm::k4x4};
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

/// Columns of panels for a group of `out` channels: as many as the kernels take, unless more than a quarter of them
/// would be empty.
std::int64_t panel_columns(std::int64_t out, std::int64_t least) {
  std::int64_t best = simd().winograd_columns;
  for (std::int64_t columns = best / 2; columns >= least; columns /= 2)
    if (4 * round_up(out, columns) < 3 * round_up(out, best)) best = columns;
  return best;
}

/// How many groups of `in` channels make rows of patches that are long enough for the transforms.
std::int64_t groups_together(const ConvDesc& d, std::int64_t in) {
  constexpr std::int64_t kChannels = 64;
  std::int64_t together = std::clamp<std::int64_t>(kChannels / in, 1, d.groups);
  while (d.groups % together != 0) --together;
  return together;
}

}  // namespace

WinogradPlan::WinogradPlan(const ConvDesc& d, WinogradForm of)
    : form(of),
      products(axes_of(of)[0].products * axes_of(of)[1].products),
      tiles(d.batch * tile_count(d, 0, axes_of(of)[0].results) * tile_count(d, 1, axes_of(of)[1].results)) {
  const std::int64_t rows = simd().winograd_rows;
  columns = simd().winograd_columns;
  if (d.groups > 1)
    columns = panel_columns(d.out_channels / d.groups, simd().attention_lanes);
  else if (d.out_channels <= columns / 2)
    columns /= 2;
  if (!folds_pixels(of))
    for (std::size_t i = 0; i < 2; ++i) pieces[i] = (d.kernel[i] + axes_of(of)[i].taps - 1) / axes_of(of)[i].taps;
  depth = d.in_channels / d.groups * (folds_pixels(of) ? 4 : 1) * pieces[0] * pieces[1];
  bundle = groups_together(d, depth);
  // One vector of padding: rows at a distance of a power of two would fall into the same sets of the cache.
  patch_row = round_up(bundle * depth, kVector) + kVector;
  const std::int64_t weights = products * depth * d.out_channels * 4;
  const bool split = d.groups == 1 && (weights > kCachedWeights || tiles < d.threads * kFewTiles);
  const std::int64_t panels = (d.out_channels + columns - 1) / columns;
  parts = split ? std::min<std::int64_t>(d.threads, panels) : 1;
  const std::int64_t patch = products * patch_row * 4, results = products * columns * 4;
  const std::int64_t fits =
      parts > 1 ? std::min(kSplitPatches / patch, kSplitProducts / results) : kBlockBytes / (patch + results);
  // Every thread gets the same number of blocks, of nearly equal size.
  const std::int64_t even = parts > 1 || d.groups > bundle ? 1 : d.threads;
  // The products of a group with few channels should stay in the L1 cache.
  const std::int64_t most =
      d.groups > 1 ? std::max(std::min(fits, kGroupProducts / results), kLeastGroupTiles) : std::max(fits, 2 * rows);
  blocks = std::min(round_up((tiles + most - 1) / most, even), tiles);
  block = (tiles + blocks - 1) / blocks;
  blocks = (tiles + block - 1) / block;
}

std::optional<WinogradPlan> plan_winograd(const ConvDesc& d) {
  constexpr double kLeast = 1 << 19;       // multiplications; smaller convolutions are not worth the transforms
  constexpr std::int64_t kLeastGroup = 8;  // channels; transforms of fewer are not worth it
  if (d.exact) return std::nullopt;
  if (d.groups > 1 && d.in_channels / d.groups < kLeastGroup) return std::nullopt;
  const std::vector<WinogradForm> forms = forms_of(d);
  if (forms.empty() || direct_multiplications(d) < kLeast) return std::nullopt;
  double least = 0.95 * direct_cost(d);
  std::optional<WinogradPlan> best;
  for (const WinogradForm form : forms) {
    const WinogradPlan plan(d, form);
    // The weights of pieces are several times those of the filter. From memory they would take longer than the
    // multiplications that they save.
    const std::int64_t weights = plan.products * plan.depth * d.out_channels * 4;
    if (plan.pieces[0] * plan.pieces[1] > 1 && weights > kCachedWeights) continue;
    const double here = cost(d, plan);
    if (here >= least) continue;
    best.emplace(plan);
    least = 0.92 * here;  // a larger form must gain 8 %, because its weights take more memory
  }
  return best;
}

}  // namespace sardonyx::host
