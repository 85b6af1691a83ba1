// Convolution as an implicit GEMM with panels of 64 output channels. Rows are output pixels, whose taps are read
// directly from the image. A group of pixels whose part of the image stays in the L2 cache is multiplied with all
// panels, and the next panel is prefetched meanwhile.
#include "host/panel_conv.h"

#include <algorithm>
#include <memory>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kPanel = 64;                // columns
constexpr std::int64_t kLeastChannels = 16;        // with fewer, vectors or loops over channels are mostly empty
constexpr std::int64_t kMostDepth = 2560;          // a panel of more rows would fill the L2 cache
constexpr std::int64_t kGroupElements = 1 << 16;   // elements of the image that a group of pixels reads
constexpr std::int64_t kLeastGroup = 24;           // pixels, at least: each group reads the panel again
constexpr std::int64_t kMostGroup = 512;           // pixels, so that the table of tap addresses stays in the L1 cache
constexpr std::int64_t kMostOfGroups = 64;         // the same where each group of channels reads the table again
constexpr std::int64_t kCopiedElements = 1 << 16;  // maximum for copies of taps beside padding
constexpr std::int64_t kUnits = 8;                 // tasks per thread, at least, so that uneven ones balance

std::vector<std::int64_t> image_of(const ConvDesc& d) { return {d.batch, d.out[0], d.out[1], d.out_channels}; }
std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

class PanelConvolution : public TileKernel {
 public:
  explicit PanelConvolution(const ConvDesc& d)
      : d_(d),
        taps_(d.kernel[0] * d.kernel[1]),
        runs_(taps_),
        in_(d.in_channels / d.groups),
        out_(d.out_channels / d.groups),
        depth_(in_),
        pixels_(d.batch * d.out[0] * d.out[1]),
        panels_(d.groups > 1 ? d.groups : (out_ + kPanel - 1) / kPanel) {
    plain_ = taps_ == 1 && d.groups == 1;
    zeros_ = round_up(d.in_channels, 16);
    std::int64_t reads = d.in_channels;  // elements of the image per pixel
    for (std::size_t i = 0; i < 2; ++i) {
      plain_ = plain_ && d.stride[i] == 1 && d.pad_begin[i] == 0 && d.pad_end[i] == 0;
      reads *= std::min(d.stride[i], kMostGroup);  // bounded: strides may be any number
    }
    const std::int64_t most = plain_ ? pixels_ + kLeastGroup : d.groups > 1 ? kMostOfGroups : kMostGroup;
    const std::int64_t fits = std::clamp(kGroupElements / reads, kLeastGroup, most);
    const std::int64_t groups = (pixels_ + fits - 1) / fits;
    group_ = (pixels_ + groups - 1) / groups;
    // Threads divide groups or, if there are few, the panels of a group.
    if (groups * panels_ < kUnits * d.threads && d.threads > 1) {
      const std::int64_t wanted = (kUnits * d.threads + panels_ - 1) / panels_;
      group_ = std::max(std::min(kLeastGroup, pixels_), (pixels_ + wanted - 1) / wanted);
    }
    groups_ = (pixels_ + group_ - 1) / group_;
    chunk_ = groups_ >= kUnits * d.threads ? panels_ : 1;
    if (d.threads > 1) {
      ConvDesc alone = d;
      alone.threads = 1;
      alone_ = std::make_unique<PanelConvolution>(alone);
    }
    if (d.dilation[1] != 1 || plain_ || d.groups > 1) return;
    // The taps of a filter row are contiguous in memory, so they count as one tap. Rows that reach into the padding are
    // copied.
    std::int64_t columns = 0;
    for (std::int64_t x = 0; x < d.out[1]; ++x) columns += whole(first_column(x)) ? 0 : 1;
    const std::int64_t copied = std::min(group_, columns * (group_ / d.out[1] + 2));
    if (copied * taps_ * d.in_channels > kCopiedElements) return;
    runs_ = d.kernel[0];
    depth_ = d.kernel[1] * d.in_channels;
    copies_ = round_up(copied * runs_ * depth_, 16);
    zeros_ = round_up(depth_, 16);
  }

  std::size_t scratch_bytes() const override {
    if (plain_) return 0;
    const std::size_t own = static_cast<std::size_t>(zeros_ + d_.threads * copies_) * sizeof(float) +
                            static_cast<std::size_t>(d_.threads * runs_ * group_) * sizeof(const float*);
    return alone_ ? std::max(own, alone_->scratch_bytes()) : own;
  }
  std::string name() const override { return std::string("panel convolution:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    in_panels(*packed, weights);
    return packed;
  }

  std::int64_t prefetches() const override { return panel_prefetches(pixels_, d_.out_channels, taps_ * in_); }

  void run(const TileArgs& args) const override {
    if (alone_ && stays_in_thread()) return alone_->run(args);
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = in_panels(*args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, image_of(d_));
    PanelGemm job{.depth = depth_, .taps = runs_, .source_step = group_};
    job.a = static_cast<const float*>(args.src);
    job.a_row = d_.in_channels;
    job.c_row = d_.out_channels;
    job.b = static_cast<const float*>(weights->data());
    job.block = taps_ * in_ * simd().panel_block;
    job.bias = static_cast<const float*>(args.bias);
    job.steps = steps.data();
    job.step_count = static_cast<int>(steps.size());
    job.c = static_cast<float*>(args.out);
    auto* zeros = static_cast<float*>(args.scratch);
    if (!plain_) std::fill_n(zeros, zeros_, 0.f);
    auto* copies = plain_ ? nullptr : zeros + zeros_;
    auto* tables = plain_ ? nullptr : reinterpret_cast<const float**>(copies + d_.threads * copies_);
    const std::int64_t chunks = (panels_ + chunk_ - 1) / chunk_, units = groups_ * chunks;
    job.later_bytes = static_cast<std::int64_t>(args.later.size()) / (groups_ * panels_);
    const auto used = static_cast<int>(std::min<std::int64_t>(d_.threads, units));
    Shares shares(units, used);
    parallel_for(used, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        PanelGemm t = job;
        std::int64_t prepared = -1;
        for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);) {
          const std::int64_t group = unit / chunks, panel = unit % chunks * chunk_;
          t.first = group * group_;
          t.rows = std::min(group_, pixels_ - t.first);
          if (!plain_) {
            t.sources = tables + thread * runs_ * group_;
            if (group != prepared)
              find_sources({job.a, zeros, copies + thread * copies_}, t.first, t.rows,
                           tables + thread * runs_ * group_);
            prepared = group;
          }
          t.later = args.later.data() + (group * panels_ + panel) * job.later_bytes;
          multiply(job, t, panel, std::min(panel + chunk_, panels_));
        }
      }
    });
  }

 private:
  /// Columns of a panel: a group's, or 64. A group of few takes one block.
  std::int64_t panel_columns() const { return d_.groups > 1 ? out_ : kPanel; }
  std::int64_t panel_step() const { return taps_ * in_ * (d_.groups > 1 ? simd().panel_block : kPanel); }
  std::int64_t first_column(std::int64_t x) const { return x * d_.stride[1] - d_.pad_begin[1]; }
  bool whole(std::int64_t column) const { return column >= 0 && column + d_.kernel[1] <= d_.in[1]; }

  /// Multiplies the group's rows with panels [begin, end).
  void multiply(const PanelGemm& job, PanelGemm& t, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t p = begin; p < end; ++p) {
      t.b = job.b + p * panel_step();
      t.next = panels_ > 1 ? job.b + (p + 1) % panels_ * panel_step() : nullptr;
      t.column = p * panel_columns();
      t.columns = static_cast<int>(std::min(panel_columns(), d_.out_channels - t.column));
      if (d_.groups > 1) t.element = p * in_;
      t.bias = job.bias ? job.bias + t.column : nullptr;
      simd().panel_gemm(t);
      t.later += t.later_bytes;
    }
  }

  struct Sources {
    const float* image;
    const float* zeros;
    float* copies;
  };

  /// Finds where the runs of `count` output pixels begin: [run][pixel].
  void find_sources(Sources from, std::int64_t first, std::int64_t count, const float** table) const {
    const std::int64_t height = d_.in[0], width = d_.in[1], channels = d_.in_channels;
    std::int64_t x = first % d_.out[1], y = first / d_.out[1] % d_.out[0], n = first / (d_.out[0] * d_.out[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t left = first_column(x), top = y * d_.stride[0] - d_.pad_begin[0];
      const float** entry = table + i;
      for (std::int64_t ky = 0; ky < d_.kernel[0]; ++ky) {
        const std::int64_t row = top + ky * d_.dilation[0];
        const bool inside = row >= 0 && row < height;
        const float* line = from.image + (n * height + (inside ? row : 0)) * width * channels;
        const auto tap = [&](std::int64_t kx) {
          const std::int64_t column = left + kx * d_.dilation[1];
          return inside && column >= 0 && column < width ? line + column * channels : from.zeros;
        };
        if (runs_ == taps_) {
          for (std::int64_t kx = 0; kx < d_.kernel[1]; ++kx, entry += group_) *entry = tap(kx);
          continue;
        }
        *entry = inside ? line + left * channels : from.zeros;
        if (inside && !whole(left)) {
          *entry = from.copies;
          for (std::int64_t kx = 0; kx < d_.kernel[1]; ++kx) from.copies = std::copy_n(tap(kx), channels, from.copies);
        }
        entry += group_;
      }
      if (++x < d_.out[1]) continue;
      x = 0;
      if (++y < d_.out[0]) continue;
      y = 0;
      ++n;
    }
  }

  /// [panel][block][tap][in channel][column of the block]; columns past the last are 0.
  std::shared_ptr<const Buffer> in_panels(PackedWeights& packed, const void* original) const {
    const std::int64_t in = in_, columns = panel_columns(), block = simd().panel_block;
    const auto lay_out = [&](const void* plain, void* target) {
      const auto* w = static_cast<const float*>(plain);
      auto* panels = static_cast<float*>(target);
      parallel_for(panels_, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t panel = begin; panel < end; ++panel) {
          float* row = panels + panel * panel_step();
          const std::int64_t end = std::min((panel + 1) * columns, d_.out_channels);
          for (std::int64_t first = panel * columns; first < (panel + 1) * columns; first += block)
            for (std::int64_t tap = 0; tap < taps_; ++tap)
              for (std::int64_t c = 0; c < in; ++c, row += block)
                for (std::int64_t j = 0; j < block; ++j)
                  row[j] = first + j < end ? w[((first + j) * in + c) * taps_ + tap] : 0;
        }
      });
      flush_subnormals(panels, panels_ * panel_step());
    };
    return packed.form("panels of a convolution", static_cast<std::size_t>(panels_ * panel_step()) * sizeof(float),
                       original, static_cast<std::size_t>(in * d_.out_channels * taps_) * sizeof(float), lay_out);
  }

  ConvDesc d_;
  std::int64_t taps_;
  std::int64_t runs_;             ///< taps, or filter rows
  std::int64_t in_, out_;         ///< channels of a group
  std::int64_t depth_;            ///< contiguous elements of a run
  std::int64_t pixels_, panels_;  ///< groups have a panel each
  bool plain_;                    ///< every pixel has one tap, at a constant stride
  std::int64_t zeros_;            ///< elements of a run of padding
  std::int64_t copies_ = 0;       ///< elements of runs that are copied per group
  std::int64_t group_, groups_, chunk_;
  std::unique_ptr<PanelConvolution> alone_;  ///< divided for one thread: the same sums of the same weights
};

/// Groups whose results fill one vector of AVX2. oneDNN reaches a third of the core's peak with them (measured on a
/// Xeon).
bool is_vector_groups(const ConvDesc& d) {
  constexpr std::int64_t kLanes = 8, kMostChannels = 32;
  const std::int64_t in = d.in_channels / d.groups;
  return d.groups > 1 && vector_level() == VectorLevel::kAvx2 && d.out_channels / d.groups == kLanes &&
         in % kLanes == 0 && in <= kMostChannels && d.kernel[0] * d.kernel[1] > 1;
}

/// Whether this is faster than oneDNN's kernels (measured with AVX-512 on EPYC 9004), which have less overhead per sum
/// if sums are short.
bool worth_it(const ConvDesc& d) {
  constexpr std::int64_t kLeastDepth = 48, kLeastDepthWithOperand = 192;  // input channels
  if (has_exponential(d.post)) return true;
  bool operand = false;
  for (const PostOp& op : d.post) operand |= op.has_operand() && op.dims == image_of(d);
  return d.kernel[0] == 1 && d.kernel[1] == 1 && d.in_channels >= (operand ? kLeastDepthWithOperand : kLeastDepth);
}

}  // namespace

std::shared_ptr<const TileKernel> make_panel_convolution(const ConvDesc& d) {
  if (simd().panel_gemm == nullptr || d.spatial != 2 || d.transposed || (d.groups != 1 && !is_vector_groups(d)) ||
      d.layout != ImageLayout::kChannelsLast || !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (d.in_channels < kLeastChannels || d.out_channels < kLeastChannels) return nullptr;
  if (d.kernel[0] > kMostDepth || d.kernel[1] > kMostDepth || d.kernel[0] * d.kernel[1] * d.in_channels > kMostDepth)
    return nullptr;
  if (!has_steps(d.post, image_of(d)) || (d.groups == 1 && !worth_it(d))) return nullptr;
  return std::make_shared<PanelConvolution>(d);
}

}  // namespace sardonyx::host
