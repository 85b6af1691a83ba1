// See packing.h. Layout as in onnx-ml.proto's comment on raw_data.
#include "onnx/packing.h"

#include <cstdint>

namespace sardonyx::onnx {

bool is_packed(DType dtype) { return bits_of(dtype) < 8 && dtype != DType::kBool; }

std::size_t packed_size(DType dtype, std::size_t elements) {
  if (!is_packed(dtype)) return elements * size_of(dtype);
  const auto bits = static_cast<std::size_t>(bits_of(dtype));
  return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
}

void unpack(DType dtype, const std::byte* packed, std::size_t elements, std::byte* out) {
  const auto bits = static_cast<unsigned>(bits_of(dtype));
  const unsigned mask = (1u << bits) - 1;
  const bool extend = is_integer(dtype) && is_signed(dtype);
  std::byte table[256];  // in memory, of each code
  for (unsigned v = 0; v < 256; ++v)
    table[v] = static_cast<std::byte>(extend && (v >> (bits - 1) & 1) != 0 ? v | (0xFFu & ~mask) : v);
  unsigned held = 0, left = 0;  // bits that were read, and their number
  for (std::size_t i = 0; i < elements; ++i) {
    if (left < bits) {
      held |= static_cast<unsigned>(*packed++) << left;
      left += 8;
    }
    out[i] = table[held & mask];
    held >>= bits;
    left -= bits;
  }
}

void pack(DType dtype, const std::byte* elements, std::size_t count, std::byte* out) {
  const auto bits = static_cast<unsigned>(bits_of(dtype));
  const unsigned mask = (1u << bits) - 1;
  unsigned held = 0, filled = 0;  // bits that are not written yet, and their number
  for (std::size_t i = 0; i < count; ++i) {
    held |= (static_cast<unsigned>(elements[i]) & mask) << filled;
    filled += bits;
    if (filled < 8) continue;
    *out++ = static_cast<std::byte>(held);
    held >>= 8;
    filled -= 8;
  }
  if (filled > 0) *out = static_cast<std::byte>(held);
}

}  // namespace sardonyx::onnx
