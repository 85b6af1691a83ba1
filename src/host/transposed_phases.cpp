// See transposed_phases.h. Results whose coordinates are equal modulo the strides are a phase: a convolution without
// strides, with those taps that meet the image there. Each is an implicit GEMM in panels of 64 output channels, whose
// rows are pixels of the phase. A group of rows is computed in scratch memory, and then put between the other phases'
// pixels.
#include "host/transposed_phases.h"

#include <algorithm>
#include <memory>

#include "host/epilogue_steps.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kPanel = 64;          // columns
constexpr std::int64_t kLeastChannels = 16;  // with fewer, vectors or loops over channels are mostly empty
constexpr std::int64_t kMostDepth =
    2560;  // rows of a panel that are multiplied at a time: more would fill the L2 cache
constexpr std::int64_t kGroupElements = 1 << 16;            // elements of the image that a group of pixels reads
constexpr std::int64_t kLeastGroup = 24, kMostGroup = 512;  // pixels
constexpr std::int64_t kUnits = 8;                          // tasks per thread, at least, so that uneven ones balance

std::vector<std::int64_t> image_of(const ConvDesc& d) { return {d.batch, d.out[0], d.out[1], d.out_channels}; }
std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// A tap of a phase: its place in the filter (-1: a weight of 0), and which pixel of the image it meets, from the
/// phase's pixel on.
struct Tap {
  std::int64_t place, down, right;
};

struct Phase {
  std::int64_t top, left;      ///< its first result
  std::int64_t rows, columns;  ///< of its results
  std::vector<Tap> taps;
  std::int64_t groups = 0, weights = 0;  ///< of pixels; where its panels begin
  std::int64_t pixels(std::int64_t batch) const { return batch * rows * columns; }
};

std::vector<Phase> phases_of(const ConvDesc& d) {
  std::vector<Phase> phases;
  const auto meets = [&](std::size_t axis, std::int64_t phase, std::int64_t tap, std::int64_t& at) {
    const std::int64_t from = phase + d.pad_begin[axis] - tap * d.dilation[axis];
    at = from / d.stride[axis];
    return from % d.stride[axis] == 0;
  };
  for (std::int64_t y = 0; y < std::min(d.stride[0], d.out[0]); ++y)
    for (std::int64_t x = 0; x < std::min(d.stride[1], d.out[1]); ++x) {
      Phase p{y, x, (d.out[0] - y - 1) / d.stride[0] + 1, (d.out[1] - x - 1) / d.stride[1] + 1, {}};
      for (std::int64_t ky = 0; ky < d.kernel[0]; ++ky)
        for (std::int64_t kx = 0; kx < d.kernel[1]; ++kx) {
          Tap tap{ky * d.kernel[1] + kx, 0, 0};
          if (meets(0, y, ky, tap.down) && meets(1, x, kx, tap.right)) p.taps.push_back(tap);
        }
      if (p.taps.empty()) p.taps.push_back({-1, -d.out[0], 0});  // only the bias: a weight of 0 outside of the image
      phases.push_back(std::move(p));
    }
  return phases;
}

class TransposedPhases : public TileKernel {
 public:
  explicit TransposedPhases(const ConvDesc& d)
      : d_(d), phases_(phases_of(d)), panels_((d.out_channels + kPanel - 1) / kPanel) {
    std::int64_t most = 1, pixels = 0;
    for (Phase& p : phases_) {
      p.weights = weights_;
      weights_ += panels_ * panel_step(p);
      most = std::max(most, static_cast<std::int64_t>(p.taps.size()));
      pixels += p.pixels(d.batch);
    }
    group_ = std::clamp(kGroupElements / d.in_channels, kLeastGroup, kMostGroup);
    const std::int64_t wanted = (kUnits * d.threads + panels_ - 1) / panels_;
    if (d.threads > 1) group_ = std::min(group_, std::max(kLeastGroup, (pixels + wanted - 1) / wanted));
    for (Phase& p : phases_) units_ += (p.groups = (p.pixels(d.batch) + group_ - 1) / group_);
    units_ *= panels_;
    for (const PostOp& op : d.post) whole_ += op.has_operand() && op.dims == image_of(d) ? 1 : 0;
    zeros_ = round_up(d.in_channels, 16);
    table_ = round_up(most * group_, 8);
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(zeros_) * sizeof(float) + static_cast<std::size_t>(d_.threads) * of_thread();
  }
  std::string name() const override { return std::string("phases of a transposed convolution:") + simd().name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    in_panels(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    check(args.packed != nullptr, "constant weights must come packed");
    const auto weights = in_panels(*args.packed, args.weights);
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, image_of(d_));
    auto* zeros = static_cast<float*>(args.scratch);
    std::fill_n(zeros, zeros_, 0.f);
    const auto used = static_cast<int>(std::min<std::int64_t>(d_.threads, units_));
    Shares shares(units_, used);
    parallel_for(used, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        char* own = reinterpret_cast<char*>(zeros + zeros_) + static_cast<std::size_t>(thread) * of_thread();
        Scratch s{reinterpret_cast<const float**>(own), {}, zeros};
        s.results = reinterpret_cast<float*>(s.table + table_);
        for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);)
          compute(args, static_cast<const float*>(weights->data()), steps, unit, s);
      }
    });
  }

 private:
  /// A thread's memory: where taps read, results of a group and panel, behind them operands of the same form.
  struct Scratch {
    const float** table;
    float* results;
    const float* zeros;
    std::int64_t prepared = -1;  ///< the group whose table it is
  };

  std::int64_t panel_step(const Phase& p) const {
    return static_cast<std::int64_t>(p.taps.size()) * d_.in_channels * kPanel;
  }
  std::size_t of_thread() const {
    return static_cast<std::size_t>(table_) * sizeof(const float*) +
           static_cast<std::size_t>((1 + whole_) * group_ * kPanel) * sizeof(float);
  }

  /// The unit is a panel of a group of a phase; all panels of a group follow one another.
  void compute(const TileArgs& args, const float* weights, std::vector<EpilogueStep> steps, std::int64_t unit,
               Scratch& s) const {
    const std::int64_t number = unit / panels_, panel = unit % panels_;
    std::int64_t group = number;
    const Phase* p = phases_.data();
    for (; group >= p->groups; ++p) group -= p->groups;
    const std::int64_t first = group * group_, count = std::min(group_, p->pixels(d_.batch) - first);
    if (s.prepared != number) find_sources(*p, static_cast<const float*>(args.src), first, count, s);
    s.prepared = number;
    PanelGemm t{.rows = count, .depth = d_.in_channels};
    t.source_step = group_;
    t.c_row = kPanel;
    t.column = panel * kPanel;
    t.columns = static_cast<int>(std::min(kPanel, d_.out_channels - t.column));
    t.b = weights + p->weights + panel * panel_step(*p);
    t.block = static_cast<std::int64_t>(p->taps.size()) * d_.in_channels * simd().panel_block;
    t.bias = args.bias ? static_cast<const float*>(args.bias) + t.column : nullptr;
    t.c = s.results - t.column;
    float* copy = s.results;
    for (EpilogueStep& step : steps) {
      if (step.extent != EpilogueStep::Extent::kWhole) continue;
      copy += group_ * kPanel;
      each_pixel(*p, first, count, [&](std::int64_t i, std::int64_t at) {
        std::copy_n(step.operand + at + t.column, t.columns, copy + i * kPanel);
      });
      step.operand = copy - t.column;
    }
    t.steps = steps.data();
    multiply(t, static_cast<int>(steps.size()), panel + 1 < panels_ ? t.b + panel_step(*p) : nullptr,
             static_cast<std::int64_t>(p->taps.size()), s);
    auto* out = static_cast<float*>(args.out) + t.column;
    each_pixel(*p, first, count,
               [&](std::int64_t i, std::int64_t at) { std::copy_n(s.results + i * kPanel, t.columns, out + at); });
  }

  /// Multiplies as many taps at a time as the L2 cache holds of a panel.
  void multiply(PanelGemm t, int steps, const float* next, std::int64_t taps, const Scratch& s) const {
    const std::int64_t most = std::max<std::int64_t>(1, kMostDepth / d_.in_channels);
    for (std::int64_t tap = 0; tap < taps; tap += most) {
      const bool last = tap + most >= taps;
      t.taps = std::min(most, taps - tap);
      t.sources = s.table + tap * group_;
      t.step_count = last ? steps : 0;
      t.next = last ? next : nullptr;
      t.accumulate = tap > 0;
      simd().panel_gemm(t);
      t.b += t.taps * d_.in_channels * simd().panel_block;
    }
  }

  /// Where the taps of `count` pixels of a phase read: [tap][pixel].
  void find_sources(const Phase& p, const float* image, std::int64_t first, std::int64_t count,
                    const Scratch& s) const {
    for (std::size_t k = 0; k < p.taps.size(); ++k) {
      const Tap& tap = p.taps[k];
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t pixel = first + i, y = pixel / p.columns % p.rows + tap.down,
                           x = pixel % p.columns + tap.right;
        const std::int64_t n = pixel / (p.columns * p.rows);
        const bool inside = y >= 0 && y < d_.in[0] && x >= 0 && x < d_.in[1];
        s.table[static_cast<std::int64_t>(k) * group_ + i] =
            inside ? image + ((n * d_.in[0] + y) * d_.in[1] + x) * d_.in_channels : s.zeros;
      }
    }
  }

  /// Calls `visit` with each pixel's number in the group and its place in the results.
  template <typename Visit>
  void each_pixel(const Phase& p, std::int64_t first, std::int64_t count, const Visit& visit) const {
    std::int64_t x = first % p.columns, y = first / p.columns % p.rows, n = first / (p.columns * p.rows);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = n * d_.out[0] + y * d_.stride[0] + p.top;
      visit(i, (row * d_.out[1] + x * d_.stride[1] + p.left) * d_.out_channels);
      if (++x < p.columns) continue;
      x = 0;
      if (++y < p.rows) continue;
      y = 0;
      ++n;
    }
  }

  /// [phase][panel][block][tap][in channel][column of the block]; columns past the last are 0.
  std::shared_ptr<const Buffer> in_panels(PackedWeights& packed, const void* original) const {
    const auto lay_out = [&](const void* plain, void* target) {
      const auto* w = static_cast<const float*>(plain);
      for (const Phase& p : phases_)
        parallel_for(panels_, 1, d_.threads, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t panel = begin; panel < end; ++panel)
            lay_out_panel(p, panel, w, static_cast<float*>(target) + p.weights + panel * panel_step(p));
        });
      flush_subnormals(static_cast<float*>(target), weights_);
    };
    const std::int64_t count = d_.in_channels * d_.out_channels * d_.kernel[0] * d_.kernel[1];
    return packed.form("panels of phases", static_cast<std::size_t>(weights_) * sizeof(float), original,
                       static_cast<std::size_t>(count) * sizeof(float), lay_out);
  }

  void lay_out_panel(const Phase& p, std::int64_t panel, const float* weights, float* to) const {
    const std::int64_t block = simd().panel_block, out = d_.out_channels, taps = d_.kernel[0] * d_.kernel[1];
    for (std::int64_t first = panel * kPanel; first < (panel + 1) * kPanel; first += block)
      for (const Tap& tap : p.taps)
        for (std::int64_t c = 0; c < d_.in_channels; ++c, to += block)
          for (std::int64_t j = 0; j < block; ++j)
            to[j] = tap.place >= 0 && first + j < out ? weights[(c * out + first + j) * taps + tap.place] : 0;
  }

  ConvDesc d_;
  std::vector<Phase> phases_;
  std::int64_t panels_;
  std::int64_t group_ = 0;    ///< pixels of a phase that are computed together
  std::int64_t units_ = 0;    ///< panels of all groups of all phases
  std::int64_t weights_ = 0;  ///< elements of all panels
  std::int64_t whole_ = 0;    ///< operands of the results' size
  std::int64_t zeros_, table_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_transposed_phases(const ConvDesc& d) {
  if (simd().panel_gemm == nullptr || !d.transposed || d.spatial != 2 || d.groups != 1 ||
      (d.stride[0] == 1 && d.stride[1] == 1) || d.layout != ImageLayout::kChannelsLast || !d.weights_constant)
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (d.in_channels < kLeastChannels || d.in_channels > kMostDepth || !has_steps(d.post, image_of(d))) return nullptr;
  return std::make_shared<TransposedPhases>(d);
}

}  // namespace sardonyx::host
