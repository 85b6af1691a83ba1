// Convolution and transposed convolution through oneDNN.
#include "host/dnnl_conv.h"

#include <numeric>

#include "host/dnnl_common.h"
#include "host/parallel.h"

namespace sardonyx::host {
namespace {

using dnnl::memory;

/// oneDNN's axis order is [N, C, spatial...] whatever the memory's: the image's extents in that order with strides of
/// `layout`.
memory::desc image(std::int64_t n, std::int64_t c, const ConvDesc::Extents& spatial, int rank, ImageLayout layout,
                   DType type) {
  Dims dims{n, c};
  dims.insert(dims.end(), spatial.begin(), spatial.begin() + rank);
  if (layout == ImageLayout::kChannelsFirst) return {dims, dnnl_type(type), dense_strides(dims)};
  Dims stored{n};
  stored.insert(stored.end(), spatial.begin(), spatial.begin() + rank);
  stored.push_back(c);
  const Dims s = dense_strides(stored);
  Dims strides{s.front(), s.back()};
  strides.insert(strides.end(), s.begin() + 1, s.end() - 1);
  return {dims, dnnl_type(type), strides};
}

/// Weights as ONNX stores them, in oneDNN's axis order ([groups,] out, in, kernel...).
memory::desc onnx_weights(const ConvDesc& d) {
  const std::int64_t in = d.in_channels / d.groups, out = d.out_channels / d.groups;
  Dims stored{d.groups, d.transposed ? in : out, d.transposed ? out : in};
  stored.insert(stored.end(), d.kernel.begin(), d.kernel.begin() + d.spatial);
  Dims strides = dense_strides(stored);
  if (d.transposed) {
    std::swap(stored[1], stored[2]);
    std::swap(strides[1], strides[2]);
  }
  if (d.groups == 1) {
    stored.erase(stored.begin());
    strides.erase(strides.begin());
  }
  return {stored, dnnl_type(d.weights), strides};
}

}  // namespace

std::shared_ptr<const TileKernel> make_dnnl_convolution(const ConvDesc& d, std::string& why) {
  ThreadLimit limit(d.threads);
  const auto first = [&](const ConvDesc::Extents& e) { return Dims(e.begin(), e.begin() + d.spatial); };
  const memory::desc src = image(d.batch, d.in_channels, d.in, d.spatial, d.layout, d.src);
  const memory::desc dst = image(d.batch, d.out_channels, d.out, d.spatial, d.layout, d.dst);
  const memory::desc plain = onnx_weights(d);
  const memory::desc weights(plain.get_dims(), plain.get_data_type(), memory::format_tag::any);
  memory::desc bias;
  if (d.bias) bias = memory::desc({d.out_channels}, memory::data_type::f32, memory::format_tag::a);
  Dims dilation = first(d.dilation), pad_end = first(d.pad_end);
  for (std::int64_t& x : dilation) --x;  // oneDNN counts the gaps
  if (d.transposed) {
    // oneDNN wants the padding that makes the formula exact; what ONNX calls output_padding is less of it.
    for (int i = 0; i < d.spatial; ++i) {
      pad_end[i] = (d.in[i] - 1) * d.stride[i] + (d.kernel[i] - 1) * d.dilation[i] + 1 - d.pad_begin[i] - d.out[i];
    }
  }

  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  std::vector<memory::desc> operands;
  std::vector<int> operand_args;
  for (std::size_t i = 0; i < d.post.size(); ++i) {
    const PostOp& op = d.post[i];
    memory::desc operand;
    if (op.has_operand()) {
      const bool last = d.layout == ImageLayout::kChannelsLast;
      ConvDesc::Extents spatial{};
      for (int k = 0; k < d.spatial; ++k) spatial[k] = op.dims[k + (last ? 1 : 2)];
      operand = image(op.dims[0], last ? op.dims.back() : op.dims[1], spatial, d.spatial, d.layout, op.dtype);
      operands.push_back(operand);
      operand_args.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
    append_post_op(post, op, operand);
  }
  attr.set_post_ops(post);

  const auto finish = [&](const dnnl::primitive_desc& pd, const dnnl::primitive& primitive) {
    DnnlKernel::Spec spec = spec_of(pd, primitive);
    spec.plain_weights = plain;
    spec.weights_constant = d.weights_constant;
    spec.operands = std::move(operands);
    spec.operand_args = std::move(operand_args);
    spec.threads = d.threads;
    return std::make_shared<DnnlKernel>(std::move(spec));
  };
  const auto kind = dnnl::prop_kind::forward_inference;
  if (d.transposed) {
    dnnl::deconvolution_forward::primitive_desc pd(cpu_engine(), kind, dnnl::algorithm::deconvolution_direct, src,
                                                   weights, bias, dst, first(d.stride), dilation, first(d.pad_begin),
                                                   pad_end, attr, true);
    if (pd.get(true) && is_optimised(pd)) return finish(pd, dnnl::deconvolution_forward(pd));
  } else {
    dnnl::convolution_forward::primitive_desc pd(cpu_engine(), kind, dnnl::algorithm::convolution_direct, src, weights,
                                                 bias, dst, first(d.stride), dilation, first(d.pad_begin), pad_end,
                                                 attr, true);
    if (pd.get(true) && is_optimised(pd)) return finish(pd, dnnl::convolution_forward(pd));
  }
  why = "oneDNN has no optimised convolution for these types, layouts and this epilogue on this CPU";
  return nullptr;
}

}  // namespace sardonyx::host
