// Sub-byte elements: several per byte in files, one per byte in memory.
#pragma once
#include <cstddef>

#include "support/dtype.h"

namespace sardonyx::onnx {

/// Bytes that `elements` elements take in a file (raw_data or external data).
std::size_t packed_size(DType dtype, std::size_t elements);
/// True for types whose file layout differs from memory's.
bool is_packed(DType dtype);
/// One element per byte from packed bytes, lowest bits first; signed types are sign-extended.
void unpack(DType dtype, const std::byte* packed, std::size_t elements, std::byte* out);
/// The inverse; unused high bits of the last byte are 0.
void pack(DType dtype, const std::byte* elements, std::size_t count, std::byte* out);

}  // namespace sardonyx::onnx
