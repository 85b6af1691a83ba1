// See whole_rows.h.
#include "host/whole_rows.h"

#include "host/buffer.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kMostChannels = 8;  // more fill vectors

class WholeRows : public TileKernel {
 public:
  WholeRows(std::shared_ptr<const TileKernel> inner, const ConvDesc& d) : inner_(std::move(inner)), d_(d) {}

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return inner_->name() + ", rows as channels"; }
  std::int64_t prefetches() const override { return inner_->prefetches(); }
  std::string weights_form() const override { return "rows as channels"; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    const auto reorder = [d = d_](const void* original) {
      return channels_last(d, static_cast<const float*>(original));
    };
    auto packed = inner_->pack(reorder(weights)->data());
    packed->convert_by(reorder);
    return packed;
  }

  void run(const TileArgs& args) const override { inner_->run(args); }

 private:
  /// [out channel][pixel of a row][channel][row] from [out channel][channel][row][pixel].
  static std::shared_ptr<const Buffer> channels_last(const ConvDesc& d, const float* from) {
    const std::int64_t channels = d.in_channels, rows = d.kernel[0], width = d.kernel[1];
    auto buffer =
        std::make_shared<Buffer>(static_cast<std::size_t>(d.out_channels * channels * rows * width) * sizeof(float));
    auto* to = static_cast<float*>(buffer->data());
    for (std::int64_t out = 0; out < d.out_channels; ++out, from += channels * rows * width)
      for (std::int64_t x = 0; x < width; ++x)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t y = 0; y < rows; ++y) *to++ = from[(c * rows + y) * width + x];
    return buffer;
  }

  std::shared_ptr<const TileKernel> inner_;
  ConvDesc d_;
};

}  // namespace

bool spans_rows(const ConvDesc& d) {
  return d.spatial == 2 && d.weights_constant && !d.transposed && d.groups == 1 &&
         d.layout == ImageLayout::kChannelsLast && d.src == DType::kFloat32 && d.weights == DType::kFloat32 &&
         d.in_channels <= kMostChannels && d.in[1] > 1 && d.kernel[1] == d.in[1] && d.pad_begin[1] == 0 &&
         d.pad_end[1] == 0 && d.dilation[1] == 1;
}

ConvDesc with_rows_as_channels(const ConvDesc& d) {
  ConvDesc rows = d;
  rows.in_channels *= d.in[1];
  rows.in[1] = rows.kernel[1] = rows.stride[1] = 1;
  return rows;
}

std::shared_ptr<const TileKernel> make_rows_as_channels(std::shared_ptr<const TileKernel> inner, const ConvDesc& d) {
  return std::make_shared<WholeRows>(std::move(inner), d);
}

}  // namespace sardonyx::host
