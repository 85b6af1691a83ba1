// Shared by the files that use oneDNN. Only dnnl_*.cpp include this.
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

/// An epilogue as oneDNN attributes.
struct DnnlEpilogue {
  dnnl::primitive_attr attr;                 ///< with scratchpad memory supplied by the user
  std::vector<dnnl::memory::desc> operands;  ///< tensors of those steps that have one
  std::vector<int> operand_args;             ///< oneDNN's argument number of each tensor
};
/// `operands` describe the tensors in the output's logical axis order.
DnnlEpilogue dnnl_epilogue(const std::vector<PostOp>& post, std::vector<dnnl::memory::desc> operands);
/// Adds `op` to `out`; `operand` describes its tensor (zero without one).
void append_post_op(dnnl::post_ops& out, const PostOp& op, const dnnl::memory::desc& operand);

/// What is known of the implementation that oneDNN chose; it tells them apart by names only.
struct DnnlImplementation {
  bool reference = false;     ///< unoptimised code, which is not worth using
  bool batch_reduce = false;  ///< of the generator of batch-reduce GEMMs, which is fast for 16-bit floats too
  bool brgemm = false;        ///< of that generator, for GEMMs and convolutions that are not depthwise
  bool gemm = false;          ///< a convolution that copies the image to a matrix of its taps
};
DnnlImplementation implementation_of(const dnnl::primitive_desc_base& pd);

struct PackedWeights::Impl {
  struct Copy {
    dnnl::memory::desc desc;   ///< the layout
    dnnl::memory::desc plain;  ///< layout of the model's bytes that it was made from, as its kernel reads them
    std::shared_ptr<const Buffer> data;
    std::uint64_t used;
  };
  /// A form that a kernel of our own, not oneDNN's, made of the weights.
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
  /// Set if the model's bytes need conversion before kernels read them: performs it.
  std::function<std::shared_ptr<const Buffer>(const void*)> convert;

  /// The weights in layout `want`, reordered from another layout or from the model's bytes if they do not exist yet.
  /// `plain` describes those bytes as the calling kernel reads them (another kernel may read them transposed).
  std::shared_ptr<const Buffer> in_layout(const dnnl::memory::desc& want, const dnnl::memory::desc& plain,
                                          const void* original);

 private:
  friend class PackedWeights;
  /// Drops the layout that was used least recently if there are too many.
  void drop_least_used();
  /// The plain bytes that kernels read, `bytes` of them: `original` if given, otherwise reordered from one of oneDNN's
  /// layouts.
  std::shared_ptr<const void> plain_bytes(const void* original, std::size_t bytes);
};

/// Weights described by `plain`, copied into the layout `packed`.
std::shared_ptr<PackedWeights> pack_weights(const dnnl::memory::desc& plain, const void* weights,
                                            const dnnl::memory::desc& packed);

void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to, void* target);

/// A kernel that consists of one oneDNN primitive.
class DnnlKernel : public TileKernel {
 public:
  struct Spec {
    dnnl::primitive primitive;
    std::string name;
    DnnlImplementation implementation;
    dnnl::memory::desc src, dst, bias, scratch;
    dnnl::memory::desc weights;        ///< layout that the primitive reads
    dnnl::memory::desc plain_weights;  ///< layout in the model
    bool weights_constant;
    DnnlEpilogue epilogue;
    int threads;
  };
  explicit DnnlKernel(Spec spec);
  ~DnnlKernel() override;
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  std::string name() const override { return spec_.name; }
  const DnnlImplementation& implementation() const { return spec_.implementation; }
  bool has_fast_halves() const override { return spec_.implementation.batch_reduce; }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override;
  void run(const TileArgs& args) const override;

 private:
  struct Context;
  std::unique_ptr<Context> take_context() const;
  /// run(), within the kernel's arena of threads.
  void run_here(const TileArgs& args) const;

  Spec spec_;
  std::size_t scratch_bytes_;
  std::size_t weights_offset_;  ///< variable weights are reordered to here, in scratch, in every run
  bool reorder_each_run_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Context>> idle_;
};

/// The kernel of `primitive`, created from `pd`. `plain_weights` describes the weights in the model.
std::shared_ptr<const DnnlKernel> make_dnnl_kernel(const dnnl::primitive_desc& pd, const dnnl::primitive& primitive,
                                                   const dnnl::memory::desc& plain_weights, bool weights_constant,
                                                   DnnlEpilogue epilogue, int threads);

}  // namespace sardonyx::host
