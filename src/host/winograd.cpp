// Convolutions with 3 taps along an axis, or sums of such, by Winograd's minimal filtering: blocks of tiles are
// transformed, multiplied with the weights and transformed back.
#include "host/winograd.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "host/winograd_plan.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

std::vector<std::int64_t> image_of(const ConvDesc& d) { return {d.batch, d.out[0], d.out[1], d.out_channels}; }

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

using Taps = std::array<double, 4>;

/// Rows of the filter's transform for the minimal filtering F(m, taps) with these interpolation points and infinity.
std::vector<std::vector<double>> at_points(const std::vector<double>& points, int taps) {
  std::vector<std::vector<double>> rows;
  for (std::size_t j = 0; j < points.size(); ++j) {
    double others = 1;
    for (std::size_t k = 0; k < points.size(); ++k)
      if (k != j) others *= points[j] - points[k];
    std::vector<double> row;
    for (int i = 0; i < taps; ++i) row.push_back(std::pow(points[j], i) / others);
    rows.push_back(std::move(row));
  }
  rows.emplace_back(static_cast<std::size_t>(taps)).back() = 1;
  return rows;
}

/// The transform of a filter along an axis: the rows of G, for the products that simd_winograd.inc computes.
std::vector<Taps> kernel_transform(const WinogradAxis& axis) {
  if (axis.products == 1) return {{1, 0, 0, 0}};
  std::vector<Taps> g;
  if (axis.stride == 1) {
    constexpr double a = kWinogradNear, b = kWinogradFar;
    for (const auto& row : at_points({0, a, -a, b, -b}, axis.taps)) std::ranges::copy(row, g.emplace_back().begin());
    return g;
  }
  constexpr double a = kWinogradStridedNear, b = kWinogradStridedFar;
  const auto outer = at_points(axis.results == 4 ? std::vector<double>{a, -a, b, -b} : std::vector<double>{1, -1}, 2);
  for (const auto& row : outer) g.push_back({row[0], 0, row[1], 0});
  for (int i = 0; i < axis.results; ++i) g.push_back({0, 1, 0, 0});
  return g;
}

/// Where tiles of `results` outputs begin along an axis. A dilation d splits the image into d interleaved ones.
std::vector<std::int64_t> tile_origins(std::int64_t extent, std::int64_t dilation, int results) {
  std::vector<std::int64_t> origins;
  for (std::int64_t first = 0; first < std::min(extent, dilation); ++first)
    for (std::int64_t at = first; at < extent; at += results * dilation) origins.push_back(at);
  return origins;
}

class WinogradKernel : public TileKernel {
 public:
  WinogradKernel(const ConvDesc& d, const WinogradPlan& plan)
      : d_(d),
        plan_(plan),
        transforms_(simd().winograd[static_cast<int>(plan.form)]),
        y_(axes_of(plan.form)[0]),
        x_(axes_of(plan.form)[1]),
        ys_(tile_origins(d.out[0], d.dilation[0], y_.results)),
        xs_(tile_origins(d.out[1], d.dilation[1], x_.results)),
        in_(d.in_channels / d.groups),
        out_(d.out_channels / d.groups),
        group_panels_((out_ + plan.columns - 1) / plan.columns),
        panels_(d.groups * group_panels_) {
    if (d.threads == 1) return;
    ConvDesc alone = d;
    alone.threads = 1;
    alone_ = std::make_unique<WinogradKernel>(alone, WinogradPlan(alone, plan.form));
  }

  std::size_t scratch_bytes() const override {
    const std::size_t own =
        static_cast<std::size_t>(zeros_floats() + d_.threads * patch_floats() + d_.threads * product_floats()) *
        sizeof(float);
    return alone_ ? std::max(own, alone_->scratch_bytes()) : own;
  }
  std::string name() const override { return fmt::format("winograd {}:{}", form_name(), simd().name); }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    transformed(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    if (alone_ && stays_in_thread()) return alone_->run(args);
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
    float* patches = scratch + zeros_floats();
    float* products = patches + d_.threads * patch_floats();
    // A unit is a block of tiles, in a bundle of groups, with a part of the panels. If there are several bundles,
    // panels have one part.
    const std::int64_t bundles = d_.groups / plan_.bundle, panels = plan_.bundle * group_panels_;
    const std::int64_t part = (panels + plan_.parts - 1) / plan_.parts;
    const std::int64_t units = plan_.blocks * bundles * plan_.parts;
    const auto used = static_cast<int>(std::min<std::int64_t>(d_.threads, units));
    Shares shares(units, used);
    parallel_for(used, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        float* own = patches + thread * patch_floats();
        std::int64_t transformed = -1;
        for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);) {
          const std::int64_t patches_of = unit / plan_.parts, panel = unit % plan_.parts * part;
          const std::int64_t block = patches_of % plan_.blocks, bundle = patches_of / plan_.blocks;
          const std::int64_t first = block * plan_.block, count = std::min(plan_.block, plan_.tiles - first);
          if (patches_of != transformed) transform_patches(job, first, count, bundle, own);
          transformed = patches_of;
          const std::int64_t before = bundle * panels;  // panels of the bundles before
          multiply(job, first, count, before, {before + panel, before + std::min(panel + part, panels)}, own,
                   products + thread * product_floats());
        }
      }
    });
  }

 private:
  std::string form_name() const {
    const char* kind = folds_pixels(plan_.form) ? " space-to-depth" : x_.stride == 1 ? "" : " stride 2";
    const std::string pieces = this->pieces() > 1 ? fmt::format(" of {} pieces", this->pieces()) : "";
    return fmt::format("{}x{}{}{}", y_.results, x_.results, kind, pieces);
  }
  struct Job {
    const float* src;
    const float* weights;
    WinogradTile tile;
    const float* zeros;
  };

  std::int64_t zeros_floats() const { return round_up(plan_.bundle * plan_.depth, WinogradPlan::kVector); }
  std::int64_t patch_step() const { return plan_.block * plan_.patch_row; }
  /// Stride of products: a row of the panel for each tile of a block, and one vector of padding.
  std::int64_t product_step() const { return plan_.block * plan_.columns + WinogradPlan::kVector; }
  std::int64_t patch_floats() const { return round_up(plan_.products * patch_step(), WinogradPlan::kVector); }
  std::int64_t product_floats() const {
    return round_up(plan_.products * product_step(), WinogradPlan::kVector) + plan_.block * kMaxWinogradResults * 2;
  }

  /// In taps, where a piece of the filter begins.
  struct Shift {
    std::int64_t y, x;
  };
  Shift shift(std::int64_t piece) const {
    return {piece / plan_.pieces[1] * y_.taps, piece % plan_.pieces[1] * x_.taps};
  }
  std::int64_t pieces() const { return plan_.pieces[0] * plan_.pieces[1]; }

  /// The weight of tap (y, x) of channel c of a patch's pixels.
  double tap(const float* kernels, std::int64_t out, std::int64_t c, std::int64_t y, std::int64_t x) const {
    std::int64_t channel = c % in_;
    if (!folds_pixels(plan_.form)) {
      const Shift piece = shift(c / in_);
      y += piece.y;
      x += piece.x;
      if (y >= d_.kernel[0] || x >= d_.kernel[1]) return 0;
    } else {
      y = 2 * y + c / in_ / 2 - FoldedAxis(d_, 0).before;
      x = 2 * x + c / in_ % 2 - FoldedAxis(d_, 1).before;
      if (y < 0 || y >= d_.kernel[0] || x < 0 || x >= d_.kernel[1]) return 0;
    }
    return kernels[((out * in_ + channel) * d_.kernel[0] + y) * d_.kernel[1] + x];
  }

  /// [panel][product][channel][column of the panel].
  std::shared_ptr<const Buffer> transformed(PackedWeights& packed, const void* original) const {
    const std::int64_t columns = plan_.columns, depth = plan_.depth, products = plan_.products;
    const auto transform = [&](const void* plain, void* target) {
      const auto* w = static_cast<const float*>(plain);
      auto* u = static_cast<float*>(target);
      const std::vector<Taps> rows = kernel_transform(y_), g = kernel_transform(x_);
      parallel_for(panels_, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin * columns; column < end * columns; ++column) {
          const std::int64_t group = column / columns / group_panels_;
          const std::int64_t at = column - group * group_panels_ * columns;  // channel of the group
          for (std::int64_t c = 0; c < depth; ++c) {
            Taps k[4]{};
            for (int y = 0; y < y_.taps && at < out_; ++y)
              for (int x = 0; x < x_.taps; ++x) k[y][x] = tap(w, group * out_ + at, c, y, x);
            float* result = u + (column / columns * products * depth + c) * columns + column % columns;
            for (int i = 0; i < y_.products; ++i) {
              Taps half{};
              for (int y = 0; y < y_.taps; ++y)
                for (int x = 0; x < x_.taps; ++x) half[x] += rows[i][y] * k[y][x];
              for (int j = 0; j < x_.products; ++j, result += depth * columns) {
                double value = 0;
                for (int x = 0; x < x_.taps; ++x) value += g[j][x] * half[x];
                *result = static_cast<float>(value);
              }
            }
          }
        }
      });
      flush_subnormals(static_cast<float*>(target), products * panels_ * columns * depth);
    };
    const auto floats = static_cast<std::size_t>(products * panels_ * columns * depth);
    const auto count = static_cast<std::size_t>(in_ * d_.out_channels * d_.kernel[0] * d_.kernel[1]);
    return packed.form(fmt::format("winograd {} {}", form_name(), columns), floats * sizeof(float), original,
                       count * sizeof(float), transform);
  }

  struct Place {
    std::int64_t image, y, x;
  };
  Place place(std::int64_t tile) const {
    const auto columns = static_cast<std::int64_t>(xs_.size()), rows = static_cast<std::int64_t>(ys_.size());
    return {tile / (columns * rows), ys_[static_cast<std::size_t>(tile / columns % rows)],
            xs_[static_cast<std::size_t>(tile % columns)]};
  }

  /// Transforms the patches of a block of tiles and a bundle of groups.
  void transform_patches(const Job& job, std::int64_t first, std::int64_t count, std::int64_t bundle,
                         float* out) const {
    const float* pixels[2][kMaxWinogradProducts * kFoldedSide];
    const std::int64_t channels = plan_.bundle * in_ * (folds_pixels(plan_.form) ? kFoldedSide : 1);
    const float* image = job.src + bundle * plan_.bundle * in_;
    find_patch(image, job.zeros, place(first), {}, pixels[0]);
    // In this order: a piece's last vector may end in the channels of the next one.
    for (std::int64_t i = 0; i < count * pieces(); ++i) {
      const std::int64_t next = i + 1, tile = i / pieces(), piece = i % pieces();
      const bool more = next < count * pieces();
      if (more) find_patch(image, job.zeros, place(first + next / pieces()), shift(next % pieces()), pixels[next % 2]);
      transforms_.input(pixels[i % 2], pixels[more ? next % 2 : i % 2], channels,
                        out + tile * plan_.patch_row + piece * in_, patch_step());
    }
  }

  struct Panels {
    std::int64_t begin, end;
  };
  /// Computes the outputs of a block of tiles for the channels of some panels. `before`: the first panel whose patches
  /// these are.
  void multiply(const Job& job, std::int64_t first, std::int64_t count, std::int64_t before, Panels panels,
                const float* patches, float* products) const {
    const std::int64_t columns = plan_.columns, weights = plan_.depth * columns;
    auto* pixels =
        reinterpret_cast<std::int64_t*>(products + round_up(plan_.products * product_step(), WinogradPlan::kVector));
    for (std::int64_t t = 0; t < count; ++t) find_pixels(place(first + t), pixels + t * kMaxWinogradResults);
    WinogradTile tile = job.tile;
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const std::int64_t group = panel / group_panels_;
      const float* w = job.weights + panel * plan_.products * weights;
      const float* a = patches + (group - before / group_panels_) * plan_.depth;
      tile.first = group * out_ + panel % group_panels_ * columns;
      tile.last = std::min(tile.first + columns, (group + 1) * out_);
      prefetch_results(tile, pixels, count);
      for (std::int64_t product = 0; product < plan_.products; ++product, w += weights) {
        const float* next = product + 1 < plan_.products || panel + 1 < panels.end ? w + weights : nullptr;
        simd().winograd_product(count, plan_.depth, a + product * patch_step(), plan_.patch_row, w,
                                static_cast<int>(columns), next, products + product * product_step());
      }
      for (std::int64_t t = 0; t < count; ++t) {
        tile.products = products + t * columns;
        tile.pixels = pixels + t * kMaxWinogradResults;
        transforms_.output(tile);
      }
    }
  }

  /// Prefetches outputs, and operands of the same size, to the L2 cache while the products are computed.
  void prefetch_results(const WinogradTile& tile, const std::int64_t* pixels, std::int64_t count) const {
    for (std::int64_t t = 0; t < count; ++t) {
      for (int i = 0; i < y_.results * x_.results; ++i) {
        const std::int64_t at = pixels[t * kMaxWinogradResults + i];
        if (at < 0) continue;
        for (std::int64_t c = at + tile.first; c < at + tile.last; c += WinogradPlan::kVector) {
          __builtin_prefetch(tile.out + c, 1, 2);
          for (int k = 0; k < tile.step_count; ++k)
            if (tile.steps[k].extent == EpilogueStep::Extent::kWhole)
              __builtin_prefetch(tile.steps[k].operand + c, 0, 2);
        }
      }
    }
  }

  /// The address of each pixel of a patch, for the piece of the filter that begins at `piece`; of folded pixels: of
  /// each of their two rows. `images`: the bundle's first channel of the first image.
  void find_patch(const float* images, const float* zeros, Place p, Shift piece, const float** pixels) const {
    const std::int64_t height = d_.in[0], width = d_.in[1], channels = d_.in_channels;
    const float* image = images + p.image * height * width * channels;
    const auto line_of = [&](std::int64_t y) { return y >= 0 && y < height ? image + y * width * channels : nullptr; };
    const auto pixel = [&](const float* line, std::int64_t x) {
      return line && x >= 0 && x < width ? line + x * channels : zeros;
    };
    if (folds_pixels(plan_.form)) {
      const std::int64_t top = 2 * (p.y - FoldedAxis(d_, 0).pad), left = 2 * (p.x - FoldedAxis(d_, 1).pad);
      for (std::int64_t i = 0; i < 2 * y_.products; ++i) {
        const float* line = line_of(top + i);
        for (int j = 0; j < x_.products; ++j) pixels[(i / 2 * x_.products + j) * 2 + i % 2] = pixel(line, left + 2 * j);
      }
      return;
    }
    for (int i = 0; i < y_.products; ++i) {
      const float* line = line_of(p.y * y_.stride - d_.pad_begin[0] + (piece.y + i) * d_.dilation[0]);
      for (int j = 0; j < x_.products; ++j)
        *pixels++ = pixel(line, p.x * x_.stride - d_.pad_begin[1] + (piece.x + j) * d_.dilation[1]);
    }
  }

  /// Offsets of a tile's pixels in the output; -1: outside.
  void find_pixels(Place p, std::int64_t* pixels) const {
    for (int i = 0; i < y_.results; ++i) {
      const std::int64_t y = p.y + i * d_.dilation[0];
      for (int j = 0; j < x_.results; ++j) {
        const std::int64_t x = p.x + j * d_.dilation[1];
        *pixels++ = y < d_.out[0] && x < d_.out[1] ? ((p.image * d_.out[0] + y) * d_.out[1] + x) * d_.out_channels : -1;
      }
    }
  }

  ConvDesc d_;
  WinogradPlan plan_;
  WinogradTransforms transforms_;
  WinogradAxis y_, x_;
  std::vector<std::int64_t> ys_, xs_;      ///< of each tile's first output pixel
  std::int64_t in_, out_;                  ///< channels of a group
  std::int64_t group_panels_, panels_;     ///< panels of weights: of a group, of all
  std::unique_ptr<WinogradKernel> alone_;  ///< divided for one thread: the same form and weights
};

}  // namespace

std::shared_ptr<const TileKernel> make_winograd(const ConvDesc& d) {
  if (d.spatial != 2 || d.transposed || d.layout != ImageLayout::kChannelsLast || !d.weights_constant) return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (!has_steps(d.post, image_of(d))) return nullptr;
  const std::optional<WinogradPlan> plan = plan_winograd(d);
  return plan ? std::make_shared<WinogradKernel>(d, *plan) : nullptr;
}

}  // namespace sardonyx::host
