// Base of kernels that store a constant matrix in panels of 64 columns. With AVX-512 oneDNN's matmul uses the same
// layout, so one copy serves both. Only dnnl_*.cpp include this.
#pragma once
#include <algorithm>
#include <memory>

#include "host/dnnl_common.h"
#include "host/gemm_problem.h"
#include "host/parallel.h"
#include "host/simd.h"

namespace sardonyx::host {

/// A float32 GEMM with a constant right matrix. Derived kernels implement run() and name().
class PanelWeightsKernel : public TileKernel {
 public:
  static constexpr std::int64_t kPanel = 64;  // columns

  PanelWeightsKernel(const GemmProblem& p, bool bias, bool trans_b, int threads)
      : m_(p.m), n_(p.n), k_(p.k), bias_(bias), threads_(threads) {
    const auto f32 = dnnl::memory::data_type::f32;
    plain_ = dnnl::memory::desc({k_, n_}, f32, trans_b ? Dims{1, k_} : Dims{n_, 1});
    using tag = dnnl::memory::format_tag;
    packed_ = dnnl::memory::desc({k_, n_}, f32, simd().panel_block == kPanel ? tag::BA16a64b : tag::BA16a16b);
  }

  std::size_t scratch_bytes() const override { return 0; }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    return with_threads(threads_, [&] { return pack_weights(plain_, weights, packed_); });
  }

 protected:
  std::int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  /// Elements from one panel to the next: K is padded to a multiple of 16.
  std::int64_t panel_step() const { return (k_ + 15) / 16 * 16 * kPanel; }
  std::int64_t block_step() const { return (k_ + 15) / 16 * 16 * simd().panel_block; }
  int columns_of(std::int64_t panel) const { return static_cast<int>(std::min(kPanel, n_ - panel * kPanel)); }
  std::shared_ptr<const Buffer> weights_of(const TileArgs& args) const {
    return with_threads(threads_, [&] { return args.packed->impl().in_layout(packed_, plain_, args.weights); });
  }

  std::int64_t m_, n_, k_;
  bool bias_;
  int threads_;

 private:
  dnnl::memory::desc plain_, packed_;
};

}  // namespace sardonyx::host
