// What the files on oneDNN share. Only dnnl_*.cpp include this.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "epilogue/post_op.h"
#include "host/buffer.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

using Dims = std::vector<std::int64_t>;

const dnnl::engine& cpu_engine();
dnnl::memory::data_type dnnl_type(DType t);

/// Row-major strides of `dims`.
Dims dense_strides(const Dims& dims);

/// An epilogue in oneDNN's terms.
struct DnnlEpilogue {
  dnnl::primitive_attr attr;                 ///< with working memory given by us
  std::vector<dnnl::memory::desc> operands;  ///< of those steps that have one
  std::vector<int> operand_args;             ///< oneDNN's argument number of each
};
/// `operands` describe the tensors in the output's logical axis order.
DnnlEpilogue dnnl_epilogue(const std::vector<PostOp>& post, std::vector<dnnl::memory::desc> operands);
/// Adds `op` to `out`; `operand` describes its tensor (zero without one).
void append_post_op(dnnl::post_ops& out, const PostOp& op, const dnnl::memory::desc& operand);

/// Whether oneDNN chose an implementation that is worth using: not its unoptimised reference code.
bool is_optimised(const dnnl::primitive_desc_base& pd);

struct PackedWeights::Impl {
  struct Copy {
    dnnl::memory::desc desc;   ///< the layout
    dnnl::memory::desc plain;  ///< the model's bytes that it was made from, as its kernel reads them
    std::shared_ptr<const Buffer> data;
    std::uint64_t used;
  };
  /// What a kernel that is not oneDNN's made of the weights.
  struct Form {
    std::string name;
    std::shared_ptr<const Buffer> data;
    std::uint64_t used;
  };
  std::mutex mutex;
  std::vector<Copy> copies;
  std::vector<Form> forms;
  std::uint64_t clock = 0;
  int repacks = 0;
  /// Set where the model's bytes are not what kernels read: makes the latter of the former.
  std::function<std::shared_ptr<const Buffer>(const void*)> widen;

  /// The weights as `want` has them, made from another layout, or from the model's bytes, when they are not there yet;
  /// `plain` describes those bytes as the asking kernel reads them (another kernel may read them transposed).
  std::shared_ptr<const Buffer> in_layout(const dnnl::memory::desc& want, const dnnl::memory::desc& plain,
                                          const void* original);

 private:
  friend class PackedWeights;
  /// Makes room for one layout more.
  void drop_least_used();
  /// The bytes that kernels read, `bytes` of them: `original` if it is given, else out of a layout of oneDNN's.
  std::shared_ptr<const void> plain_bytes(const void* original, std::size_t bytes);
};

/// Weights described by `plain`, copied into the layout `packed`.
std::shared_ptr<PackedWeights> pack_weights(const dnnl::memory::desc& plain, const void* weights,
                                            const dnnl::memory::desc& packed);

void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to, void* target);

/// A kernel that is one oneDNN primitive.
class DnnlKernel : public TileKernel {
 public:
  struct Spec {
    dnnl::primitive primitive;
    std::string name;
    dnnl::memory::desc src, dst, bias, scratch;
    dnnl::memory::desc weights;        ///< as the primitive reads them
    dnnl::memory::desc plain_weights;  ///< as the model has them
    bool weights_constant;
    DnnlEpilogue epilogue;
    int threads;
  };
  explicit DnnlKernel(Spec spec);
  ~DnnlKernel() override;
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  std::string name() const override { return spec_.name; }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override;
  void run(const TileArgs& args) const override;

 private:
  struct Context;
  std::unique_ptr<Context> take_context() const;
  /// run(), inside the arena of the kernel's threads.
  void run_here(const TileArgs& args) const;

  Spec spec_;
  std::size_t scratch_bytes_;
  std::size_t
      weights_offset_;  ///< where in scratch the weights are reordered to at every run; only if they are variable
  bool reorder_each_run_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Context>> idle_;
};

/// The kernel of `primitive`, made from `pd`. `plain_weights` describe the weights as the model has them.
std::shared_ptr<const DnnlKernel> make_dnnl_kernel(const dnnl::primitive_desc& pd, const dnnl::primitive& primitive,
                                                   const dnnl::memory::desc& plain_weights, bool weights_constant,
                                                   DnnlEpilogue epilogue, int threads);

}  // namespace sardonyx::host
