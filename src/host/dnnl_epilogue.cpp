// An epilogue as passes over the stored result, for kernels that cannot apply it before storing.
#include "host/dnnl_epilogue.h"

#include "host/dnnl_common.h"
#include "host/parallel.h"

namespace sardonyx::host {
namespace {

struct Pass {
  dnnl::primitive primitive;
  dnnl::memory::desc operand;  ///< zero if the step has no tensor
};

class EpilogueKernel : public TileKernel {
 public:
  EpilogueKernel(std::shared_ptr<const TileKernel> inner, dnnl::memory::desc out, std::vector<Pass> passes, int threads)
      : inner_(std::move(inner)), out_(std::move(out)), passes_(std::move(passes)), threads_(threads) {}

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name() + ", then its epilogue"; }
  bool has_fast_halves() const override { return inner_->has_fast_halves(); }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override { return inner_->pack(weights); }

  void run(const TileArgs& args) const override {
    TileArgs bare = args;
    bare.operands = {};
    inner_->run(bare);
    with_threads(threads_, [&] { apply(args); });
  }

 private:
  void apply(const TileArgs& args) const {
    dnnl::stream stream(cpu_engine());
    const dnnl::memory out(out_, cpu_engine(), args.out);
    std::size_t operand = 0;
    for (const Pass& pass : passes_) {
      std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC_0, out}, {DNNL_ARG_DST, out}};
      if (!pass.operand.is_zero()) {
        arguments[DNNL_ARG_SRC_1] = {pass.operand, cpu_engine(), const_cast<void*>(args.operands[operand++])};
      }
      pass.primitive.execute(stream, arguments);
    }
    stream.wait();
  }

  std::shared_ptr<const TileKernel> inner_;
  dnnl::memory::desc out_;
  std::vector<Pass> passes_;
  int threads_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_epilogue_kernel(std::shared_ptr<const TileKernel> inner,
                                                       const dnnl::memory::desc& out, const std::vector<PostOp>& post,
                                                       const std::vector<dnnl::memory::desc>& operands, int threads) {
  std::vector<Pass> passes;
  std::size_t operand = 0;
  for (const PostOp& op : post) {
    // Built as a oneDNN post-op and taken apart again, so that the mapping of kinds exists only once.
    dnnl::post_ops one;
    const dnnl::memory::desc second = op.has_operand() ? operands[operand++] : dnnl::memory::desc();
    append_post_op(one, op, second);
    dnnl::algorithm algorithm{};
    if (op.has_operand()) {
      dnnl::memory::desc unused;
      one.get_params_binary(0, algorithm, unused);
      const dnnl::binary::primitive_desc pd(cpu_engine(), algorithm, out, second, out, dnnl::primitive_attr(), true);
      if (!pd.get(true)) return nullptr;
      passes.push_back({dnnl::binary(pd), second});
    } else {
      float alpha = 0, beta = 0;
      one.get_params_eltwise(0, algorithm, alpha, beta);
      const auto kind = dnnl::prop_kind::forward_inference;
      const dnnl::eltwise_forward::primitive_desc pd(cpu_engine(), kind, algorithm, out, out, alpha, beta,
                                                     dnnl::primitive_attr(), true);
      if (!pd.get(true)) return nullptr;
      passes.push_back({dnnl::eltwise_forward(pd), {}});
    }
  }
  return std::make_shared<EpilogueKernel>(std::move(inner), out, std::move(passes), threads);
}

}  // namespace sardonyx::host
