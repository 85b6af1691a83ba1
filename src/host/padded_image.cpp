// See padded_image.h.
#include "host/padded_image.h"

#include <algorithm>

#include "host/parallel.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kLeastCopied = 4096;  // elements per thread

class PaddedImage : public TileKernel {
 public:
  PaddedImage(std::shared_ptr<const TileKernel> inner, const ConvDesc& d)
      : inner_(std::move(inner)),
        d_(d),
        height_(with_padded_image(d).in[0]),
        row_(with_padded_image(d).in[1] * d.in_channels),
        image_((inner_->scratch_bytes() + 63) / 64 * 64) {}

  std::size_t scratch_bytes() const override {
    return image_ + static_cast<std::size_t>(d_.batch * height_ * row_) * sizeof(float);
  }
  std::string name() const override { return inner_->name() + " of a padded image"; }
  std::int64_t prefetches() const override { return inner_->prefetches(); }
  std::string weights_form() const override { return inner_->weights_form(); }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override { return inner_->pack(weights); }

  void run(const TileArgs& args) const override {
    auto* to = reinterpret_cast<float*>(static_cast<char*>(args.scratch) + image_);
    parallel_for(d_.batch * height_, std::max<std::int64_t>(1, kLeastCopied / row_), d_.threads,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t line = begin; line < end; ++line)
                     copy_line(static_cast<const float*>(args.src), line, to + line * row_);
                 });
    TileArgs padded = args;
    padded.src = to;
    inner_->run(padded);
  }

 private:
  void copy_line(const float* image, std::int64_t line, float* to) const {
    const std::int64_t y = line % height_ - d_.pad_begin[0], length = d_.in[1] * d_.in_channels;
    if (y < 0 || y >= d_.in[0]) {
      std::fill_n(to, row_, 0.f);
      return;
    }
    float* const left = std::fill_n(to, d_.pad_begin[1] * d_.in_channels, 0.f);
    std::copy_n(image + (line / height_ * d_.in[0] + y) * length, length, left);
    std::fill(left + length, to + row_, 0.f);
  }

  std::shared_ptr<const TileKernel> inner_;
  ConvDesc d_;
  std::int64_t height_, row_;  ///< of the padded image: lines, elements of a line
  std::size_t image_;          ///< offset in scratch
};

}  // namespace

ConvDesc with_padded_image(const ConvDesc& d) {
  ConvDesc padded = d;
  for (std::size_t i = 0; i < 2; ++i) padded.in[i] += d.pad_begin[i] + d.pad_end[i];
  padded.pad_begin = padded.pad_end = {};
  return padded;
}

std::shared_ptr<const TileKernel> make_padded_image(std::shared_ptr<const TileKernel> inner, const ConvDesc& d) {
  return std::make_shared<PaddedImage>(std::move(inner), d);
}

}  // namespace sardonyx::host
