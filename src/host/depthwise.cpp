// See depthwise.h. Each pixel is the sum of those taps that are inside of the image, in vectors of channels. Pixels of
// a row that have all taps along it are computed side by side; of a transposed convolution those of one phase, whose
// columns are equal modulo the stride.
#include "host/depthwise.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "host/depthwise_rows.h"
#include "host/epilogue_steps.h"
#include "host/image_axes.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLeastOfThread = 1 << 15;  // multiplications

class Depthwise : public TileKernel {
 public:
  explicit Depthwise(const ConvDesc& d)
      : d_(d), axes_(axes_of(d)), taps_(axes_[0].kernel * axes_[1].kernel * axes_[2].kernel) {}

  std::size_t scratch_bytes() const override { return 0; }
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
    DepthwisePixels job{.channels = d_.out_channels, .bias = static_cast<const float*>(args.bias)};
    job.steps = steps.data();
    job.step_count = static_cast<int>(steps.size());
    job.out = static_cast<float*>(args.out);
    const auto* image = static_cast<const float*>(args.src);
    const auto* w = static_cast<const float*>(weights->data());
    const std::int64_t grain = std::max<std::int64_t>(1, kLeastOfThread / (taps_ * d_.out_channels));
    parallel_for(d_.batch * axes_[0].out * axes_[1].out * axes_[2].out, grain, d_.threads,
                 [&](std::int64_t begin, std::int64_t end) { compute(job, image, w, begin, end); });
  }

 private:
  void compute(DepthwisePixels job, const float* image, const float* weights, std::int64_t begin,
               std::int64_t end) const {
    std::array<const float*, kMostTaps> sources, factors;
    job.sources = sources.data();
    job.weights = factors.data();
    job.advance = source_step() * d_.in_channels;
    job.step = result_step() * d_.out_channels;
    const auto& [depth, height, width] = axes_;
    for (std::int64_t p = begin; p < end; p += job.pixels) {
      const std::int64_t row = p / width.out, slice = row / height.out, n = slice / depth.out;
      const std::int64_t z = slice % depth.out, y = row % height.out, x = column_of(p % width.out);
      job.taps = 0;
      for (std::int64_t kz = 0; kz < depth.kernel; ++kz) {
        const std::int64_t at_z = source_of(depth, z, kz);
        if (!depth.inside(at_z)) continue;
        for (std::int64_t ky = 0; ky < height.kernel; ++ky) {
          const std::int64_t at_y = source_of(height, y, ky);
          if (!height.inside(at_y)) continue;
          const std::int64_t line = ((n * depth.in + at_z) * height.in + at_y) * width.in;
          for (std::int64_t kx = 0; kx < width.kernel; ++kx) {
            const std::int64_t at_x = source_of(width, x, kx);
            if (!width.inside(at_x)) continue;
            const auto k = static_cast<std::size_t>(job.taps++);
            sources[k] = image + (line + at_x) * d_.in_channels;
            factors[k] = weights + ((kz * height.kernel + ky) * width.kernel + kx) * d_.in_channels;
          }
        }
      }
      job.pixel = (row * width.out + x) * d_.out_channels;
      job.pixels = std::min(end - p, with_same_taps(x));
      simd().depthwise(job);
    }
  }

  /// Results that have the same taps, from pixel to pixel: a transposed convolution's phase. Along a row.
  std::int64_t result_step() const { return d_.transposed ? axes_[2].stride : 1; }
  std::int64_t source_step() const { return d_.transposed ? 1 : axes_[2].stride; }

  /// Where tap k of a result reads along an axis; outside of the image where it reads nothing.
  std::int64_t source_of(const Axis& a, std::int64_t result, std::int64_t k) const {
    if (!d_.transposed) return a.first_of(result) + k * a.dilation;
    const std::int64_t from = result + a.pad - k * a.dilation;
    return from % a.stride == 0 ? from / a.stride : -1;
  }

  /// The column of result `at` of a row, whose phases follow one another.
  std::int64_t column_of(std::int64_t at) const {
    const std::int64_t step = result_step();
    for (std::int64_t phase = 0;; ++phase) {
      const std::int64_t count = (axes_[2].out - phase + step - 1) / step;
      if (at < count) return phase + at * step;
      at -= count;
    }
  }

  /// Pixels of a phase of a row, from `column` on, of which each has the taps of the first one, moved on.
  std::int64_t with_same_taps(std::int64_t column) const {
    const Axis& w = axes_[2];
    const std::int64_t left = (w.out - column - 1) / result_step() + 1;
    std::int64_t last = 0;
    for (std::int64_t k = 0; k < w.kernel; ++k) {
      if (d_.transposed && (column + w.pad - k * w.dilation) % w.stride != 0) continue;  // of other phases
      const std::int64_t at = source_of(w, column, k);
      if (!w.inside(at)) return 1;
      last = std::max(last, at);
    }
    return std::min(left, (w.in - 1 - last) / source_step() + 1);
  }

  ConvDesc d_;
  std::array<Axis, 3> axes_;
  std::int64_t taps_;
};

/// Taps of a result along an axis, at most: of a transposed convolution those of a phase.
std::int64_t taps_of_result(const ConvDesc& d, int axis) {
  const std::int64_t kernel = d.kernel[axis], stride = d.stride[axis];
  if (!d.transposed) return kernel;
  const std::int64_t apart = stride / std::gcd(stride, d.dilation[axis]);
  return (kernel - 1) / apart + 1;
}

/// Pixels of a row that oneDNN's depthwise kernels compute at a time, and the most padding that they take.
std::int64_t tile_of_pixels() { return vector_level() == VectorLevel::kAvx512 ? 6 : 4; }

}  // namespace

std::vector<std::int64_t> extents_of_results(const ConvDesc& d) {
  if (d.spatial == 2) return {d.batch, d.out[0], d.out[1], d.out_channels};
  return {d.batch, d.out[0], d.out[1], d.out[2], d.out_channels};
}

std::array<Axis, 3> axes_of(const ConvDesc& d) {
  std::array<Axis, 3> axes{Axis{1, 1, 1, 1, 1, 0}};
  for (std::size_t k = 0, at = d.spatial == 2; at < 3; ++k, ++at)
    axes[at] = {d.in[k], d.out[k], d.kernel[k], d.stride[k], d.dilation[k], d.pad_begin[k]};
  return axes;
}

std::shared_ptr<const Buffer> weights_by_taps(const ConvDesc& d, PackedWeights& packed, const void* original) {
  const auto [depth, height, width] = axes_of(d);
  const std::int64_t taps = depth.kernel * height.kernel * width.kernel, count = taps * d.out_channels;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  return packed.form("taps of channels", bytes, original, bytes, [&](const void* plain, void* target) {
    const auto* from = static_cast<const float*>(plain);
    auto* to = static_cast<float*>(target);
    for (std::int64_t c = 0; c < d.out_channels; ++c)
      for (std::int64_t k = 0; k < taps; ++k) to[k * d.out_channels + c] = from[c * taps + k];
    flush_subnormals(to, count);
  });
}

std::shared_ptr<const TileKernel> make_depthwise(const ConvDesc& d) {
  if (vector_level() == VectorLevel::kBaseline || d.spatial < 2 || d.groups == 1 || d.in_channels != d.groups ||
      d.out_channels != d.groups || d.layout != ImageLayout::kChannelsLast || !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  std::int64_t taps = 1;
  for (int k = 0; k < d.spatial; ++k) {
    if (taps_of_result(d, k) > kMostTaps) return nullptr;
    taps *= taps_of_result(d, k);
  }
  if (taps > kMostTaps || !has_steps(d.post, extents_of_results(d))) return nullptr;
  if (d.transposed) return std::make_shared<Depthwise>(d);
  if (auto rows = make_depthwise_rows(d)) return rows;
  const std::int64_t most = tile_of_pixels();
  if (d.spatial == 2 && d.pad_begin[1] <= most && d.pad_end[1] <= most) return nullptr;
  return std::make_shared<Depthwise>(d);
}

}  // namespace sardonyx::host
