// See transposed_phases.h. Results whose coordinates are equal modulo the strides are a phase: a convolution without
// strides, with those taps that meet the image there. Each is an implicit GEMM in panels of 64 output channels, whose
// rows are pixels of the phase. A group of rows is computed in scratch memory, and then put between the other phases'
// pixels.
#include "host/transposed_phases.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "host/epilogue_steps.h"
#include "host/image_axes.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kPanel = 64;                         // columns
constexpr std::int64_t kMostDepth = 2560;                   // rows of a panel at a time: more would fill the L2 cache
constexpr std::int64_t kGroupElements = 1 << 16;            // elements of the image that a group of pixels reads
constexpr std::int64_t kLeastGroup = 24, kMostGroup = 512;  // pixels
constexpr std::int64_t kUnits = 8;                          // tasks per thread, at least, so that uneven ones balance

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// A tap of a phase: its place in the filter (-1: a weight of 0), and which pixel of the image it meets, from the
/// phase's pixel on, along each axis.
struct Tap {
  std::int64_t place;
  std::array<std::int64_t, 3> at;
};

/// One axis of a phase.
struct Results {
  std::int64_t first, count;
};

struct Phase {
  std::array<Results, 3> axes;
  std::vector<Tap> taps;
  std::int64_t groups = 0, weights = 0;  ///< of pixels; where its panels begin
  std::int64_t pixels(std::int64_t batch) const { return batch * axes[0].count * axes[1].count * axes[2].count; }
};

/// The taps of one axis that meet the image in a phase, and where.
std::vector<std::pair<std::int64_t, std::int64_t>> taps_of(const Axis& a, std::int64_t phase) {
  std::vector<std::pair<std::int64_t, std::int64_t>> taps;
  for (std::int64_t k = 0; k < a.kernel; ++k) {
    const std::int64_t from = phase + a.pad - k * a.dilation;
    if (from % a.stride == 0) taps.emplace_back(k, from / a.stride);
  }
  return taps;
}

Phase phase_of(const std::array<Axis, 3>& axes, const std::array<std::int64_t, 3>& first) {
  Phase p{};
  for (std::size_t k = 0; k < 3; ++k) p.axes[k] = {first[k], (axes[k].out - first[k] - 1) / axes[k].stride + 1};
  for (const auto& [kz, z] : taps_of(axes[0], first[0]))
    for (const auto& [ky, y] : taps_of(axes[1], first[1]))
      for (const auto& [kx, x] : taps_of(axes[2], first[2]))
        p.taps.push_back({(kz * axes[1].kernel + ky) * axes[2].kernel + kx, {z, y, x}});
  // Only the bias: a weight of 0 outside of the image.
  if (p.taps.empty()) p.taps.push_back({-1, {0, -axes[1].out, 0}});
  return p;
}

std::vector<Phase> phases_of(const std::array<Axis, 3>& axes) {
  std::vector<Phase> phases;
  const auto count = [&](std::size_t k) { return std::min(axes[k].stride, axes[k].out); };
  for (std::int64_t z = 0; z < count(0); ++z)
    for (std::int64_t y = 0; y < count(1); ++y)
      for (std::int64_t x = 0; x < count(2); ++x) phases.push_back(phase_of(axes, {z, y, x}));
  return phases;
}

class TransposedPhases : public TileKernel {
 public:
  explicit TransposedPhases(const ConvDesc& d)
      : d_(d),
        axes_(axes_of(d)),
        phases_(phases_of(axes_)),
        in_(d.in_channels / d.groups),
        out_(d.out_channels / d.groups),
        panels_of_group_((out_ + kPanel - 1) / kPanel),
        panels_(d.groups * panels_of_group_) {
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
    for (const PostOp& op : d.post) whole_ += op.has_operand() && op.dims == extents_of_results(d) ? 1 : 0;
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
    const std::vector<EpilogueStep> steps = epilogue_steps(d_.post, args.operands, extents_of_results(d_));
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

  std::int64_t filter() const { return axes_[0].kernel * axes_[1].kernel * axes_[2].kernel; }
  std::int64_t panel_step(const Phase& p) const { return static_cast<std::int64_t>(p.taps.size()) * in_ * kPanel; }
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
    const std::int64_t part = panel / panels_of_group_, column = panel % panels_of_group_ * kPanel;
    PanelGemm t{.rows = count, .depth = in_};
    t.element = part * in_;
    t.source_step = group_;
    t.c_row = kPanel;
    t.column = part * out_ + column;
    t.columns = static_cast<int>(std::min(kPanel, out_ - column));
    t.b = weights + p->weights + panel * panel_step(*p);
    t.block = static_cast<std::int64_t>(p->taps.size()) * in_ * simd().panel_block;
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
    const std::int64_t most = std::max<std::int64_t>(1, kMostDepth / in_);
    for (std::int64_t tap = 0; tap < taps; tap += most) {
      const bool last = tap + most >= taps;
      t.taps = std::min(most, taps - tap);
      t.sources = s.table + tap * group_;
      t.step_count = last ? steps : 0;
      t.next = last ? next : nullptr;
      t.accumulate = tap > 0;
      simd().panel_gemm(t);
      t.b += t.taps * in_ * simd().panel_block;
    }
  }

  /// Where the taps of `count` pixels of a phase read: [tap][pixel].
  void find_sources(const Phase& p, const float* image, std::int64_t first, std::int64_t count,
                    const Scratch& s) const {
    const auto& [planes, rows, columns] = p.axes;
    const auto& [depth, height, width] = axes_;
    for (std::size_t k = 0; k < p.taps.size(); ++k) {
      const auto& at = p.taps[k].at;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t pixel = first + i, row = pixel / columns.count, plane = row / rows.count;
        const std::int64_t x = pixel % columns.count + at[2], y = row % rows.count + at[1];
        const std::int64_t z = plane % planes.count + at[0], n = plane / planes.count;
        const bool inside = depth.inside(z) && height.inside(y) && width.inside(x);
        s.table[static_cast<std::int64_t>(k) * group_ + i] =
            inside ? image + (((n * depth.in + z) * height.in + y) * width.in + x) * d_.in_channels : s.zeros;
      }
    }
  }

  /// Calls `visit` with each pixel's number in the group and its place in the results.
  template <typename Visit>
  void each_pixel(const Phase& p, std::int64_t first, std::int64_t count, const Visit& visit) const {
    const auto& [planes, rows, columns] = p.axes;
    const auto& [depth, height, width] = axes_;
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t pixel = first + i, row = pixel / columns.count, plane = row / rows.count;
      const std::int64_t z = plane % planes.count * depth.stride + planes.first, n = plane / planes.count;
      const std::int64_t y = row % rows.count * height.stride + rows.first;
      const std::int64_t line = ((n * depth.out + z) * height.out + y) * width.out + columns.first;
      for (std::int64_t x = pixel % columns.count; x < columns.count && i < count; ++x, ++i)
        visit(i, (line + x * width.stride) * d_.out_channels);
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
    const std::int64_t count = d_.in_channels * out_ * filter();
    return packed.form("panels of phases", static_cast<std::size_t>(weights_) * sizeof(float), original,
                       static_cast<std::size_t>(count) * sizeof(float), lay_out);
  }

  void lay_out_panel(const Phase& p, std::int64_t panel, const float* weights, float* to) const {
    const std::int64_t block = simd().panel_block, taps = filter();
    const std::int64_t part = panel / panels_of_group_, column = panel % panels_of_group_ * kPanel;
    for (std::int64_t first = column; first < column + kPanel; first += block)
      for (const Tap& tap : p.taps)
        for (std::int64_t c = part * in_; c < (part + 1) * in_; ++c, to += block)
          for (std::int64_t j = 0; j < block; ++j)
            to[j] = tap.place >= 0 && first + j < out_ ? weights[(c * out_ + first + j) * taps + tap.place] : 0;
  }

  ConvDesc d_;
  std::array<Axis, 3> axes_;
  std::vector<Phase> phases_;
  std::int64_t in_, out_;  ///< channels of a group
  std::int64_t panels_of_group_, panels_;
  std::int64_t group_ = 0;    ///< pixels of a phase that are computed together
  std::int64_t units_ = 0;    ///< panels of all groups of all phases
  std::int64_t weights_ = 0;  ///< elements of all panels
  std::int64_t whole_ = 0;    ///< operands of the results' size
  std::int64_t zeros_, table_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_transposed_phases(const ConvDesc& d) {
  if (simd().panel_gemm == nullptr || !d.transposed || d.spatial < 2 || d.layout != ImageLayout::kChannelsLast ||
      !d.weights_constant)
    return nullptr;
  if (std::all_of(d.stride.begin(), d.stride.begin() + d.spatial, [](std::int64_t s) { return s == 1; }))
    return nullptr;
  for (DType t : {d.src, d.weights, d.dst})
    if (t != DType::kFloat32) return nullptr;
  if (d.in_channels / d.groups > kMostDepth || !has_steps(d.post, extents_of_results(d))) return nullptr;
  return std::make_shared<TransposedPhases>(d);
}

}  // namespace sardonyx::host
