// find_convolution: the cache of kernels, and adaptations around oneDNN's.
#include "host/conv.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "host/depthwise.h"
#include "host/desc_key.h"
#include "host/dnnl_conv.h"
#include "host/float32_kernel.h"
#include "host/lru_cache.h"
#include "host/merged_groups.h"
#include "host/panel_conv.h"
#include "host/repeated_channels.h"
#include "host/transposed_columns.h"
#include "host/transposed_phases.h"
#include "host/whole_rows.h"
#include "host/winograd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

/// Enough for several models at several sizes; a kernel is some tens of kilobytes of code.
constexpr std::size_t kCachedKernels = 512;

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

std::int64_t volume(const ConvDesc& d, const ConvDesc::Extents& e) {
  return std::accumulate(e.begin(), e.begin() + d.spatial, std::int64_t{1}, std::multiplies<>());
}

/// Checks the relations between extents that ONNX requires.
void check_extents(const ConvDesc& d) {
  check(d.spatial >= 1 && d.spatial <= 3, "convolution over {} axes", d.spatial);
  check(d.groups > 0 && d.in_channels % d.groups == 0 && d.out_channels % d.groups == 0,
        "convolution of {} to {} channels in {} groups", d.in_channels, d.out_channels, d.groups);
  for (int i = 0; i < d.spatial; ++i) {
    check(d.kernel[i] > 0 && d.stride[i] > 0 && d.dilation[i] > 0, "convolution's kernel, stride or dilation of 0");
    check(d.pad_begin[i] >= 0 && d.pad_end[i] >= 0, "convolution with padding below 0");
    const std::int64_t reach = (d.kernel[i] - 1) * d.dilation[i] + 1;
    if (d.transposed) {
      const std::int64_t full = (d.in[i] - 1) * d.stride[i] + reach - d.pad_begin[i] - d.pad_end[i];
      check(d.out[i] >= full && d.out[i] < full + std::max(d.stride[i], d.dilation[i]),
            "transposed convolution of {} gives {} along axis {}", d.in[i], d.out[i], i);
    } else {
      const std::int64_t padded = d.in[i] + d.pad_begin[i] + d.pad_end[i];
      check(padded < reach ? d.out[i] == 0 : d.out[i] == (padded - reach) / d.stride[i] + 1,
            "convolution of {} gives {} along axis {}", d.in[i], d.out[i], i);
    }
  }
  const bool last = d.layout == ImageLayout::kChannelsLast;
  for (const PostOp& op : d.post) {
    if (!op.has_operand()) continue;
    check(op.dims.size() == static_cast<std::size_t>(d.spatial) + 2, "a convolution's operand of rank {}",
          op.dims.size());
    for (int i = 0; i < d.spatial + 2; ++i) {
      const int spatial_axis = last ? i - 1 : i - 2;
      const bool channels = last ? i == d.spatial + 1 : i == 1;
      const std::int64_t extent = i == 0 ? d.batch : channels ? d.out_channels : d.out[spatial_axis];
      check(op.dims[i] == 1 || op.dims[i] == extent, "a convolution's operand has {} for {} along axis {}", op.dims[i],
            extent, i);
    }
  }
}

std::string key_of(const ConvDesc& d) {
  DescKey key;
  for (std::int64_t x : {d.batch, d.in_channels, d.out_channels, d.groups, std::int64_t{d.threads}}) key.add(x);
  for (const auto* e : {&d.in, &d.out, &d.kernel, &d.stride, &d.dilation, &d.pad_begin, &d.pad_end}) {
    for (int i = 0; i < d.spatial; ++i) key.add((*e)[i]);
  }
  key.add(d.spatial | d.transposed << 2 | static_cast<int>(d.layout) << 3 | d.bias << 5 | d.weights_constant << 6 |
          d.exact << 7 | static_cast<int>(d.src) << 8 | static_cast<int>(d.weights) << 16 |
          static_cast<int>(d.dst) << 24);
  for (const PostOp& op : d.post) {
    key.add(op);
    key.add(op.dims);
  }
  return key.bytes();
}

/// The same convolution with the image in the other layout, if both are the same bytes: one channel, or one pixel.
ConvDesc other_layout(const ConvDesc& d) {
  ConvDesc other = d;
  const bool last = d.layout == ImageLayout::kChannelsLast;
  other.layout = last ? ImageLayout::kChannelsFirst : ImageLayout::kChannelsLast;
  for (PostOp& op : other.post) {
    if (!op.has_operand()) continue;
    const auto spatial = op.dims.begin() + 1;
    std::rotate(spatial, last ? op.dims.end() - 1 : spatial + 1, op.dims.end());
  }
  return other;
}

/// A float32 convolution. oneDNN's reference code is the last resort: sizes that are known only at run time can no
/// longer be refused.
std::shared_ptr<const TileKernel> make_float32(const ConvDesc& d, std::string& why) {
  if (auto kernel = make_winograd(d)) return kernel;
  if (auto kernel = make_panel_convolution(d)) return kernel;
  if (auto kernel = make_depthwise(d)) return kernel;
  if (auto kernel = make_transposed_columns(d)) return kernel;
  if (auto kernel = make_transposed_phases(d)) return kernel;
  if (auto kernel = make_dnnl_convolution(d, why)) return kernel;
  const bool one_in = d.in_channels == 1 || volume(d, d.in) == 1,
             one_out = d.out_channels == 1 || volume(d, d.out) == 1;
  if (one_in && one_out) {
    if (auto kernel = make_dnnl_convolution(other_layout(d), why)) return kernel;
  }
  return make_dnnl_convolution(d, why, true);
}

std::shared_ptr<const TileKernel> make(const ConvDesc& desc, std::string& why) {
  bool any_half = is_half(desc.src) || is_half(desc.weights) || is_half(desc.dst);
  for (const PostOp& op : desc.post) any_half |= op.has_operand() && is_half(op.dtype);
  if (!any_half) return make_float32(desc, why);
  auto kernel = make_dnnl_convolution(desc, why);
  if (kernel && kernel->has_fast_halves()) return kernel;

  ConvDesc wide = desc;
  wide.src = wide.weights = wide.dst = DType::kFloat32;
  Float32KernelDesc around{
      {desc.src, desc.batch * desc.in_channels * volume(desc, desc.in)},
      {desc.weights, desc.out_channels * desc.in_channels / desc.groups * volume(desc, desc.kernel)},
      {desc.dst, desc.batch * desc.out_channels * volume(desc, desc.out)},
      {},
      desc.weights_constant,
      desc.threads};
  for (PostOp& op : wide.post) {
    if (!op.has_operand()) continue;
    around.operands.push_back(
        {op.dtype, std::accumulate(op.dims.begin(), op.dims.end(), std::int64_t{1}, std::multiplies<>())});
    op.dtype = DType::kFloat32;
  }
  auto inner = make_float32(wide, why);
  return inner ? make_float32_kernel(std::move(inner), std::move(around)) : nullptr;
}

/// A convolution over one axis as one over two, the first of extent 1, because oneDNN has depthwise kernels only for
/// 2-D.
ConvDesc with_height(const ConvDesc& d) {
  ConvDesc two = d;
  two.spatial = 2;
  for (auto* e : {&two.in, &two.out, &two.kernel, &two.stride, &two.dilation}) *e = {1, (*e)[0], 1};
  for (auto* e : {&two.pad_begin, &two.pad_end}) *e = {0, (*e)[0], 0};
  for (PostOp& op : two.post) {
    if (op.has_operand()) op.dims.insert(op.dims.begin() + (d.layout == ImageLayout::kChannelsLast ? 1 : 2), 1);
  }
  return two;
}

/// The last axis has one pixel and a trivial kernel.
bool is_column(const ConvDesc& d) {
  const int w = d.spatial - 1;
  return d.spatial >= 2 && d.in[w] == 1 && d.out[w] == 1 && d.kernel[w] == 1 && d.pad_begin[w] == 0 &&
         d.pad_end[w] == 0 && d.in[w - 1] > 1;
}

/// Exchanges the last two axes, one of which has extent 1, so memory does not change: oneDNN vectorises along the last
/// one.
ConvDesc turned(const ConvDesc& d) {
  ConvDesc t = d;
  const auto w = static_cast<std::size_t>(d.spatial - 1);
  for (auto* e : {&t.in, &t.out, &t.kernel, &t.stride, &t.dilation, &t.pad_begin, &t.pad_end})
    std::swap((*e)[w], (*e)[w - 1]);
  const std::size_t axis = w + (d.layout == ImageLayout::kChannelsLast ? 1 : 2);
  for (PostOp& op : t.post)
    if (op.has_operand()) std::swap(op.dims[axis], op.dims[axis - 1]);
  return t;
}

/// The kernel of `desc`, with channels repeated, narrow groups merged or rows as channels where that is faster.
std::shared_ptr<const TileKernel> make_adapted(const ConvDesc& desc, std::string& why) {
  if (spans_rows(desc)) {
    const ConvDesc rows = with_rows_as_channels(desc);
    if (auto inner = make(is_column(rows) ? turned(rows) : rows, why)) return make_rows_as_channels(inner, desc);
  }
  if (repeats_channels(desc)) {
    if (auto inner = make(with_repeated_channels(desc), why)) return make_repeated_channels(std::move(inner), desc);
  }
  const std::int64_t merged = merged_groups(desc);
  if (merged > 1) {
    if (auto inner = make(with_merged_groups(desc, merged), why))
      return make_merged_groups(std::move(inner), desc, merged);
  }
  return make(desc, why);
}

}  // namespace

std::shared_ptr<const TileKernel> find_convolution(const ConvDesc& desc, std::string& why) {
  for (DType t : {desc.src, desc.weights, desc.dst}) {
    if (t != DType::kFloat32 && !is_half(t)) {
      why = fmt::format("host convolution has no {} elements", name(t));
      return nullptr;
    }
  }
  check_extents(desc);
  if (desc.batch == 0 || desc.in_channels == 0 || desc.out_channels == 0 || volume(desc, desc.in) == 0 ||
      volume(desc, desc.out) == 0) {
    why = "the convolution is empty";
    return nullptr;
  }
  if (desc.spatial == 1) return find_convolution(with_height(desc), why);
  if (is_column(desc)) return find_convolution(turned(desc), why);
  static LruCache<TileKernel> cache(kCachedKernels);
  return cache.get(key_of(desc), [&] { return make_adapted(desc, why); });
}

}  // namespace sardonyx::host
