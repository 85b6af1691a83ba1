// See depthwise.h. Each pixel is the sum of those taps that are inside of the image, in vectors of channels. Pixels of
// a row that have all taps along it are computed side by side. With AVX2, rows with 3, 5 or 7 taps have a kernel that
// loads each pixel once for all of them: oneDNN's takes 1.1 to 2 times as long.
#include "host/depthwise.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kMostTaps = 128;
constexpr std::int64_t kLeastOfThread = 1 << 15;  // multiplications

std::vector<std::int64_t> image_of(const ConvDesc& d) {
  if (d.spatial == 2) return {d.batch, d.out[0], d.out[1], d.out_channels};
  return {d.batch, d.out[0], d.out[1], d.out[2], d.out_channels};
}

/// One axis of the image.
struct Axis {
  std::int64_t in, out, kernel, stride, dilation, pad;

  std::int64_t first_of(std::int64_t pixel) const { return pixel * stride - pad; }
  bool inside(std::int64_t at) const { return at >= 0 && at < in; }
};

/// Depth, height and width; an image has depth 1.
std::array<Axis, 3> axes_of(const ConvDesc& d) {
  std::array<Axis, 3> axes{Axis{1, 1, 1, 1, 1, 0}};
  for (std::size_t k = 0, at = d.spatial == 2; at < 3; ++k, ++at)
    axes[at] = {d.in[k], d.out[k], d.kernel[k], d.stride[k], d.dilation[k], d.pad_begin[k]};
  return axes;
}

/// Whether the L1 cache holds what 7 pixels of a row read, of an L1 cache of 8 lines for each of 64 addresses. Pixels
/// whose distance is a multiple of a large power of two compete for few of them: 3x3 over 512 channels takes 1.4 times
/// as long as with oneDNN's kernel, which reads fewer pixels at a time.
bool fits_l1(const ConvDesc& d) {
  constexpr std::int64_t kWay = 4096, kWays = 8, kLine = 64, kPixels = 7;
  const std::int64_t apart = std::gcd(d.out_channels * std::int64_t{sizeof(float)}, kWay);
  const std::int64_t lines = d.kernel[0] * ((kPixels - 1) * d.stride[1] + d.kernel[1]);
  return lines <= kWays * kWay / std::max(apart, kLine);
}

/// Whether SimdKernels::depthwise_row can compute it, and should.
bool has_row_kernel(const ConvDesc& d) {
  if (simd().depthwise_row == nullptr || d.spatial != 2 || d.dilation[1] != 1 || d.stride[1] > 2) return false;
  if (d.kernel[1] != 3 && d.kernel[1] != 5 && d.kernel[1] != 7) return false;
  if (!fits_l1(d)) return false;
  constexpr std::int64_t kLanes = 8;
  const auto whole = [&](const PostOp& op) { return op.has_operand() && op.dims == image_of(d); };
  return d.out_channels % kLanes == 0 || (d.out_channels > kLanes && std::ranges::none_of(d.post, whole));
}

class Depthwise : public TileKernel {
 public:
  explicit Depthwise(const ConvDesc& d)
      : d_(d),
        axes_(axes_of(d)),
        taps_(axes_[0].kernel * axes_[1].kernel * axes_[2].kernel),
        by_rows_(has_row_kernel(d)) {}

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
    DepthwisePixels job{.channels = d_.out_channels, .bias = static_cast<const float*>(args.bias)};
    job.steps = steps.data();
    job.step_count = static_cast<int>(steps.size());
    job.out = static_cast<float*>(args.out);
    const auto* image = static_cast<const float*>(args.src);
    const auto* w = static_cast<const float*>(weights->data());
    if (by_rows_) return run_rows(job, image, w);
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
    job.advance = axes_[2].stride * d_.in_channels;
    const auto& [depth, height, width] = axes_;
    for (std::int64_t p = begin; p < end; p += job.pixels) {
      const std::int64_t column = p % width.out, x = width.first_of(column);
      const std::int64_t row = p / width.out, y = height.first_of(row % height.out);
      const std::int64_t slice = row / height.out, z = depth.first_of(slice % depth.out), n = slice / depth.out;
      job.taps = 0;
      for (std::int64_t kz = 0; kz < depth.kernel; ++kz) {
        const std::int64_t at_z = z + kz * depth.dilation;
        if (!depth.inside(at_z)) continue;
        for (std::int64_t ky = 0; ky < height.kernel; ++ky) {
          const std::int64_t at_y = y + ky * height.dilation;
          if (!height.inside(at_y)) continue;
          const std::int64_t line = ((n * depth.in + at_z) * height.in + at_y) * width.in;
          for (std::int64_t kx = 0; kx < width.kernel; ++kx) {
            const std::int64_t at_x = x + kx * width.dilation;
            if (!width.inside(at_x)) continue;
            const auto k = static_cast<std::size_t>(job.taps++);
            sources[k] = image + (line + at_x) * d_.in_channels;
            factors[k] = weights + ((kz * height.kernel + ky) * width.kernel + kx) * d_.in_channels;
          }
        }
      }
      job.pixel = p * d_.out_channels;
      job.pixels = std::min(end - p, with_same_taps(column));
      simd().depthwise(job);
    }
  }

  void run_rows(const DepthwisePixels& job, const float* image, const float* weights) const {
    const auto& [depth, height, width] = axes_;
    const std::int64_t grain = std::max<std::int64_t>(1, kLeastOfThread / (taps_ * d_.out_channels * width.out));
    parallel_for(d_.batch * height.out, grain, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      std::array<const float*, kMostTaps> sources, factors;
      DepthwiseRow t{.channels = job.channels, .pixels = width.out, .taps = static_cast<int>(width.kernel)};
      t.stride = static_cast<int>(width.stride);
      t.sources = sources.data();
      t.weights = factors.data();
      t.inside_from = width.pad;
      t.inside_to = width.pad + width.in;
      t.bias = job.bias;
      t.steps = job.steps;
      t.step_count = job.step_count;
      t.out = job.out;
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row / height.out, y = height.first_of(row % height.out);
        const auto line = [&](std::int64_t at) {
          return image + ((n * height.in + at) * width.in - width.pad) * d_.in_channels;
        };
        t.rows = 0;
        for (std::int64_t ky = 0; ky < height.kernel; ++ky) {
          const std::int64_t at = y + ky * height.dilation;
          if (!height.inside(at)) continue;
          const auto k = static_cast<std::size_t>(t.rows++);
          sources[k] = line(at);
          factors[k] = weights + ky * width.kernel * d_.in_channels;
        }
        t.pixel = row * width.out * d_.out_channels;
        simd().depthwise_row(t);
      }
    });
  }

  /// Pixels of a row, from `column` on, of which each has the taps of the first one, moved on.
  std::int64_t with_same_taps(std::int64_t column) const {
    const Axis& w = axes_[2];
    const std::int64_t first = w.first_of(column), last = first + (w.kernel - 1) * w.dilation;
    if (first < 0 || last >= w.in) return 1;
    return std::min(w.out - column, (w.in - 1 - last) / w.stride + 1);
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
  std::array<Axis, 3> axes_;
  std::int64_t taps_;
  bool by_rows_;
};

/// Pixels of a row that oneDNN's depthwise kernels compute at a time, and the most padding that they take.
std::int64_t tile_of_pixels() { return vector_level() == VectorLevel::kAvx512 ? 6 : 4; }

}  // namespace

std::shared_ptr<const TileKernel> make_depthwise(const ConvDesc& d) {
  if (vector_level() == VectorLevel::kBaseline || d.spatial < 2 || d.transposed || d.groups == 1 ||
      d.in_channels != d.groups || d.out_channels != d.groups || d.layout != ImageLayout::kChannelsLast ||
      !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  std::int64_t taps = 1;
  for (int k = 0; k < d.spatial; ++k) {
    if (d.kernel[k] > kMostTaps) return nullptr;
    taps *= d.kernel[k];
  }
  if (taps > kMostTaps || !has_steps(d.post, image_of(d))) return nullptr;
  if (has_row_kernel(d)) return std::make_shared<Depthwise>(d);
  const std::int64_t most = tile_of_pixels();
  if (d.spatial == 2 && d.pad_begin[1] <= most && d.pad_end[1] <= most) return nullptr;
  return std::make_shared<Depthwise>(d);
}

}  // namespace sardonyx::host
