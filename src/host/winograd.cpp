// Convolutions of 3 x 3 by Winograd's minimal filtering: blocks of tiles are transformed, multiplied and transformed
// back.
#include "host/winograd.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

/// Bytes of transformed weights that stay in the caches: beyond them, every thread's reading all for each block of
/// tiles would take longer than multiplying by them.
constexpr std::int64_t kCachedWeights = 3 << 20;

constexpr int kTile = 4, kPatch = 6, kProducts = kPatch * kPatch;

std::vector<std::int64_t> image_of(const ConvDesc& d) { return {d.batch, d.out[0], d.out[1], d.out_channels}; }

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The transform of a kernel along one axis: rows of G.
std::array<std::array<double, 3>, kPatch> kernel_transform() {
  constexpr double a = kWinogradNear, b = kWinogradFar;
  const std::array<double, 5> points{0, a, -a, b, -b};
  std::array<std::array<double, 3>, kPatch> g{};
  for (std::size_t j = 0; j < points.size(); ++j) {
    double others = 1;
    for (std::size_t k = 0; k < points.size(); ++k)
      if (k != j) others *= points[j] - points[k];
    for (int i = 0; i < 3; ++i) g[j][i] = std::pow(points[j], i) / others;
  }
  g[5][2] = 1;
  return g;
}

/// Where tiles begin along an axis. With a dilation d, tiles lie in the d images of every d-th pixel.
std::vector<std::int64_t> tile_origins(std::int64_t extent, std::int64_t dilation) {
  std::vector<std::int64_t> origins;
  for (std::int64_t first = 0; first < std::min(extent, dilation); ++first)
    for (std::int64_t at = first; at < extent; at += kTile * dilation) origins.push_back(at);
  return origins;
}

class WinogradKernel : public TileKernel {
 public:
  explicit WinogradKernel(const ConvDesc& d)
      : d_(d),
        ys_(tile_origins(d.out[0], d.dilation[0])),
        xs_(tile_origins(d.out[1], d.dilation[1])),
        tiles_(d.batch * static_cast<std::int64_t>(ys_.size() * xs_.size())),
        panels_(round_up(d.out_channels, simd().winograd_columns) / simd().winograd_columns) {
    // A row more than whole vectors: rows at a power of two of bytes would fall into the same sets of the cache.
    const std::int64_t columns = simd().winograd_columns, rows = simd().winograd_rows;
    patch_row_ = round_up(d.in_channels, columns / 2) + columns / 2;
    // Threads take different tiles if the weights stay in the caches; else, or if there are few tiles, different
    // panels.
    const bool few = tiles_ < d.threads * rows;
    const bool large = kProducts * d.in_channels * d.out_channels * 4 > kCachedWeights;
    groups_ = few || large ? std::min<std::int64_t>(d.threads, panels_) : 1;
    group_panels_ = (panels_ + groups_ - 1) / groups_;
    groups_ = (panels_ + group_panels_ - 1) / group_panels_;
    product_row_ = group_panels_ * columns + columns / 2;
    const std::int64_t fits = (large ? kLargeBlock : kSmallBlock) / (kProducts * (patch_row_ + product_row_) * 4);
    const std::int64_t share = (tiles_ * groups_ + d.threads - 1) / d.threads;
    block_ = std::min(std::max(rows, fits / rows * rows), std::min(round_up(share, rows), tiles_));
    // As many blocks for every thread, of nearly equal size.
    const std::int64_t all = (tiles_ + block_ - 1) / block_, even = groups_ > 1 ? 1 : d.threads;
    block_ = (tiles_ + round_up(all, even) - 1) / round_up(all, even);
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(zeros_floats() + d_.threads * block_floats()) * sizeof(float);
  }
  std::string name() const override { return std::string("winograd 4x4:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    transformed(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = transformed(*args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, image_of(d_));
    auto* scratch = static_cast<float*>(args.scratch);
    std::fill_n(scratch, zeros_floats(), 0.f);
    Job job{static_cast<const float*>(args.src), static_cast<const float*>(weights->data()), {}, scratch};
    job.tile.step = product_step();
    job.tile.bias = static_cast<const float*>(args.bias);
    job.tile.steps = steps.data();
    job.tile.step_count = static_cast<int>(steps.size());
    job.tile.out = static_cast<float*>(args.out);
    float* memory = scratch + zeros_floats();
    // Threads share nothing but weights; a patch is transformed once for each group of panels.
    const std::int64_t units = (tiles_ + block_ - 1) / block_ * groups_;
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min<std::int64_t>(d_.threads, units), 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        for (std::int64_t unit; (unit = next.fetch_add(1)) < units;)
          compute(job, memory + thread * block_floats(), unit / groups_ * block_, unit % groups_ * group_panels_);
      }
    });
  }

 private:
  // Transformed patches and products of a block: a part of the second-level cache; with large weights, as many as it
  // takes to read those once.
  static constexpr std::int64_t kSmallBlock = 1 << 19, kLargeBlock = 8 << 20;

  struct Job {
    const float* src;
    const float* weights;
    WinogradTile tile;
    const float* zeros;
  };

  std::int64_t zeros_floats() const { return round_up(d_.in_channels, 16); }
  std::int64_t patch_step() const { return block_ * patch_row_; }
  std::int64_t product_step() const { return block_ * product_row_; }
  std::int64_t block_floats() const { return round_up(kProducts * (patch_step() + product_step()), 16); }

  /// [product][panel][in channel][column of the panel].
  std::shared_ptr<const Buffer> transformed(PackedWeights& packed, const void* original) const {
    const std::int64_t columns = simd().winograd_columns, in = d_.in_channels, out = d_.out_channels;
    const auto transform = [&](const void* plain, void* target) {
      const auto* w = static_cast<const float*>(plain);
      auto* u = static_cast<float*>(target);
      const auto g = kernel_transform();
      parallel_for(panels_, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin * columns; column < end * columns; ++column) {
          for (std::int64_t c = 0; c < in; ++c) {
            const float* k = column < out ? w + (column * in + c) * 9 : nullptr;
            double half[kPatch][3];
            for (int i = 0; i < kPatch; ++i)
              for (int x = 0; x < 3; ++x) half[i][x] = k ? g[i][0] * k[x] + g[i][1] * k[3 + x] + g[i][2] * k[6 + x] : 0;
            for (int i = 0; i < kPatch; ++i)
              for (int j = 0; j < kPatch; ++j) {
                const double value = g[j][0] * half[i][0] + g[j][1] * half[i][1] + g[j][2] * half[i][2];
                const std::int64_t panel = (i * kPatch + j) * panels_ + column / columns;
                u[(panel * in + c) * columns + column % columns] = static_cast<float>(value);
              }
          }
        }
      });
    };
    const auto floats = static_cast<std::size_t>(kProducts * panels_ * columns * in);
    return packed.form("winograd 4x4", floats * sizeof(float), original,
                       static_cast<std::size_t>(in * out * 9) * sizeof(float), transform);
  }

  struct Place {
    std::int64_t image, y, x;
  };
  Place place(std::int64_t tile) const {
    const auto columns = static_cast<std::int64_t>(xs_.size()), rows = static_cast<std::int64_t>(ys_.size());
    return {tile / (columns * rows), ys_[static_cast<std::size_t>(tile / columns % rows)],
            xs_[static_cast<std::size_t>(tile % columns)]};
  }

  /// The results of tiles from `first` on, as far as the block goes, in the channels of a group of panels.
  void compute(const Job& job, float* block, std::int64_t first, std::int64_t panel) const {
    const std::int64_t count = std::min(block_, tiles_ - first), last = std::min(panel + group_panels_, panels_);
    for (std::int64_t t = 0; t < count; ++t) transform_patch(job, place(first + t), block + t * patch_row_);
    const std::int64_t columns = simd().winograd_columns;
    float* results = block + kProducts * patch_step();
    const auto weights = [&](std::int64_t element, std::int64_t p) {
      return job.weights + (element * panels_ + p) * d_.in_channels * columns;
    };
    for (std::int64_t element = 0; element < kProducts; ++element) {
      for (std::int64_t p = panel; p < last; ++p) {
        const float* next = p + 1 < last              ? weights(element, p + 1)
                            : element + 1 < kProducts ? weights(element + 1, panel)
                                                      : nullptr;
        simd().winograd_product(count, d_.in_channels, block + element * patch_step(), patch_row_, weights(element, p),
                                next, results + element * product_step() + (p - panel) * columns, product_row_);
      }
    }
    WinogradTile tile = job.tile;
    tile.first = panel * columns;
    tile.last = std::min(last * columns, d_.out_channels);
    for (std::int64_t t = 0; t < count; ++t) {
      tile.products = results + t * product_row_;
      finish(tile, place(first + t));
    }
  }

  void transform_patch(const Job& job, Place p, float* out) const {
    const std::int64_t height = d_.in[0], width = d_.in[1], channels = d_.in_channels;
    const float* image = job.src + p.image * height * width * channels;
    const float* pixels[kProducts];
    for (int i = 0; i < kPatch; ++i) {
      const std::int64_t y = p.y - d_.pad_begin[0] + i * d_.dilation[0];
      for (int j = 0; j < kPatch; ++j) {
        const std::int64_t x = p.x - d_.pad_begin[1] + j * d_.dilation[1];
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        pixels[i * kPatch + j] = inside ? image + (y * width + x) * channels : job.zeros;
      }
    }
    simd().winograd_input(pixels, channels, out, patch_step());
  }

  void finish(WinogradTile& tile, Place p) const {
    for (int i = 0; i < kTile; ++i) {
      const std::int64_t y = p.y + i * d_.dilation[0];
      for (int j = 0; j < kTile; ++j) {
        const std::int64_t x = p.x + j * d_.dilation[1];
        tile.pixels[i * kTile + j] =
            y < d_.out[0] && x < d_.out[1] ? ((p.image * d_.out[0] + y) * d_.out[1] + x) * d_.out_channels : -1;
      }
    }
    simd().winograd_output(tile);
  }

  ConvDesc d_;
  std::vector<std::int64_t> ys_, xs_;  ///< of the results' first pixels
  std::int64_t tiles_, panels_;
  std::int64_t groups_, group_panels_;  ///< groups of panels that threads divide
  std::int64_t patch_row_, product_row_, block_;
};

/// Taps of all results along an axis, less those in the padding if there is a dilation: direct kernels skip rows of
/// padding, which are many then.
double taps(const ConvDesc& d, int axis) {
  const auto i = static_cast<std::size_t>(axis);
  if (d.dilation[i] == 1) return 3 * static_cast<double>(d.out[i]);
  double inside = 0;
  for (std::int64_t k = 0; k < 3; ++k) {
    const std::int64_t shift = k * d.dilation[i] - d.pad_begin[i];
    inside += static_cast<double>(
        std::max<std::int64_t>(0, std::min(d.out[i], d.in[i] - shift) - std::max<std::int64_t>(0, -shift)));
  }
  return inside;
}

/// Whether the multiplications saved outweigh the transforms and reading four times as many weights. All is counted in
/// multiplications; what the others cost in them was measured with AVX-512 (EPYC 9004).
bool worth_it(const ConvDesc& d) {
  constexpr double kInput = 450, kOutput = 400;  // transforms, for each channel of a tile
  constexpr double kOverhead = 1.25;             // of products of few rows over those of direct convolutions
  constexpr double kWeight = 10;                 // reading one from memory
  constexpr double kLeast = 1 << 19;             // smaller ones are done before it matters
  const auto tiles = static_cast<double>(d.batch) * static_cast<double>(tile_origins(d.out[0], d.dilation[0]).size()) *
                     static_cast<double>(tile_origins(d.out[1], d.dilation[1]).size());
  const auto in = static_cast<double>(d.in_channels), out = static_cast<double>(d.out_channels);
  const auto columns = static_cast<double>(round_up(d.out_channels, simd().winograd_columns));
  const double direct = static_cast<double>(d.batch) * taps(d, 0) * taps(d, 1) * in * out;
  double ours = tiles * (kProducts * in * columns + kInput * in + kOutput * out) * kOverhead;
  if (kProducts * d.in_channels * d.out_channels * 4 > kCachedWeights) ours += kProducts * in * columns * kWeight;
  return direct >= kLeast && ours < 0.9 * direct;
}

}  // namespace

std::shared_ptr<const TileKernel> make_winograd(const ConvDesc& d) {
  if (d.spatial != 2 || d.transposed || d.groups != 1 || d.layout != ImageLayout::kChannelsLast || !d.weights_constant)
    return nullptr;
  for (int i = 0; i < 2; ++i)
    if (d.kernel[i] != 3 || d.stride[i] != 1) return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (!has_steps(d.post, image_of(d))) return nullptr;
  if (!worth_it(d)) return nullptr;
  return std::make_shared<WinogradKernel>(d);
}

}  // namespace sardonyx::host
