// C++ types of tensor elements, for routines that compare or add them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::routines {

/// bfloat16 storage; arithmetic is in float.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  BFloat16(float f) {  // NOLINT: converts like a built-in type
    std::uint32_t u;
    std::memcpy(&u, &f, 4);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>(nan ? u >> 16 | 0x40U : (u + 0x7fffU + (u >> 16 & 1U)) >> 16);
  }
  operator float() const {  // NOLINT: converts like a built-in type
    const std::uint32_t u = static_cast<std::uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};

using Float16 = _Float16;

/// The type in which arithmetic on T is done.
template <typename T>
struct ComputeOf {
  using Type = T;
};
template <>
struct ComputeOf<Float16> {
  using Type = float;
};
template <>
struct ComputeOf<BFloat16> {
  using Type = float;
};
template <typename T>
using compute_of = typename ComputeOf<T>::Type;

/// Calls f(T{}) with the C++ type of an arithmetic dtype; bool is a byte. Throws Error(kUnsupported), naming `what`,
/// for other dtypes.
template <typename F>
void dispatch(DType t, const char* what, F&& f) {
  switch (t) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kUInt4:
    case DType::kUInt2:
      return f(std::uint8_t{});
    case DType::kInt8:
    case DType::kInt4:
    case DType::kInt2:
      return f(std::int8_t{});
    case DType::kInt16:
      return f(std::int16_t{});
    case DType::kUInt16:
      return f(std::uint16_t{});
    case DType::kInt32:
      return f(std::int32_t{});
    case DType::kUInt32:
      return f(std::uint32_t{});
    case DType::kInt64:
      return f(std::int64_t{});
    case DType::kUInt64:
      return f(std::uint64_t{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat16:
      return f(Float16{});
    case DType::kBFloat16:
      return f(BFloat16{});
    default:
      fail(ErrorKind::kUnsupported, "{} of {} elements", what, name(t));
  }
}

template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(static_cast<compute_of<T>>(x));
}

/// A total order of elements: <, with NaN greater than everything and equal to itself.
template <typename T>
bool before(T a, T b) {
  return static_cast<compute_of<T>>(a) < static_cast<compute_of<T>>(b) || (is_nan(b) && !is_nan(a));
}

}  // namespace sardonyx::routines
