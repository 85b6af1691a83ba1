#include "program/launch.h"

namespace sardonyx {

std::uint64_t divisor_argument(std::int64_t n) {
  if (n < 1) n = 1;
  unsigned shift = 0;
  while (shift < 31 && (std::int64_t{1} << shift) < n) ++shift;
  const auto d = static_cast<std::uint64_t>(n);
  const std::uint64_t multiplier = ((std::uint64_t{1} << (31 + shift)) + d - 1) / d;
  return std::uint64_t{shift} << 32 | (multiplier & 0xffffffffU);
}

}  // namespace sardonyx
