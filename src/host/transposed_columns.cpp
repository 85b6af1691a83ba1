// See transposed_columns.h. Results of a row that a pixel's first tap reaches are a segment: as many pixels as the
// stride, each with its channels. A segment is the sum of what the taps of some neighbouring pixels and rows give,
// which lies side by side, because channels are last. Products of the rows of the image that a row of results needs are
// a ring in scratch memory, with products of 0 for the pixels beside the image.
#include "host/transposed_columns.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "host/epilogue_steps.h"
#include "host/image_axes.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kPanel = 64;         // columns
constexpr std::int64_t kMostChannels = 16;  // of the results
constexpr std::int64_t kMostDepth = 2560;   // rows of a panel: more would fill the L2 cache
constexpr std::int64_t kMostColumns = 1024;
constexpr std::int64_t kTasks = 4;       // per thread, so that uneven ones balance
constexpr std::int64_t kLeastRows = 16;  // of results of a task: the rows of the image before them are multiplied again
constexpr std::int64_t kSlack = SegmentSums::kSlack;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

class TransposedColumns : public TileKernel {
 public:
  explicit TransposedColumns(const ConvDesc& d)
      : d_(d),
        height_(axes_of(d)[1]),
        width_(axes_of(d)[2]),
        segment_(width_.stride * d.out_channels),
        columns_(height_.kernel * width_.kernel * d.out_channels),
        panels_((columns_ + kPanel - 1) / kPanel),
        reach_((width_.kernel - 1) / width_.stride + 1),
        ring_((height_.kernel - 1) * height_.dilation / height_.stride + 1) {
    products_ = round_up((width_.in + 2 * (reach_ - 1)) * columns_ + kSlack, 16);
    beyond_ = std::max<std::int64_t>(0, (width_.pad + width_.out) * d.out_channels - segments() * segment_);
    line_ = round_up(segments() * segment_ + beyond_ + kSlack, 16);
    start_ = round_up(segment_ + kSlack, 16);
    const std::int64_t tasks = d.threads == 1 ? 1 : (kTasks * d.threads + d.batch - 1) / d.batch;
    rows_ = std::max((height_.out + tasks - 1) / tasks, std::min(height_.out, kLeastRows));
    tasks_ = (height_.out + rows_ - 1) / rows_;
    flat_ = std::all_of(d.post.begin(), d.post.end(), [&](const PostOp& op) {
      return !op.has_operand() || op.dims.back() == 1 || op.dims == extents_of_results(d);
    });
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(start_ + d_.threads * of_thread()) * sizeof(float);
  }
  std::string name() const override { return std::string("columns of a transposed convolution:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    in_panels(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = in_panels(*args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, extents_of_results(d_));
    auto* start = static_cast<float*>(args.scratch);
    for (std::int64_t i = 0; i < start_; ++i)
      start[i] = args.bias ? static_cast<const float*>(args.bias)[i % d_.out_channels] : 0;
    FinishedPixels results{.pixels = width_.out, .channels = d_.out_channels};
    if (flat_) results.channels *= std::exchange(results.pixels, 1);
    results.steps = steps.data();
    results.step_count = static_cast<int>(steps.size());
    results.out = static_cast<float*>(args.out);
    const std::int64_t units = d_.batch * tasks_;
    const auto used = static_cast<int>(std::min<std::int64_t>(d_.threads, units));
    Shares shares(units, used);
    parallel_for(used, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        Task t{results, static_cast<const float*>(args.src), static_cast<const float*>(weights->data()), start};
        t.products = start + start_ + thread * of_thread();
        std::fill_n(t.products, of_thread(), 0.f);  // also those of pixels beside the image
        for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);) {
          t.image = unit / tasks_;
          t.first = unit % tasks_ * rows_;
          t.end = std::min(t.first + rows_, height_.out);
          compute(t);
        }
      }
    });
  }

 private:
  /// Rows [first, end) of the results of an image.
  struct Task {
    FinishedPixels results;
    const float *src, *weights, *start;
    float* products = nullptr;  ///< the ring, and behind it a row of sums
    std::int64_t image = 0, first = 0, end = 0;
  };

  std::int64_t of_thread() const { return ring_ * products_ + line_; }
  /// Segments of a row, also those that are cut off.
  std::int64_t segments() const { return width_.in + reach_ - 1; }
  /// Products of the first pixel of a row of the image.
  float* products_of(const Task& t, std::int64_t row) const {
    return t.products + row % ring_ * products_ + (reach_ - 1) * columns_;
  }

  void compute(const Task& t) const {
    const std::int64_t before = t.first + height_.pad - (height_.kernel - 1) * height_.dilation;
    std::int64_t next = before <= 0 ? 0 : (before + height_.stride - 1) / height_.stride;  // row that is not multiplied
    std::vector<const float*> sources(static_cast<std::size_t>(ring_ * reach_));
    SegmentSums sums{.count = segments(), .length = segment_, .step = columns_, .start = t.start};
    sums.sources = sources.data();
    sums.cut_length = (width_.kernel - (reach_ - 1) * width_.stride) * d_.out_channels;
    sums.out = t.products + ring_ * products_;
    for (std::int64_t y = t.first; y < t.end; ++y) {
      for (; next < height_.in && next * height_.stride <= y + height_.pad; ++next) multiply(t, next);
      sums.source_count = sums.cut = 0;
      for (std::int64_t tap = 0; tap < reach_; ++tap)
        for (std::int64_t ky = 0; ky < height_.kernel; ++ky) {
          const std::int64_t from = y + height_.pad - ky * height_.dilation, row = from / height_.stride;
          if (from % height_.stride != 0 || !height_.inside(row) || from < 0) continue;
          sources[static_cast<std::size_t>(sums.source_count++)] =
              products_of(t, row) + ky * width_.kernel * d_.out_channels + tap * segment_ - tap * columns_;
          if (tap + 1 == reach_ && sums.cut_length < segment_) ++sums.cut;
        }
      simd().sum_segments(sums);
      std::copy_n(t.start, beyond_, sums.out + segments() * segment_);
      FinishedPixels f = t.results;
      f.sums = sums.out + width_.pad * d_.out_channels;
      f.pixel = (t.image * height_.out + y) * width_.out * d_.out_channels;
      simd().finish_pixels(f);
    }
  }

  /// The products of a row of the image: [pixel][tap row][tap][channel].
  void multiply(const Task& t, std::int64_t row) const {
    PanelGemm g{.rows = width_.in, .depth = d_.in_channels};
    g.a = t.src + (t.image * height_.in + row) * width_.in * d_.in_channels;
    g.a_row = d_.in_channels;
    g.c_row = columns_;
    g.block = d_.in_channels * simd().panel_block;
    g.c = products_of(t, row);
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      g.column = panel * kPanel;
      g.columns = static_cast<int>(std::min(kPanel, columns_ - g.column));
      g.b = t.weights + panel * d_.in_channels * kPanel;
      simd().panel_gemm(g);
    }
  }

  /// [panel][block][in channel][column of the block]; columns past the last are 0.
  std::shared_ptr<const Buffer> in_panels(PackedWeights& packed, const void* original) const {
    const std::int64_t in = d_.in_channels, out = d_.out_channels, taps = height_.kernel * width_.kernel;
    const std::int64_t block = simd().panel_block, count = panels_ * kPanel * in;
    const auto lay_out = [&](const void* plain, void* target) {
      const auto* w = static_cast<const float*>(plain);
      auto* to = static_cast<float*>(target);
      for (std::int64_t first = 0; first < panels_ * kPanel; first += block)
        for (std::int64_t c = 0; c < in; ++c, to += block)
          for (std::int64_t j = 0; j < block; ++j) {
            const std::int64_t tap = (first + j) / out, channel = (first + j) % out;
            to[j] = tap < taps ? w[(c * out + channel) * taps + tap] : 0;
          }
      flush_subnormals(static_cast<float*>(target), count);
    };
    return packed.form("panels of taps", static_cast<std::size_t>(count) * sizeof(float), original,
                       static_cast<std::size_t>(in * out * taps) * sizeof(float), lay_out);
  }

  ConvDesc d_;
  Axis height_, width_;
  std::int64_t segment_;                  ///< elements
  std::int64_t columns_, panels_;         ///< of products of a pixel
  std::int64_t reach_;                    ///< segments that a pixel reaches
  std::int64_t ring_;                     ///< rows of the image that a row of results needs
  std::int64_t products_, line_, start_;  ///< elements of a row of products, of results, and of what these begin with
  std::int64_t beyond_;  ///< elements of a row of results that no pixel reaches (output_padding), less than a segment
  std::int64_t rows_, tasks_;
  bool flat_;  ///< the epilogue treats all channels alike
};

}  // namespace

std::shared_ptr<const TileKernel> make_transposed_columns(const ConvDesc& d) {
  if (simd().panel_gemm == nullptr || !d.transposed || d.groups != 1 || d.spatial != 2 ||
      d.layout != ImageLayout::kChannelsLast || !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (d.out_channels > kMostChannels || d.in_channels > kMostDepth || d.dilation[1] != 1) return nullptr;
  if (d.kernel[0] * d.kernel[1] * d.out_channels > kMostColumns) return nullptr;
  return has_steps(d.post, extents_of_results(d)) ? std::make_shared<TransposedColumns>(d) : nullptr;
}

}  // namespace sardonyx::host
