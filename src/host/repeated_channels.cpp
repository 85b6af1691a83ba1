// See repeated_channels.h.
#include "host/repeated_channels.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "host/parallel.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kMostRepeats = 8;     // the image is copied as often
constexpr std::int64_t kLeastCopied = 4096;  // elements per thread

class RepeatedChannels : public TileKernel {
 public:
  RepeatedChannels(std::shared_ptr<const TileKernel> inner, const ConvDesc& d)
      : inner_(std::move(inner)), repeats_(d.out_channels / d.groups), threads_(d.threads) {
    const std::int64_t pixels =
        std::accumulate(d.in.begin(), d.in.begin() + d.spatial, std::int64_t{1}, std::multiplies<>());
    // Each element is repeated with channels last, each plane with channels first.
    const bool last = d.layout == ImageLayout::kChannelsLast;
    length_ = last ? 1 : pixels;
    count_ = d.batch * d.in_channels * (last ? pixels : 1);
    image_ = (inner_->scratch_bytes() + 63) / 64 * 64;
  }

  std::size_t scratch_bytes() const override {
    return image_ + static_cast<std::size_t>(count_ * length_ * repeats_) * sizeof(float);
  }
  std::string name() const override { return inner_->name() + " of repeated channels"; }
  std::int64_t prefetches() const override { return inner_->prefetches(); }
  std::string weights_form() const override { return inner_->weights_form(); }
  std::shared_ptr<PackedWeights> pack(const void* weights) const override { return inner_->pack(weights); }

  void run(const TileArgs& args) const override {
    const auto* from = static_cast<const float*>(args.src);
    auto* to = reinterpret_cast<float*>(static_cast<char*>(args.scratch) + image_);
    parallel_for(count_, std::max<std::int64_t>(1, kLeastCopied / length_), threads_,
                 [&](std::int64_t begin, std::int64_t end) { repeat(from, begin, end, to); });
    TileArgs wide = args;
    wide.src = to;
    inner_->run(wide);
  }

 private:
  void repeat(const float* from, std::int64_t begin, std::int64_t end, float* to) const {
    if (length_ == 1 && repeats_ == 2) {  // vectorises
      for (std::int64_t k = begin; k < end; ++k) to[2 * k] = to[2 * k + 1] = from[k];
      return;
    }
    for (std::int64_t k = begin; k < end; ++k)
      for (std::int64_t r = 0; r < repeats_; ++r)
        std::copy_n(from + k * length_, length_, to + (k * repeats_ + r) * length_);
  }

  std::shared_ptr<const TileKernel> inner_;
  std::int64_t repeats_, length_, count_;
  int threads_;
  std::size_t image_;  ///< offset in scratch
};

}  // namespace

bool repeats_channels(const ConvDesc& d) {
  const std::int64_t repeats = d.out_channels / d.groups;
  return !d.transposed && d.groups > 1 && d.in_channels == d.groups && repeats > 1 && repeats <= kMostRepeats &&
         d.src == DType::kFloat32 && d.weights == DType::kFloat32;
}

ConvDesc with_repeated_channels(const ConvDesc& d) {
  ConvDesc wide = d;
  wide.in_channels = wide.groups = d.out_channels;
  return wide;
}

std::shared_ptr<const TileKernel> make_repeated_channels(std::shared_ptr<const TileKernel> inner, const ConvDesc& d) {
  return std::make_shared<RepeatedChannels>(std::move(inner), d);
}

}  // namespace sardonyx::host
