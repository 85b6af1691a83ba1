// The engine, element types and post-operations in oneDNN's terms.
#include "host/dnnl_common.h"

#include <string_view>

#include "support/error.h"

namespace sardonyx::host {

const dnnl::engine& cpu_engine() {
  // Disable oneDNN's own cache: it would keep kernels alive that ours has dropped.
  static const dnnl::engine engine = [] {
    dnnl::set_primitive_cache_capacity(0);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::memory::data_type dnnl_type(DType t) {
  switch (t) {
    case DType::kFloat32:
      return dnnl::memory::data_type::f32;
    case DType::kFloat16:
      return dnnl::memory::data_type::f16;
    case DType::kBFloat16:
      return dnnl::memory::data_type::bf16;
    default:
      fail(ErrorKind::kInternal, "internal error: {} is not an element type of host gemm or convolution", name(t));
  }
}

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

DnnlEpilogue dnnl_epilogue(const std::vector<PostOp>& post, std::vector<dnnl::memory::desc> operands) {
  DnnlEpilogue epilogue;
  dnnl::post_ops steps;
  std::size_t next = 0;
  for (std::size_t i = 0; i < post.size(); ++i) {
    append_post_op(steps, post[i], post[i].has_operand() ? operands[next++] : dnnl::memory::desc());
    if (post[i].has_operand()) {
      epilogue.operand_args.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
  }
  epilogue.operands = std::move(operands);
  epilogue.attr.set_post_ops(steps);
  epilogue.attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return epilogue;
}

void append_post_op(dnnl::post_ops& out, const PostOp& op, const dnnl::memory::desc& operand) {
  using dnnl::algorithm;
  using Kind = PostOp::Kind;
  auto binary = [&](algorithm a) { out.append_binary(a, operand); };
  auto unary = [&](algorithm a, float alpha = 0, float beta = 0) { out.append_eltwise(a, alpha, beta); };
  switch (op.kind) {
    case Kind::kAddTensor:
      return binary(algorithm::binary_add);
    case Kind::kSubTensor:
      return binary(algorithm::binary_sub);
    case Kind::kMulTensor:
      return binary(algorithm::binary_mul);
    case Kind::kDivTensor:
      return binary(algorithm::binary_div);
    case Kind::kMaxTensor:
      return binary(algorithm::binary_max);
    case Kind::kMinTensor:
      return binary(algorithm::binary_min);
    case Kind::kRelu:
      return unary(algorithm::eltwise_relu);
    case Kind::kLeakyRelu:
      return unary(algorithm::eltwise_relu, op.alpha);
    case Kind::kClip:
      return unary(algorithm::eltwise_clip, op.alpha, op.beta);
    case Kind::kSigmoid:
      return unary(algorithm::eltwise_logistic);
    case Kind::kTanh:
      return unary(algorithm::eltwise_tanh);
    case Kind::kSwish:
      return unary(algorithm::eltwise_swish, op.alpha);
    case Kind::kHardSwish:
      return unary(algorithm::eltwise_hardswish, op.alpha, op.beta);
    case Kind::kHardSigmoid:
      return unary(algorithm::eltwise_hardsigmoid, op.alpha, op.beta);
    case Kind::kGeluErf:
      return unary(algorithm::eltwise_gelu_erf);
    case Kind::kGeluTanh:
      return unary(algorithm::eltwise_gelu_tanh);
    case Kind::kElu:
      return unary(algorithm::eltwise_elu, op.alpha);
    case Kind::kMish:
      return unary(algorithm::eltwise_mish);
    case Kind::kExp:
      return unary(algorithm::eltwise_exp);
    case Kind::kSqrt:
      return unary(algorithm::eltwise_sqrt);
    case Kind::kAbs:
      return unary(algorithm::eltwise_abs);
    case Kind::kSquare:
      return unary(algorithm::eltwise_square);
    case Kind::kLinear:
      return unary(algorithm::eltwise_linear, op.alpha, op.beta);
    case Kind::kPow:
      return unary(algorithm::eltwise_pow, op.alpha, op.beta);
    case Kind::kRound:
      return unary(algorithm::eltwise_round);
  }
}

DnnlImplementation implementation_of(const dnnl::primitive_desc_base& pd) {
  const std::string_view name = pd.impl_info_str();
  return {name.find("ref") != name.npos, name.starts_with("br"), name.starts_with("brg"),
          name.find("gemm") != name.npos && !name.starts_with("br")};
}

}  // namespace sardonyx::host
