// Gemm through oneDNN: its matmul; or, where that has no vector kernel for an epilogue (AVX2), its 1x1 convolution.
#include "host/dnnl_gemm.h"

#include <string_view>

#include "host/dnnl_common.h"
#include "host/parallel.h"

namespace sardonyx::host {
namespace {

using dnnl::memory;

/// Describes [batch..., rows, columns], stored with rows and columns exchanged if `transposed`.
memory::desc matrix(const Dims& batch, std::int64_t rows, std::int64_t columns, bool transposed, DType type) {
  Dims stored = batch, logical = batch;
  stored.insert(stored.end(), {transposed ? columns : rows, transposed ? rows : columns});
  logical.insert(logical.end(), {rows, columns});
  Dims strides = dense_strides(stored);
  if (transposed) std::swap(strides[batch.size()], strides[batch.size() + 1]);
  return {logical, dnnl_type(type), strides};
}

/// A matmul; null when oneDNN has no optimised one.
std::shared_ptr<const DnnlKernel> make_matmul(const GemmDesc& desc, const GemmProblem& p) {
  const memory::desc a = matrix(p.batch_a, p.m, p.k, p.trans_a, desc.a);
  const memory::desc b = matrix(p.batch_b, p.k, p.n, desc.trans_b, desc.b);
  const memory::desc out = matrix(p.batch, p.m, p.n, false, desc.out);
  const memory::desc any_b(b.get_dims(), b.get_data_type(), memory::format_tag::any);
  memory::desc bias;
  if (desc.bias) bias = matrix(Dims(p.batch.size(), 1), 1, p.n, false, DType::kFloat32);

  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  std::vector<memory::desc> operands;
  std::vector<int> operand_args;
  for (std::size_t i = 0; i < desc.post.size(); ++i) {
    const PostOp& op = desc.post[i];
    memory::desc operand;
    if (op.has_operand()) {
      const Dims& dims = p.operands[operands.size()];
      operand = memory::desc(dims, dnnl_type(op.dtype), dense_strides(dims));
      operands.push_back(operand);
      operand_args.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
    append_post_op(post, op, operand);
  }
  attr.set_post_ops(post);
  const memory::desc& b_or_any = desc.b_constant ? any_b : b;
  dnnl::matmul::primitive_desc pd = desc.bias
                                        ? dnnl::matmul::primitive_desc(cpu_engine(), a, b_or_any, bias, out, attr, true)
                                        : dnnl::matmul::primitive_desc(cpu_engine(), a, b_or_any, out, attr, true);
  if (!pd.get(true) || !is_optimised(pd)) return nullptr;
  DnnlKernel::Spec spec = spec_of(pd, dnnl::matmul(pd));
  spec.plain_weights = b;
  spec.weights_constant = desc.b_constant;
  spec.operands = std::move(operands);
  spec.operand_args = std::move(operand_args);
  spec.threads = desc.threads;
  return std::make_shared<DnnlKernel>(std::move(spec));
}

/// The product as a 1x1 convolution of an image of 1 x M pixels with K channels; null when it is not one.
std::shared_ptr<const DnnlKernel> make_1x1_convolution(const GemmDesc& desc, const GemmProblem& p) {
  if (!desc.b_constant || !p.batch.empty() || p.trans_a) return nullptr;
  using tag = memory::format_tag;
  const memory::desc src({1, p.k, 1, p.m}, dnnl_type(desc.a), tag::nhwc);
  const memory::desc dst({1, p.n, 1, p.m}, dnnl_type(desc.out), tag::nhwc);
  const memory::desc weights({p.n, p.k, 1, 1}, dnnl_type(desc.b), tag::any);
  const Dims plain = desc.trans_b ? Dims{p.k, 1, 1, 1} : Dims{1, p.n, 1, 1};
  memory::desc bias;
  if (desc.bias) bias = memory::desc({p.n}, memory::data_type::f32, tag::a);

  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  std::vector<memory::desc> operands;
  std::vector<int> operand_args;
  for (std::size_t i = 0; i < desc.post.size(); ++i) {
    const PostOp& op = desc.post[i];
    memory::desc operand;
    if (op.has_operand()) {
      const Dims& dims = p.operands[operands.size()];
      operand = memory::desc({1, dims[1], 1, dims[0]}, dnnl_type(op.dtype), tag::nhwc);
      operands.push_back(operand);
      operand_args.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
    append_post_op(post, op, operand);
  }
  attr.set_post_ops(post);
  dnnl::convolution_forward::primitive_desc pd(cpu_engine(), dnnl::prop_kind::forward_inference,
                                               dnnl::algorithm::convolution_direct, src, weights, bias, dst, {1, 1},
                                               {0, 0}, {0, 0}, attr, true);
  if (!pd.get(true) || !std::string_view(pd.impl_info_str()).starts_with("brg")) return nullptr;
  DnnlKernel::Spec spec = spec_of(pd, dnnl::convolution_forward(pd));
  spec.plain_weights = memory::desc({p.n, p.k, 1, 1}, dnnl_type(desc.b), plain);
  spec.weights_constant = true;
  spec.operands = std::move(operands);
  spec.operand_args = std::move(operand_args);
  spec.threads = desc.threads;
  return std::make_shared<DnnlKernel>(std::move(spec));
}

}  // namespace

std::shared_ptr<const TileKernel> make_dnnl_gemm(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  ThreadLimit limit(desc.threads);
  std::shared_ptr<const DnnlKernel> kernel = make_matmul(desc, p);
  if (!kernel && p.batch.empty()) {
    // An operand with one value for each row is known to matmul with a batch axis only.
    GemmProblem batched = p;
    for (auto* batch : {&batched.batch, &batched.batch_a, &batched.batch_b}) batch->push_back(1);
    for (auto& dims : batched.operands) dims.insert(dims.begin(), 1);
    kernel = make_matmul(desc, batched);
  }
  if (kernel && kernel->name().starts_with("brg")) return kernel;
  // Its 1x1 convolution reads long rows (large K) slower than the plain gemm does.
  if (p.k <= 2048 || !kernel) {
    if (auto convolution = make_1x1_convolution(desc, p)) return convolution;
  }
  if (!kernel) why = "oneDNN has no optimised matrix product for these types and this epilogue on this CPU";
  return kernel;
}

}  // namespace sardonyx::host
