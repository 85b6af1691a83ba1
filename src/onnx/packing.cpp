// See packing.h. Layout as in onnx-ml.proto's comment on raw_data.
#include "onnx/packing.h"

#include <cstdint>

namespace sardonyx::onnx {

bool is_packed(DType dtype) { return bits_of(dtype) < 8 && dtype != DType::kBool; }

std::size_t packed_size(DType dtype, std::size_t elements) {
  if (!is_packed(dtype)) return elements * size_of(dtype);
  const std::size_t per_byte = 8 / static_cast<std::size_t>(bits_of(dtype));
  return elements / per_byte + (elements % per_byte != 0);
}

void unpack(DType dtype, const std::byte* packed, std::size_t elements, std::byte* out) {
  const unsigned bits = static_cast<unsigned>(bits_of(dtype));
  const unsigned per_byte = 8 / bits, mask = (1u << bits) - 1;
  const bool extend = is_integer(dtype) && is_signed(dtype);
  std::byte table[256][4];
  for (unsigned b = 0; b < 256; ++b)
    for (unsigned k = 0; k < per_byte; ++k) {
      unsigned v = b >> (k * bits) & mask;
      if (extend && (v >> (bits - 1)) != 0) v |= 0xFFu & ~mask;
      table[b][k] = static_cast<std::byte>(v);
    }
  for (std::size_t i = 0; i < elements; ++i)
    out[i] = table[static_cast<std::uint8_t>(packed[i / per_byte])][i % per_byte];
}

void pack(DType dtype, const std::byte* elements, std::size_t count, std::byte* out) {
  const unsigned bits = static_cast<unsigned>(bits_of(dtype));
  const unsigned per_byte = 8 / bits, mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < packed_size(dtype, count); ++i) out[i] = std::byte{0};
  for (std::size_t i = 0; i < count; ++i)
    out[i / per_byte] |= static_cast<std::byte>((static_cast<unsigned>(elements[i]) & mask) << (i % per_byte * bits));
}

}  // namespace sardonyx::onnx
