// Convolution and transposed convolution through oneDNN.
#include "host/dnnl_conv.h"

#include <algorithm>
#include <numeric>

#include "host/dnnl_common.h"
#include "host/dnnl_epilogue.h"
#include "host/padded_image.h"
#include "host/parallel.h"

namespace sardonyx::host {
namespace {

using dnnl::memory;

/// An image in oneDNN's logical axis order, [N, C, spatial...], with the strides of `layout`.
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

/// Weights as ONNX stores them, in oneDNN's logical axis order: ([groups,] out, in, kernel...).
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

bool has_stride(const ConvDesc& d) {
  return std::any_of(d.stride.begin(), d.stride.begin() + d.spatial, [](std::int64_t s) { return s > 1; });
}

/// Goes on to the next implementation that is not one of batch-reduce GEMMs. With strides those give wrong results for
/// some sizes: 512 channels with a filter of 4 x 4 and stride 2 with AVX-512, 64 channels with 16 x 16 and stride 4
/// with AVX2 too (oneDNN 3.2.0).
void skip_brgemm(dnnl::deconvolution_forward::primitive_desc& pd) {
  while (pd.get(true) && implementation_of(pd).brgemm)
    if (!pd.next_impl()) return pd.reset(nullptr);
}

/// `gemm`: whether the kernel copies the image to a matrix of its taps.
std::shared_ptr<const TileKernel> find_kernel(const ConvDesc& d, std::string& why, bool reference, bool& gemm) {
  const auto first = [&](const ConvDesc::Extents& e) { return Dims(e.begin(), e.begin() + d.spatial); };
  const memory::desc src = image(d.batch, d.in_channels, d.in, d.spatial, d.layout, d.src);
  const memory::desc dst = image(d.batch, d.out_channels, d.out, d.spatial, d.layout, d.dst);
  const memory::desc plain = onnx_weights(d);
  const memory::desc weights(plain.get_dims(), plain.get_data_type(), memory::format_tag::any);
  memory::desc bias;
  if (d.bias) bias = memory::desc({d.out_channels}, memory::data_type::f32, memory::format_tag::a);
  Dims dilation = first(d.dilation), pad_end = first(d.pad_end);
  for (std::int64_t& x : dilation) --x;  // oneDNN counts the elements skipped
  if (d.transposed) {
    // oneDNN derives the output's size from the padding. ONNX's output_padding reduces the padding at the end.
    for (int i = 0; i < d.spatial; ++i) {
      pad_end[i] = (d.in[i] - 1) * d.stride[i] + (d.kernel[i] - 1) * d.dilation[i] + 1 - d.pad_begin[i] - d.out[i];
    }
  }

  std::vector<memory::desc> operands;
  for (const PostOp& op : d.post) {
    if (!op.has_operand()) continue;
    const bool last = d.layout == ImageLayout::kChannelsLast;
    ConvDesc::Extents spatial{};
    for (int k = 0; k < d.spatial; ++k) spatial[k] = op.dims[k + (last ? 1 : 2)];
    operands.push_back(image(op.dims[0], last ? op.dims.back() : op.dims[1], spatial, d.spatial, d.layout, op.dtype));
  }

  const auto make = [&](DnnlEpilogue epilogue) -> std::shared_ptr<const DnnlKernel> {
    const auto kind = dnnl::prop_kind::forward_inference;
    if (d.transposed) {
      dnnl::deconvolution_forward::primitive_desc pd(cpu_engine(), kind, dnnl::algorithm::deconvolution_direct, src,
                                                     weights, bias, dst, first(d.stride), dilation, first(d.pad_begin),
                                                     pad_end, epilogue.attr, true);
      if (has_stride(d)) skip_brgemm(pd);
      if (!pd.get(true) || (!reference && implementation_of(pd).reference)) return nullptr;
      const dnnl::deconvolution_forward primitive(pd);
      return make_dnnl_kernel(pd, primitive, plain, d.weights_constant, std::move(epilogue), d.threads);
    }
    const dnnl::convolution_forward::primitive_desc pd(cpu_engine(), kind, dnnl::algorithm::convolution_direct, src,
                                                       weights, bias, dst, first(d.stride), dilation,
                                                       first(d.pad_begin), pad_end, epilogue.attr, true);
    if (!pd.get(true) || (!reference && implementation_of(pd).reference)) return nullptr;
    const dnnl::convolution_forward primitive(pd);
    return make_dnnl_kernel(pd, primitive, plain, d.weights_constant, std::move(epilogue), d.threads);
  };

  if (auto fused = make(dnnl_epilogue(d.post, operands))) {
    gemm = fused->implementation().gemm;
    return fused;
  }
  bool half = d.src != DType::kFloat32 || d.weights != DType::kFloat32 || d.dst != DType::kFloat32;
  for (const PostOp& op : d.post) half |= op.has_operand() && op.dtype != DType::kFloat32;
  if (!half && !d.post.empty()) {
    if (auto bare = make(dnnl_epilogue({}, {}))) {
      gemm = bare->implementation().gemm;
      if (auto kernel = make_epilogue_kernel(bare, dst, d.post, operands, d.threads)) return kernel;
    }
  }
  why = "oneDNN has no optimised convolution for these types and this layout on this CPU";
  return nullptr;
}

bool can_pad_image(const ConvDesc& d) {
  const auto padded = [&](std::size_t i) { return d.pad_begin[i] > 0 || d.pad_end[i] > 0; };
  return d.spatial == 2 && !d.transposed && d.groups == 1 && d.layout == ImageLayout::kChannelsLast &&
         d.src == DType::kFloat32 && (padded(0) || padded(1));
}

}  // namespace

std::shared_ptr<const TileKernel> make_dnnl_convolution(const ConvDesc& d, std::string& why, bool reference) {
  return with_threads(d.threads, [&] {
    bool gemm = false;
    auto kernel = find_kernel(d, why, reference, gemm);
    // With few channels it does that if the padding is more than its direct kernels allow. Copying the image with its
    // padding instead takes half to four fifths of the time.
    if (!kernel || !gemm || !can_pad_image(d)) return kernel;
    auto padded = find_kernel(with_padded_image(d), why, false, gemm);
    return padded && !gemm ? make_padded_image(std::move(padded), d) : kernel;
  });
}

}  // namespace sardonyx::host
