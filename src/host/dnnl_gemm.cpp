// GEMM through oneDNN: its matmul or, where that has no vectorised kernel for an epilogue (AVX2), its 1x1 convolution.
#include "host/dnnl_gemm.h"

#include <string_view>

#include "host/dnnl_common.h"
#include "host/dnnl_epilogue.h"
#include "host/dnnl_few_rows.h"
#include "host/dnnl_panels.h"
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

/// The epilogue's tensors as matmul needs them described.
std::vector<memory::desc> operands_of(const GemmDesc& desc, const GemmProblem& p) {
  std::vector<memory::desc> operands;
  for (const PostOp& op : desc.post) {
    if (!op.has_operand()) continue;
    const Dims& dims = p.operands[operands.size()];
    operands.emplace_back(dims, dnnl_type(op.dtype), dense_strides(dims));
  }
  return operands;
}

/// A matmul with the epilogue `post`; null if oneDNN has no optimised one.
std::shared_ptr<const DnnlKernel> make_matmul(const GemmDesc& desc, const GemmProblem& p,
                                              const std::vector<PostOp>& post) {
  const memory::desc a = matrix(p.batch_a, p.m, p.k, p.trans_a, desc.a);
  const memory::desc b = matrix(p.batch_b, p.k, p.n, desc.trans_b, desc.b);
  const memory::desc out = matrix(p.batch, p.m, p.n, false, desc.out);
  const memory::desc used_b =
      desc.b_constant ? memory::desc(b.get_dims(), b.get_data_type(), memory::format_tag::any) : b;
  DnnlEpilogue epilogue = dnnl_epilogue(post, post.empty() ? std::vector<memory::desc>{} : operands_of(desc, p));
  dnnl::matmul::primitive_desc pd;
  if (desc.bias) {
    const memory::desc bias = matrix(Dims(p.batch.size(), 1), 1, p.n, false, DType::kFloat32);
    pd = dnnl::matmul::primitive_desc(cpu_engine(), a, used_b, bias, out, epilogue.attr, true);
  } else {
    pd = dnnl::matmul::primitive_desc(cpu_engine(), a, used_b, out, epilogue.attr, true);
  }
  if (!pd.get(true) || implementation_of(pd).reference) return nullptr;
  return make_dnnl_kernel(pd, dnnl::matmul(pd), b, desc.b_constant, std::move(epilogue), desc.threads);
}

/// The GEMM as a 1x1 convolution of an image of 1 x M pixels with K channels; null if it cannot be expressed so.
std::shared_ptr<const DnnlKernel> make_1x1_convolution(const GemmDesc& desc, const GemmProblem& p) {
  if (!desc.b_constant || !p.batch.empty() || p.trans_a) return nullptr;
  using tag = memory::format_tag;
  const memory::desc src({1, p.k, 1, p.m}, dnnl_type(desc.a), tag::nhwc);
  const memory::desc dst({1, p.n, 1, p.m}, dnnl_type(desc.out), tag::nhwc);
  const Dims weights_dims{p.n, p.k, 1, 1};
  const memory::desc weights(weights_dims, dnnl_type(desc.b), tag::any);
  const memory::desc plain(weights_dims, dnnl_type(desc.b), desc.trans_b ? Dims{p.k, 1, 1, 1} : Dims{1, p.n, 1, 1});
  memory::desc bias;
  if (desc.bias) bias = memory::desc({p.n}, memory::data_type::f32, tag::a);
  std::vector<memory::desc> operands;
  for (const memory::desc& operand : operands_of(desc, p)) {
    const Dims dims = operand.get_dims();
    operands.emplace_back(Dims{1, dims[1], 1, dims[0]}, operand.get_data_type(), tag::nhwc);
  }
  DnnlEpilogue epilogue = dnnl_epilogue(desc.post, std::move(operands));
  dnnl::convolution_forward::primitive_desc pd(cpu_engine(), dnnl::prop_kind::forward_inference,
                                               dnnl::algorithm::convolution_direct, src, weights, bias, dst, {1, 1},
                                               {0, 0}, {0, 0}, epilogue.attr, true);
  if (!pd.get(true) || !implementation_of(pd).brgemm) return nullptr;
  return make_dnnl_kernel(pd, dnnl::convolution_forward(pd), plain, true, std::move(epilogue), desc.threads);
}

bool is_brgemm(const std::shared_ptr<const DnnlKernel>& kernel) { return kernel && kernel->implementation().brgemm; }

std::shared_ptr<const TileKernel> find_kernel(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  const memory::desc out = matrix(p.batch, p.m, p.n, false, desc.out);
  if (auto few = make_few_rows_kernel(desc, p)) {
    if (desc.post.empty()) return few;
    if (auto kernel = make_epilogue_kernel(few, out, desc.post, operands_of(desc, p), desc.threads)) return kernel;
  }
  if (auto panels = make_panel_kernel(desc, p)) return panels;
  // Prefer a fused matmul, then what takes more passes.
  auto fused = make_matmul(desc, p, desc.post);
  if (is_brgemm(fused)) return fused;
  if (p.batch.empty() && !desc.post.empty()) {
    // matmul supports an operand with one value per row only if there is a batch axis.
    GemmProblem batched = p;
    for (auto* batch : {&batched.batch, &batched.batch_a, &batched.batch_b}) batch->push_back(1);
    for (auto& dims : batched.operands) dims.insert(dims.begin(), 1);
    fused = make_matmul(desc, batched, desc.post);
    if (is_brgemm(fused)) return fused;
  }
  // The convolution is slower than a plain matmul when rows are long.
  if (p.k <= 2048) {
    if (auto convolution = make_1x1_convolution(desc, p)) return convolution;
  }
  bool half = desc.a != DType::kFloat32 || desc.b != DType::kFloat32 || desc.out != DType::kFloat32;
  for (const PostOp& op : desc.post) half |= op.has_operand() && op.dtype != DType::kFloat32;
  auto bare = half ? nullptr : make_matmul(desc, p, {});
  if (bare && desc.post.empty()) return bare;
  if (bare) {
    if (auto kernel = make_epilogue_kernel(bare, out, desc.post, operands_of(desc, p), desc.threads)) return kernel;
  }
  why = "oneDNN has no optimised matrix product for these types and this epilogue on this CPU";
  return nullptr;
}

}  // namespace

std::shared_ptr<const TileKernel> make_dnnl_gemm(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  return with_threads(desc.threads, [&] { return find_kernel(desc, p, why); });
}

}  // namespace sardonyx::host
