// GEMM of few rows with a large constant matrix.
#include "host/dnnl_few_rows.h"

#include "host/dnnl_panel_weights.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLargeWeights = 2 << 20;  // bytes; smaller weights stay in the cache, where oneDNN is fast

class FewRowsKernel : public PanelWeightsKernel {
 public:
  using PanelWeightsKernel::PanelWeightsKernel;

  std::string name() const override { return std::string("few rows:") + simd().name; }

  void run(const TileArgs& args) const override {
    const std::shared_ptr<const Buffer> b = weights_of(args);
    parallel_for(panels(), 1, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) {
        const std::int64_t column = panel * kPanel;
        simd().few_rows(static_cast<int>(m_), k_, static_cast<const float*>(args.src), k_,
                        static_cast<const float*>(b->data()) + panel * panel_step(), block_step(),
                        bias_ ? static_cast<const float*>(args.bias) + column : nullptr,
                        static_cast<float*>(args.out) + column, n_, columns_of(panel));
      }
    });
  }
};

}  // namespace

std::shared_ptr<const TileKernel> make_few_rows_kernel(const GemmDesc& desc, const GemmProblem& p) {
  if (simd().few_rows == nullptr || !desc.b_constant || !p.batch.empty() || p.trans_a || p.m > 4) return nullptr;
  if (p.n * p.k < kLargeWeights / static_cast<std::int64_t>(sizeof(float))) return nullptr;
  for (DType t : {desc.a, desc.b, desc.out}) {
    if (t != DType::kFloat32) return nullptr;
  }
  return std::make_shared<FewRowsKernel>(p, desc.bias, desc.trans_b, desc.threads);
}

}  // namespace sardonyx::host
