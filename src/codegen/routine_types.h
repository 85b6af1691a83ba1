// The kernels' types of the elements that routines process, and sizes.
#pragma once
#include <algorithm>

#include "codegen/emit.h"

namespace sardonyx::codegen {

/// Of elements that are compared or added; null for types for which there are no such routines.
inline const char* element(DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kUInt4:
    case DType::kUInt2:
      return "u8";
    case DType::kInt4:
    case DType::kInt2:
      return "i8";
    default:
      return size_of(t) > 1 || !is_float(t) ? storage_name(t) : nullptr;
  }
}

/// The unsigned integer of this size, for elements that are only moved.
inline const char* bits(DType t) {
  switch (size_of(t)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    default:
      return "u64";
  }
}

/// The least multiple of `to` that is at least x, and at least one.
inline std::int64_t round_up(std::int64_t x, std::int64_t to) {
  return std::max<std::int64_t>(1, (x + to - 1) / to) * to;
}

}  // namespace sardonyx::codegen
