// GEMM with a constant matrix, panel by panel. While a panel is multiplied the next one is prefetched, which the
// hardware prefetcher starts too late. 8 to 64 rows take a tenth to a third less time than with oneDNN's kernel, some
// hundred rows up to 6 % less.
#include "host/dnnl_panels.h"

#include <algorithm>

#include "host/dnnl_panel_weights.h"
#include "host/epilogue_steps.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLeastWeights = 1 << 18;  // elements; smaller weights stay in the L2 cache
constexpr std::int64_t kLeastRows = 8;           // fewer rows have a kernel of their own (dnnl_few_rows.h), or oneDNN's
// With few rows, time is dominated by reading the panel; with many, oneDNN's kernel is faster if K is small.
constexpr std::int64_t kLeastDepth = 128, kManyRows = 256, kLeastDepthOfMany = 384;
constexpr std::int64_t kLeastDepthOfSlow = 64;  // followed by a function that oneDNN computes slowly
constexpr std::int64_t kGroupRows = 48;         // minimum, if threads divide rows: each group reads the panel again
constexpr std::int64_t kUnits = 8;              // tasks per thread, at least, so that uneven ones balance
constexpr std::int64_t kCachedRows = 1 << 17;   // elements of rows that stay in the L2 cache beside two panels

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
    // Rows that stay in the cache are multiplied with all panels before the next rows; otherwise a panel with all rows.
    const bool rows_stay = groups == row_blocks(panels);
    const std::int64_t later = static_cast<std::int64_t>(args.later.size()) / (panels * groups);
    parallel_for(panels * groups, 1, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t panel = rows_stay ? unit % panels : unit / groups;
        const std::int64_t first = (rows_stay ? unit / panels : unit % groups) * group;
        if (first >= m_) continue;
        PanelGemm t{.first = first, .rows = std::min(group, m_ - first), .depth = k_};
        t.a = static_cast<const float*>(args.src);
        t.a_row = k_;
        t.c_row = n_;
        t.b = static_cast<const float*>(b->data()) + panel * step;
        t.block = block_step();
        t.next = panel + 1 < panels ? t.b + step : nullptr;
        t.later = args.later.data() + unit * later;
        t.later_bytes = later;
        t.column = panel * kPanel;
        t.columns = columns_of(panel);
        t.bias = bias_ ? static_cast<const float*>(args.bias) + t.column : nullptr;
        t.steps = steps.data();
        t.step_count = static_cast<int>(steps.size());
        t.c = static_cast<float*>(args.out);
        simd().panel_gemm(t);
      }
    });
  }

 private:
  /// Groups of rows that fit the L2 cache, if reading all panels once per group is less than reading all rows once per
  /// panel.
  std::int64_t row_blocks(std::int64_t panels) const {
    const std::int64_t blocks = (m_ * k_ + kCachedRows - 1) / kCachedRows;
    return blocks * n_ < panels * m_ ? blocks : 1;
  }

  /// If there are too few panels to balance the threads, they divide the rows too.
  std::int64_t row_groups(std::int64_t panels) const {
    const std::int64_t shares = threads_ == 1 ? 1 : (kUnits * threads_ + panels - 1) / panels;
    const std::int64_t groups = std::clamp<std::int64_t>(shares, 1, std::max<std::int64_t>(1, m_ / kGroupRows));
    return std::min(std::max(groups, row_blocks(panels)), m_);
  }

  std::vector<PostOp> post_;  ///< dims of operands as in the merged problem: [m or 1, n or 1]
};

}  // namespace

std::shared_ptr<const TileKernel> make_panel_kernel(const GemmDesc& desc, const GemmProblem& p) {
  if (simd().panel_gemm == nullptr || !desc.b_constant || !p.batch.empty() || p.trans_a) return nullptr;
  const bool slow = has_exponential(desc.post);  // with oneDNN
  if (p.m < kLeastRows || p.n < PanelWeightsKernel::kPanel || p.k < kLeastDepthOfSlow) return nullptr;
  if (!slow && p.k < (p.m > kManyRows ? kLeastDepthOfMany : kLeastDepth)) return nullptr;
  if (!slow && p.n * p.k < kLeastWeights) return nullptr;
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
