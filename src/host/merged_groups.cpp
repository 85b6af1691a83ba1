// Merged groups: blocks of weights on a diagonal, zeros around them.
#include "host/merged_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "host/buffer.h"
#include "host/simd.h"

namespace sardonyx::host {
namespace {

std::int64_t lanes() {
  switch (vector_level()) {
    case VectorLevel::kAvx512:
      return 16;
    case VectorLevel::kAvx2:
      return 8;
    case VectorLevel::kBaseline:
      return 1;
  }
  return 1;
}

class MergedGroups : public TileKernel {
 public:
  MergedGroups(std::shared_ptr<const TileKernel> inner, const ConvDesc& d, std::int64_t merged)
      : inner_(std::move(inner)), merged_(merged), rows_(d.out_channels), rows_per_group_(d.out_channels / d.groups) {
    const std::int64_t taps =
        std::accumulate(d.kernel.begin(), d.kernel.begin() + d.spatial, std::int64_t{1}, std::multiplies<>());
    row_bytes_ = static_cast<std::size_t>(d.in_channels / d.groups * taps) * size_of(d.weights);
  }

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return fmt::format("{}, {} groups as one", inner_->name(), merged_); }
  bool has_fast_halves() const override { return inner_->has_fast_halves(); }
  std::int64_t prefetches() const override { return inner_->prefetches(); }
  std::string weights_form() const override { return fmt::format("{} groups as one", merged_); }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    const auto expand = [merged = merged_, rows = rows_, per_group = rows_per_group_,
                         bytes = row_bytes_](const void* original) {
      auto wide = std::make_shared<Buffer>(static_cast<std::size_t>(rows * merged) * bytes);
      auto* to = static_cast<char*>(wide->data());
      std::memset(to, 0, wide->bytes());
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto place = static_cast<std::size_t>(row * merged + row / per_group % merged);
        std::memcpy(to + place * bytes, static_cast<const char*>(original) + static_cast<std::size_t>(row) * bytes,
                    bytes);
      }
      return std::shared_ptr<const Buffer>(std::move(wide));
    };
    auto packed = inner_->pack(expand(weights)->data());
    packed->convert_by(expand);
    return packed;
  }

  void run(const TileArgs& args) const override { inner_->run(args); }

 private:
  std::shared_ptr<const TileKernel> inner_;
  std::int64_t merged_;
  std::int64_t rows_, rows_per_group_;  ///< output channels
  std::size_t row_bytes_;               ///< weights of an output channel
};

}  // namespace

std::int64_t merged_groups(const ConvDesc& d) {
  if (!d.weights_constant || d.transposed || d.groups == 1) return 1;
  const std::int64_t in = d.in_channels / d.groups, out = d.out_channels / d.groups, most = lanes();
  // Other widths than divisors of a vector's would not fill whole vectors either.
  if ((in == 1 && out == 1) || most % in != 0 || most % out != 0) return 1;
  return std::gcd(d.groups, most / std::max(in, out));
}

ConvDesc with_merged_groups(const ConvDesc& d, std::int64_t merged) {
  ConvDesc m = d;
  m.groups /= merged;
  return m;
}

std::shared_ptr<const TileKernel> make_merged_groups(std::shared_ptr<const TileKernel> inner, const ConvDesc& d,
                                                     std::int64_t merged) {
  return std::make_shared<MergedGroups>(std::move(inner), d, merged);
}

}  // namespace sardonyx::host
