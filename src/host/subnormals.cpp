#include "host/subnormals.h"

#include <cstring>

#include "host/parallel.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kRange = 1 << 16;  // elements that a thread takes at least
constexpr std::int64_t kChunk = 1 << 12;  // elements that stay in the L1 cache between looking and writing
constexpr std::uint32_t kSign = 0x80000000, kExponent = 0x7f800000, kMantissa = 0x007fffff;

bool any_subnormal(const std::uint32_t* bits, std::int64_t count) {
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) any |= (bits[i] & kExponent) == 0 ? bits[i] & kMantissa : 0;
  return any != 0;
}

}  // namespace

void flush_subnormals(float* data, std::int64_t count) {
  parallel_for(count, kRange, threads_here(), [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t bits[kChunk];
    for (std::int64_t at = begin; at < end; at += kChunk) {
      const std::int64_t here = end - at < kChunk ? end - at : kChunk;
      std::memcpy(bits, data + at, static_cast<std::size_t>(here) * sizeof(float));
      if (!any_subnormal(bits, here)) continue;
      for (std::int64_t i = 0; i < here; ++i) bits[i] = (bits[i] & kExponent) == 0 ? bits[i] & kSign : bits[i];
      std::memcpy(data + at, bits, static_cast<std::size_t>(here) * sizeof(float));
    }
  });
}

}  // namespace sardonyx::host
