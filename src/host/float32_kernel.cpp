// Kernels on half types, through a float32 kernel.
#include "host/float32_kernel.h"

#include "host/buffer.h"
#include "host/convert.h"

namespace sardonyx::host {
namespace {

class Float32Kernel : public TileKernel {
 public:
  Float32Kernel(std::shared_ptr<const TileKernel> inner, Float32KernelDesc desc)
      : inner_(std::move(inner)), desc_(std::move(desc)) {
    bytes_ = inner_->scratch_bytes();
    src_ = place(desc_.src);
    if (!desc_.weights_constant) weights_ = place(desc_.weights);
    out_ = place(desc_.out);
    for (const TensorSize& t : desc_.operands) operands_.push_back(place(t));
  }

  std::size_t scratch_bytes() const override { return bytes_; }
  std::string name() const override { return inner_->name() + " in float32"; }
  std::string weights_form() const override { return inner_->weights_form(); }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    if (desc_.weights.type == DType::kFloat32) return inner_->pack(weights);
    const auto widen = [weights = desc_.weights, threads = desc_.threads](const void* original) {
      auto wide = std::make_shared<Buffer>(static_cast<std::size_t>(weights.count) * sizeof(float));
      to_float32(weights.type, original, static_cast<float*>(wide->data()), weights.count, threads);
      return std::shared_ptr<const Buffer>(std::move(wide));
    };
    auto packed = inner_->pack(widen(weights)->data());
    packed->convert_by(widen);
    return packed;
  }

  void run(const TileArgs& args) const override {
    TileArgs wide = args;
    wide.src = widen(desc_.src, args.src, src_, args.scratch);
    if (!desc_.weights_constant) wide.weights = widen(desc_.weights, args.weights, weights_, args.scratch);
    std::vector<const void*> operands;
    for (std::size_t i = 0; i < desc_.operands.size(); ++i) {
      operands.push_back(widen(desc_.operands[i], args.operands[i], operands_[i], args.scratch));
    }
    wide.operands = operands;
    const bool half_out = desc_.out.type != DType::kFloat32;
    if (half_out) wide.out = static_cast<char*>(args.scratch) + out_;
    inner_->run(wide);
    if (half_out)
      from_float32(desc_.out.type, static_cast<const float*>(wide.out), args.out, desc_.out.count, desc_.threads);
  }

 private:
  /// Offset in scratch of the float32 copy of `t`.
  std::size_t place(const TensorSize& t) {
    if (t.type == DType::kFloat32) return 0;
    const std::size_t offset = (bytes_ + 63) / 64 * 64;
    bytes_ = offset + static_cast<std::size_t>(t.count) * sizeof(float);
    return offset;
  }

  const void* widen(const TensorSize& t, const void* data, std::size_t offset, void* scratch) const {
    if (t.type == DType::kFloat32) return data;
    auto* wide = reinterpret_cast<float*>(static_cast<char*>(scratch) + offset);
    to_float32(t.type, data, wide, t.count, desc_.threads);
    return wide;
  }

  std::shared_ptr<const TileKernel> inner_;
  Float32KernelDesc desc_;
  std::size_t bytes_ = 0, src_ = 0, weights_ = 0, out_ = 0;
  std::vector<std::size_t> operands_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_float32_kernel(std::shared_ptr<const TileKernel> inner, Float32KernelDesc desc) {
  return std::make_shared<Float32Kernel>(std::move(inner), std::move(desc));
}

}  // namespace sardonyx::host
