// See depthwise_rows.h. Each pixel is loaded once for all taps of a row of the filter.
//
// Channels are computed in chunks whose pixels and weights stay in the L1 cache. That fails where pixels are a large
// power of two apart and compete for few addresses of the cache. Large filters, which read each pixel often, then copy
// the rows of the image that they need, a few channels at a time, to where these are contiguous.
#include "host/depthwise_rows.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "host/epilogue_steps.h"
#include "host/image_axes.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLeastOfThread = 1 << 15;  // multiplications
constexpr std::int64_t kChunk = 64;               // channels that are computed before the next ones
constexpr std::int64_t kPackedVectors = 4;        // of channels, whose rows are copied together
constexpr std::int64_t kLeastPackedTaps = 25;     // fewer read a pixel too rarely: 3x3 takes 1.1 to 2 times as long
constexpr double kLeastCompetition = 1.6;         // lines of a place; with 1.5 copies take 1.2 times as long (Zen 5)

constexpr int kFewPixels = 7;

std::int64_t lanes() { return vector_level() == VectorLevel::kAvx512 ? 16 : 8; }

/// Cache lines that `pixels` side by side read.
std::int64_t lines_of(const ConvDesc& d, std::int64_t pixels) {
  return d.kernel[0] * ((pixels - 1) * d.stride[1] + d.kernel[1]);
}

/// Cache lines that the same channels of pixels compete for, of an L1 cache with lines for each of 64 addresses.
std::int64_t places_of(const ConvDesc& d) {
  constexpr std::int64_t kWay = 4096, kLine = 64;
  const std::int64_t apart = std::gcd(d.out_channels * std::int64_t{sizeof(float)}, kWay);
  return l1_cache_bytes() / std::max(apart, kLine);
}

bool copies_rows(const ConvDesc& d) {
  if (d.kernel[0] * d.kernel[1] < kLeastPackedTaps || d.out_channels % (kPackedVectors * lanes()) != 0) return false;
  return static_cast<double>(lines_of(d, simd().depthwise_row_pixels)) >
         kLeastCompetition * static_cast<double>(places_of(d));
}

/// Whether this is faster than oneDNN's kernel, which reads fewer pixels at a time. Where they compete for the cache,
/// 3x3 over 512 channels takes 1.4 times as long with AVX2 (measured on Zen 3), over 1024 channels 1.6 times with
/// AVX-512 (Zen 5).
bool is_faster(const ConvDesc& d) { return copies_rows(d) || lines_of(d, kFewPixels) <= places_of(d); }

/// Pixels side by side: fewer if the results would take the places of what a small filter reads.
int pixels_of(const ConvDesc& d) {
  const int most = simd().depthwise_row_pixels;
  return d.kernel[1] == 3 && 2 * (lines_of(d, most) + most) > places_of(d) ? kFewPixels : most;
}

class DepthwiseRows : public TileKernel {
 public:
  explicit DepthwiseRows(const ConvDesc& d)
      : d_(d), axes_(axes_of(d)), taps_(axes_[1].kernel * axes_[2].kernel), copies_(copies_rows(d)) {
    const auto& [depth, height, width] = axes_;
    ring_ = (height.kernel - 1) * height.dilation + 1;
    columns_ = std::max((width.out - 1) * width.stride + width.kernel, width.pad + width.in);
    blocks_ = d.out_channels / (kPackedVectors * lanes());
  }

  std::size_t scratch_bytes() const override {
    return copies_ ? static_cast<std::size_t>(d_.threads * of_thread()) * sizeof(float) : 0;
  }
  std::string name() const override { return std::string("depthwise convolution:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    weights_by_taps(d_, *packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = weights_by_taps(d_, *args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, extents_of_results(d_));
    const Axis& width = axes_[2];
    DepthwiseRow job{.channels = d_.out_channels, .pixels = width.out, .taps = static_cast<int>(width.kernel)};
    job.stride = static_cast<int>(width.stride);
    job.most_pixels = pixels_of(d_);
    job.bias = static_cast<const float*>(args.bias);
    job.steps = steps.data();
    job.step_count = static_cast<int>(steps.size());
    job.out = static_cast<float*>(args.out);
    const auto* image = static_cast<const float*>(args.src);
    const auto* w = static_cast<const float*>(weights->data());
    if (copies_)
      run_copies(job, image, w, static_cast<float*>(args.scratch));
    else
      run_in_place(job, image, w);
  }

 private:
  /// What a row of results reads.
  struct Rows {
    std::array<const float*, kMostTaps> image, filter;

    void set(DepthwiseRow& t) const {
      t.sources = image.data();
      t.weights = filter.data();
    }
  };

  /// Computes the row `row` of all images' results. `line(at)` is the image's row `at`, `weights` the filter.
  template <typename Line>
  void compute_row(DepthwiseRow& t, Rows& rows, std::int64_t row, const Line& line, const float* weights) const {
    const Axis& height = axes_[1];
    const std::int64_t y = height.first_of(row % height.out);
    t.rows = 0;
    for (std::int64_t ky = 0; ky < height.kernel; ++ky) {
      const std::int64_t at = y + ky * height.dilation;
      if (!height.inside(at)) continue;
      const auto k = static_cast<std::size_t>(t.rows++);
      rows.image[k] = line(at);
      rows.filter[k] = weights + ky * axes_[2].kernel * t.weight_step;
    }
    t.pixel = row * t.pixels * t.channels;
    simd().depthwise_row(t);
  }

  void run_in_place(const DepthwiseRow& job, const float* image, const float* weights) const {
    const auto& [depth, height, width] = axes_;
    const std::int64_t grain = std::max<std::int64_t>(1, kLeastOfThread / (taps_ * d_.out_channels * width.out));
    // With AVX2 chunks change little: a line holds two vectors.
    const std::int64_t chunk = vector_level() == VectorLevel::kAvx512 ? kChunk : d_.out_channels;
    parallel_for(d_.batch * height.out, grain, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      Rows rows;
      DepthwiseRow t = job;
      rows.set(t);
      t.source_step = t.weight_step = d_.in_channels;
      t.inside_from = width.pad;
      t.inside_to = width.pad + width.in;
      for (t.from = 0; t.from < d_.out_channels; t.from += chunk) {
        t.to = std::min(t.from + chunk, d_.out_channels);
        for (std::int64_t row = begin; row < end; ++row) {
          const float* own = image + (row / height.out * height.in * width.in - width.pad) * d_.in_channels;
          const auto line = [&](std::int64_t at) { return own + at * width.in * d_.in_channels; };
          compute_row(t, rows, row, line, weights);
        }
      }
    });
  }

  void run_copies(const DepthwiseRow& job, const float* image, const float* weights, float* scratch) const {
    const std::int64_t units = d_.batch * blocks_;
    const auto used = static_cast<int>(std::min<std::int64_t>(d_.threads, units));
    Shares shares(units, used);
    parallel_for(used, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        float* own = scratch + thread * of_thread();
        std::fill_n(own, of_thread(), 0.f);  // columns beside the image stay 0
        for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);)
          compute_block(job, image, weights, own, unit / blocks_, unit % blocks_);
      }
    });
  }

  /// All rows of a block of channels of image `n`. Copies are [row % ring][vector][column][lane], weights
  /// [vector][tap][lane].
  void compute_block(const DepthwiseRow& job, const float* image, const float* weights, float* copies, std::int64_t n,
                     std::int64_t block) const {
    const auto& [depth, height, width] = axes_;
    const std::int64_t lanes = host::lanes(), line = columns_ * lanes, first = block * kPackedVectors * lanes;
    float* factors = copies + ring_ * kPackedVectors * line;
    for (std::int64_t v = 0; v < kPackedVectors; ++v)
      simd().pack_vectors(weights + first + v * lanes, d_.out_channels, taps_, 0, factors + v * taps_ * lanes);
    Rows rows;
    DepthwiseRow t = job;
    rows.set(t);
    t.source_step = t.weight_step = lanes;
    t.inside_to = columns_;
    std::int64_t copied = 0;
    for (std::int64_t y = 0; y < height.out; ++y) {
      const std::int64_t top = height.first_of(y);
      for (copied = std::max(copied, top); copied < std::min(height.in, top + ring_); ++copied)
        copy_row(image + (n * height.in + copied) * width.in * d_.in_channels + first,
                 copies + copied % ring_ * kPackedVectors * line);
      for (std::int64_t v = 0; v < kPackedVectors; ++v) {
        t.from = first + v * lanes;
        t.to = t.from + lanes;
        const auto source = [&](std::int64_t at) { return copies + (at % ring_ * kPackedVectors + v) * line - t.from; };
        compute_row(t, rows, n * height.out + y, source, factors + v * taps_ * lanes - t.from);
      }
    }
  }

  /// A block's channels of a row of the image.
  void copy_row(const float* from, float* to) const {
    const Axis& width = axes_[2];
    const std::int64_t lanes = host::lanes();
    for (std::int64_t v = 0; v < kPackedVectors; ++v)
      simd().pack_vectors(from + v * lanes, d_.in_channels, width.in, width.in * d_.in_channels,
                          to + (v * columns_ + width.pad) * lanes);
  }

  /// Elements of a thread's copies: whole cache lines.
  std::int64_t of_thread() const { return (ring_ * columns_ + taps_) * kPackedVectors * lanes(); }

  ConvDesc d_;
  std::array<Axis, 3> axes_;
  std::int64_t taps_;
  bool copies_;
  std::int64_t ring_;     ///< rows of the image that a row of results reads from and between
  std::int64_t columns_;  ///< of the image with its padding
  std::int64_t blocks_;   ///< of channels
};

}  // namespace

std::shared_ptr<const TileKernel> make_depthwise_rows(const ConvDesc& d) {
  const std::int64_t taps = d.kernel[1];
  if (simd().depthwise_row == nullptr || d.spatial != 2 || d.dilation[1] != 1 || d.stride[1] > 2) return nullptr;
  if (taps % 2 == 0 || taps < 3 || taps > simd().depthwise_row_taps || d.out_channels < lanes()) return nullptr;
  return is_faster(d) ? std::make_shared<DepthwiseRows>(d) : nullptr;
}

}  // namespace sardonyx::host
