// Few rows times a large constant matrix, which is read in the layout that oneDNN's matmul wants too: it serves both.
#include "host/dnnl_few_rows.h"

#include <algorithm>

#include "host/parallel.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kPanel = 64;              // columns of one panel of the layout
constexpr std::int64_t kLargeWeights = 8 << 20;  // bytes; smaller ones stay in the cache, where oneDNN is fast

class FewRowsKernel : public TileKernel {
 public:
  FewRowsKernel(const GemmProblem& p, bool bias, bool trans_b, int threads)
      : m_(p.m), n_(p.n), k_(p.k), bias_(bias), threads_(threads) {
    const auto f32 = dnnl::memory::data_type::f32;
    plain_ = dnnl::memory::desc({k_, n_}, f32, trans_b ? Dims{1, k_} : Dims{n_, 1});
    packed_ = dnnl::memory::desc({k_, n_}, f32, dnnl::memory::format_tag::BA16a64b);
  }

  std::size_t scratch_bytes() const override { return 0; }
  std::string name() const override { return std::string("few rows:") + simd().name; }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    ThreadLimit limit(threads_);
    return pack_weights(plain_, weights, packed_);
  }

  void run(const TileArgs& args) const override {
    std::shared_ptr<const Buffer> b;
    {
      ThreadLimit limit(threads_);
      b = args.packed->impl().in_layout(packed_, plain_, args.weights);
    }
    const std::int64_t panels = (n_ + kPanel - 1) / kPanel, depth = (k_ + 15) / 16 * 16;
    parallel_for(panels, 1, threads_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) {
        const std::int64_t column = panel * kPanel;
        simd().few_rows(static_cast<int>(m_), k_, static_cast<const float*>(args.src), k_,
                        static_cast<const float*>(b->data()) + panel * depth * kPanel,
                        bias_ ? static_cast<const float*>(args.bias) + column : nullptr,
                        static_cast<float*>(args.out) + column, n_, static_cast<int>(std::min(kPanel, n_ - column)));
      }
    });
  }

 private:
  std::int64_t m_, n_, k_;
  bool bias_;
  int threads_;
  dnnl::memory::desc plain_, packed_;
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
