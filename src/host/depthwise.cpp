// See depthwise.h. Each pixel is the sum of those taps that are inside of the image, in vectors of channels.
#include "host/depthwise.h"

#include <algorithm>
#include <array>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kMostTaps = 128;
constexpr std::int64_t kLeastOfThread = 1 << 15;  // multiplications

std::vector<std::int64_t> image_of(const ConvDesc& d) { return {d.batch, d.out[0], d.out[1], d.out_channels}; }

class Depthwise : public TileKernel {
 public:
  explicit Depthwise(const ConvDesc& d) : d_(d), taps_(d.kernel[0] * d.kernel[1]) {}

  std::size_t scratch_bytes() const override { return 0; }
  std::string name() const override { return std::string("depthwise convolution:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    by_taps(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = by_taps(*args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, image_of(d_));
    DepthwisePixel job{.channels = d_.out_channels, .bias = static_cast<const float*>(args.bias)};
    job.steps = steps.data();
    job.step_count = static_cast<int>(steps.size());
    job.out = static_cast<float*>(args.out);
    const auto* image = static_cast<const float*>(args.src);
    const auto* w = static_cast<const float*>(weights->data());
    const std::int64_t grain = std::max<std::int64_t>(1, kLeastOfThread / (taps_ * d_.out_channels));
    parallel_for(d_.batch * d_.out[0] * d_.out[1], grain, d_.threads,
                 [&](std::int64_t begin, std::int64_t end) { compute(job, image, w, begin, end); });
  }

 private:
  void compute(DepthwisePixel job, const float* image, const float* weights, std::int64_t begin,
               std::int64_t end) const {
    std::array<const float*, kMostTaps> sources, factors;
    job.sources = sources.data();
    job.weights = factors.data();
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t x = p % d_.out[1] * d_.stride[1] - d_.pad_begin[1];
      const std::int64_t y = p / d_.out[1] % d_.out[0] * d_.stride[0] - d_.pad_begin[0],
                         n = p / (d_.out[0] * d_.out[1]);
      job.taps = 0;
      for (std::int64_t ky = 0; ky < d_.kernel[0]; ++ky) {
        const std::int64_t row = y + ky * d_.dilation[0];
        if (row < 0 || row >= d_.in[0]) continue;
        for (std::int64_t kx = 0; kx < d_.kernel[1]; ++kx) {
          const std::int64_t column = x + kx * d_.dilation[1];
          if (column < 0 || column >= d_.in[1]) continue;
          const auto k = static_cast<std::size_t>(job.taps++);
          sources[k] = image + ((n * d_.in[0] + row) * d_.in[1] + column) * d_.in_channels;
          factors[k] = weights + (ky * d_.kernel[1] + kx) * d_.in_channels;
        }
      }
      job.pixel = p * d_.out_channels;
      simd().depthwise(job);
    }
  }

  /// [tap][channel].
  std::shared_ptr<const Buffer> by_taps(PackedWeights& packed, const void* original) const {
    const std::int64_t count = taps_ * d_.out_channels;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    return packed.form("taps of channels", bytes, original, bytes, [&](const void* plain, void* target) {
      const auto* from = static_cast<const float*>(plain);
      auto* to = static_cast<float*>(target);
      for (std::int64_t c = 0; c < d_.out_channels; ++c)
        for (std::int64_t k = 0; k < taps_; ++k) to[k * d_.out_channels + c] = from[c * taps_ + k];
      flush_subnormals(to, count);
    });
  }

  ConvDesc d_;
  std::int64_t taps_;
};

/// Pixels of a row that oneDNN's depthwise kernels compute at a time, and the most padding that they take.
std::int64_t tile_of_pixels() { return vector_level() == VectorLevel::kAvx512 ? 6 : 4; }

}  // namespace

std::shared_ptr<const TileKernel> make_depthwise(const ConvDesc& d) {
  if (vector_level() == VectorLevel::kBaseline || d.spatial != 2 || d.transposed || d.groups == 1 ||
      d.in_channels != d.groups || d.out_channels != d.groups || d.layout != ImageLayout::kChannelsLast ||
      !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (d.kernel[0] > kMostTaps || d.kernel[1] > kMostTaps || d.kernel[0] * d.kernel[1] > kMostTaps) return nullptr;
  const std::int64_t most = tile_of_pixels();
  if ((d.pad_begin[1] <= most && d.pad_end[1] <= most) || !has_steps(d.post, image_of(d))) return nullptr;
  return std::make_shared<Depthwise>(d);
}

}  // namespace sardonyx::host
