// Conversions of half types, on the vector kernels of simd.h.
#include "host/convert.h"

#include <cstring>

#include "host/parallel.h"
#include "host/simd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {
constexpr std::int64_t kGrain = 32768;  // elements worth a thread: some microseconds
}

void to_float32(DType type, const void* in, float* out, std::int64_t count, int threads) {
  parallel_for(count, kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    const auto* half = static_cast<const std::uint16_t*>(in) + begin;
    switch (type) {
      case DType::kFloat16:
        return simd().float16_to_float32(half, out + begin, end - begin);
      case DType::kBFloat16:
        return simd().bfloat16_to_float32(half, out + begin, end - begin);
      case DType::kFloat32:
        std::memcpy(out + begin, static_cast<const float*>(in) + begin,
                    sizeof(float) * static_cast<std::size_t>(end - begin));
        return;
      default:
        fail(ErrorKind::kInternal, "internal error: no conversion from {} to float32", name(type));
    }
  });
}

void from_float32(DType type, const float* in, void* out, std::int64_t count, int threads) {
  parallel_for(count, kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    auto* half = static_cast<std::uint16_t*>(out) + begin;
    switch (type) {
      case DType::kFloat16:
        return simd().float32_to_float16(in + begin, half, end - begin);
      case DType::kBFloat16:
        return simd().float32_to_bfloat16(in + begin, half, end - begin);
      case DType::kFloat32:
        std::memcpy(static_cast<float*>(out) + begin, in + begin,
                    sizeof(float) * static_cast<std::size_t>(end - begin));
        return;
      default:
        fail(ErrorKind::kInternal, "internal error: no conversion from float32 to {}", name(type));
    }
  });
}

}  // namespace sardonyx::host
