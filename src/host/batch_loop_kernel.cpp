// The loop over a batch axis.
#include "host/batch_loop_kernel.h"

namespace sardonyx::host {
namespace {

class BatchLoopKernel : public TileKernel {
 public:
  BatchLoopKernel(std::shared_ptr<const TileKernel> inner, BatchStep step)
      : inner_(std::move(inner)), step_(std::move(step)) {}

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name() + " for each batch"; }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override { return inner_->pack(weights); }

  void run(const TileArgs& args) const override {
    TileArgs one = args;
    std::vector<const void*> operands(args.operands.size());
    one.operands = operands;
    for (std::int64_t i = 0; i < step_.count; ++i) {
      one.src = static_cast<const char*>(args.src) + i * step_.src;
      if (args.weights) one.weights = static_cast<const char*>(args.weights) + i * step_.weights;
      one.out = static_cast<char*>(args.out) + i * step_.out;
      for (std::size_t p = 0; p < operands.size(); ++p) {
        operands[p] = static_cast<const char*>(args.operands[p]) + i * step_.operands[p];
      }
      inner_->run(one);
    }
  }

 private:
  std::shared_ptr<const TileKernel> inner_;
  BatchStep step_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_batch_loop_kernel(std::shared_ptr<const TileKernel> inner, BatchStep step) {
  return std::make_shared<BatchLoopKernel>(std::move(inner), std::move(step));
}

}  // namespace sardonyx::host
