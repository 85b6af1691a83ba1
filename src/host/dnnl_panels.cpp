// Rows times a constant matrix, panel by panel. While a panel is multiplied the next one is prefetched, as hardware
// does too late: 8 to 64 rows take a tenth to a third less than with oneDNN's kernel, some hundred up to 6 %.
#include "host/dnnl_panels.h"

#include <algorithm>

#include "host/dnnl_panel_weights.h"
#include "host/epilogue_steps.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLeastWeights = 1 << 18;  // elements; smaller ones stay in the second-level cache
constexpr std::int64_t kLeastRows = 8;
// Of few rows each costs little beside reading the panel; of many, oneDNN's kernel is ahead if they are short.
constexpr std::int64_t kLeastDepth = 128, kManyRows = 256, kLeastDepthOfMany = 384;
constexpr std::int64_t kGroupRows = 48;  // at least, where threads divide rows: a panel is read anew for each group
constexpr std::int64_t kUnits = 8;       // for each thread, at least, so that uneven ones balance
constexpr std::int64_t kCachedRows = 1 << 17;  // elements of rows that stay in the second-level cache beside two panels

class PanelKernel : public PanelWeightsKernel {
 public:
  PanelKernel(const GemmProblem& p, bool bias, bool trans_b, std::vector<PostOp> post, int threads)
      : PanelWeightsKernel(p, bias, trans_b, threads), post_(std::move(post)) {}

  std::string name() const override { return std::string("panels:") + simd().name; }

  std::int64_t prefetches() const override { return panel_prefetches(m_, n_, k_); }

  void run(const TileArgs& args) const override {
    const std::shared_ptr<const Buffer> b = weights_of(args);
    const std::vector<EpilogueStep> steps = epilogue_steps(post_, args.operands, {m_, n_});
    const std::int64_t panels = this->panels(), step = panel_step();
    const std::int64_t groups = row_groups(panels);
    const std::int64_t group = (m_ + groups - 1) / groups;
    // Rows that stay in the cache meet all panels before others do; otherwise a panel meets all rows.
    const bool rows_stay = groups == row_blocks(panels);
    const std::int64_t later = static_cast<std::int64_t>(args.later.size()) / (panels * groups);
    parallel_for(panels * groups, 1, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t panel = rows_stay ? unit % panels : unit / groups;
        const std::int64_t first = (rows_stay ? unit / panels : unit % groups) * group;
        if (first >= m_) continue;
        PanelProduct t{.first = first, .rows = std::min(group, m_ - first), .depth = k_};
        t.a = static_cast<const float*>(args.src);
        t.a_row = k_;
        t.c_row = n_;
        t.b = static_cast<const float*>(b->data()) + panel * step;
        t.next = panel + 1 < panels ? t.b + step : nullptr;
        t.later = args.later.data() + unit * later;
        t.later_bytes = later;
        t.column = panel * kPanel;
        t.columns = columns_of(panel);
        t.bias = bias_ ? static_cast<const float*>(args.bias) + t.column : nullptr;
        t.steps = steps.data();
        t.step_count = static_cast<int>(steps.size());
        t.c = static_cast<float*>(args.out);
        simd().panel_product(t);
      }
    });
  }

 private:
  /// Groups of rows that fit the second-level cache, if reading all panels for each such group is less than reading all
  /// rows for each panel.
  std::int64_t row_blocks(std::int64_t panels) const {
    const std::int64_t blocks = (m_ * k_ + kCachedRows - 1) / kCachedRows;
    return blocks * n_ < panels * m_ ? blocks : 1;
  }

  /// Where panels are too few to balance the threads' work, they divide the rows, too.
  std::int64_t row_groups(std::int64_t panels) const {
    const std::int64_t shares = threads_ == 1 ? 1 : (kUnits * threads_ + panels - 1) / panels;
    const std::int64_t groups = std::clamp<std::int64_t>(shares, 1, std::max<std::int64_t>(1, m_ / kGroupRows));
    return std::min(std::max(groups, row_blocks(panels)), m_);
  }

  std::vector<PostOp> post_;  ///< operands' dims as the merged problem has them: [m or 1, n or 1]
};

}  // namespace

std::shared_ptr<const TileKernel> make_panel_kernel(const GemmDesc& desc, const GemmProblem& p) {
  if (simd().panel_product == nullptr || !desc.b_constant || !p.batch.empty() || p.trans_a) return nullptr;
  if (p.k < (p.m > kManyRows ? kLeastDepthOfMany : kLeastDepth)) return nullptr;
  if (p.m < kLeastRows || p.n < PanelWeightsKernel::kPanel || p.n * p.k < kLeastWeights) return nullptr;
  for (DType t : {desc.a, desc.b, desc.out}) {
    if (t != DType::kFloat32) return nullptr;
  }
  std::vector<PostOp> post = desc.post;
  std::size_t operand = 0;
  for (PostOp& op : post)
    if (op.has_operand()) op.dims = p.operands[operand++];
  if (!has_steps(post, {p.m, p.n})) return nullptr;
  return std::make_shared<PanelKernel>(p, desc.bias, desc.trans_b, std::move(post), desc.threads);
}

}  // namespace sardonyx::host
