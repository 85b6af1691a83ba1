// WeightPrefetch: see weight_prefetch.h.
#include "runtime/weight_prefetch.h"

#include <algorithm>

namespace sardonyx {

std::span<const char> WeightPrefetch::take(int step, std::int64_t bytes) {
  const auto at = static_cast<std::size_t>(step);
  // Back to an earlier step: another run, or another iteration of a loop.
  if (at <= current_ || next_ <= at) next_ = at + 1, offset_ = 0;
  current_ = at;
  auto unused = static_cast<std::int64_t>(offset_);
  for (std::size_t k = at + 1; k < next_; ++k) unused += static_cast<std::int64_t>(weights_[k].size());
  std::int64_t left = std::min(bytes, kWindow - unused);
  std::span<const char> taken;
  while (left > 0 && next_ < weights_.size()) {
    const auto rest = weights_[next_].subspan(offset_);
    if (!taken.empty() && taken.data() + taken.size() != rest.data()) break;
    const auto count = std::min(rest.size(), static_cast<std::size_t>(left));
    taken = taken.empty() ? rest.first(count) : std::span<const char>(taken.data(), taken.size() + count);
    left -= static_cast<std::int64_t>(count);
    offset_ += count;
    if (offset_ < weights_[next_].size()) break;
    ++next_;
    offset_ = 0;
  }
  return taken;
}

}  // namespace sardonyx
