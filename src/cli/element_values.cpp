#include "cli/element_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/error.h"

namespace sardonyx::cli {
namespace {

int bits_of(const FloatFormat& f) { return 1 + f.exponent_bits + f.mantissa_bits; }
unsigned magnitude_mask(const FloatFormat& f) { return (1u << (bits_of(f) - 1)) - 1; }
/// The code of the largest finite magnitude.
unsigned largest(const FloatFormat& f) {
  if (f.special == FloatFormat::kIeee) return (((1u << f.exponent_bits) - 1) << f.mantissa_bits) - 1;
  return f.special == FloatFormat::kFn ? magnitude_mask(f) - 1 : magnitude_mask(f);
}

template <typename T>
T at(const void* data, std::int64_t k) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + k * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return v;
}

template <typename T>
void put(void* data, std::int64_t k, T v) {
  std::memcpy(static_cast<char*>(data) + k * static_cast<std::int64_t>(sizeof(T)), &v, sizeof(T));
}

template <typename T>
void put_integer(void* data, std::int64_t k, double v, double low, double high) {
  if (std::isnan(v)) v = 0;
  v = std::nearbyint(std::clamp(v, low, high));
  // The largest 64-bit integers are not representable as doubles: 2^63 and 2^64 stand for them.
  if (sizeof(T) == 8 && v >= high) return put<T>(data, k, std::numeric_limits<T>::max());
  put<T>(data, k, static_cast<T>(v));
}

unsigned code_at(const FloatFormat& f, const void* data, std::int64_t k) {
  return bits_of(f) == 16 ? at<std::uint16_t>(data, k) : at<std::uint8_t>(data, k);
}

double decode_small(const FloatFormat& f, unsigned code) {
  const bool negative = code >> (bits_of(f) - 1) & 1;
  const unsigned m = code & magnitude_mask(f);
  if (f.special == FloatFormat::kFnuz && negative && m == 0) return std::nan("");
  if ((f.special == FloatFormat::kIeee || f.special == FloatFormat::kFn) && m > largest(f))
    return f.special == FloatFormat::kIeee && m == largest(f) + 1 ? (negative ? -INFINITY : INFINITY) : std::nan("");
  const int e = static_cast<int>(m >> f.mantissa_bits);
  const unsigned fraction = m & ((1u << f.mantissa_bits) - 1);
  const double v = e ? std::ldexp(static_cast<double>(fraction | 1u << f.mantissa_bits), e - f.bias - f.mantissa_bits)
                     : std::ldexp(static_cast<double>(fraction), 1 - f.bias - f.mantissa_bits);
  return negative ? -v : v;
}

unsigned encode_small(const FloatFormat& f, double v) {
  const unsigned sign = 1u << (bits_of(f) - 1);
  if (std::isnan(v))
    return f.special == FloatFormat::kFnuz ? sign : f.special == FloatFormat::kFinite ? 0 : magnitude_mask(f);
  const bool negative = std::signbit(v);
  const double a = std::min(std::fabs(v), decode_small(f, largest(f)));
  // Codes are ordered by magnitude, so bisection finds the two neighbours.
  unsigned low = 0, high = largest(f);
  while (low < high) {
    const unsigned middle = (low + high + 1) / 2;
    if (decode_small(f, middle) <= a)
      low = middle;
    else
      high = middle - 1;
  }
  if (low < largest(f)) {
    const double below = a - decode_small(f, low), above = decode_small(f, low + 1) - a;
    if (above < below || (above == below && (low & 1))) ++low;
  }
  if (f.special == FloatFormat::kFnuz && low == 0) return 0;
  return low | (negative ? sign : 0);
}

}  // namespace

DType part_type(DType t) {
  return t == DType::kComplex64 ? DType::kFloat32 : t == DType::kComplex128 ? DType::kFloat64 : t;
}

double decode(DType t, const void* data, std::int64_t k) {
  t = part_type(t);
  if (const FloatFormat* f = float_format(t)) return decode_small(*f, code_at(*f, data, k));
  switch (t) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kUInt4:
    case DType::kUInt2:
      return at<std::uint8_t>(data, k);
    case DType::kInt8:
    case DType::kInt4:
    case DType::kInt2:
      return at<std::int8_t>(data, k);
    case DType::kInt16:
      return at<std::int16_t>(data, k);
    case DType::kUInt16:
      return at<std::uint16_t>(data, k);
    case DType::kInt32:
      return at<std::int32_t>(data, k);
    case DType::kUInt32:
      return at<std::uint32_t>(data, k);
    case DType::kInt64:
      return static_cast<double>(at<std::int64_t>(data, k));
    case DType::kUInt64:
      return static_cast<double>(at<std::uint64_t>(data, k));
    case DType::kFloat32:
      return at<float>(data, k);
    case DType::kFloat64:
      return at<double>(data, k);
    case DType::kFloat8E8M0: {
      const unsigned c = at<std::uint8_t>(data, k);
      return c == 255 ? std::nan("") : std::ldexp(1.0, static_cast<int>(c) - 127);
    }
    default:
      fail(ErrorKind::kInternal, "internal error: numbers of dtype {}", name(t));
  }
}

void encode(DType t, void* data, std::int64_t k, double v) {
  t = part_type(t);
  if (const FloatFormat* f = float_format(t)) {
    const unsigned c = encode_small(*f, v);
    if (bits_of(*f) == 16)
      put<std::uint16_t>(data, k, static_cast<std::uint16_t>(c));
    else
      put<std::uint8_t>(data, k, static_cast<std::uint8_t>(c));
    return;
  }
  switch (t) {
    case DType::kBool:
      return put<std::uint8_t>(data, k, v != 0);
    case DType::kUInt8:
      return put_integer<std::uint8_t>(data, k, v, 0, 255);
    case DType::kUInt4:
      return put_integer<std::uint8_t>(data, k, v, 0, 15);
    case DType::kUInt2:
      return put_integer<std::uint8_t>(data, k, v, 0, 3);
    case DType::kInt8:
      return put_integer<std::int8_t>(data, k, v, -128, 127);
    case DType::kInt4:
      return put_integer<std::int8_t>(data, k, v, -8, 7);
    case DType::kInt2:
      return put_integer<std::int8_t>(data, k, v, -2, 1);
    case DType::kInt16:
      return put_integer<std::int16_t>(data, k, v, -32768, 32767);
    case DType::kUInt16:
      return put_integer<std::uint16_t>(data, k, v, 0, 65535);
    case DType::kInt32:
      return put_integer<std::int32_t>(data, k, v, -0x1p31, 0x1p31 - 1);
    case DType::kUInt32:
      return put_integer<std::uint32_t>(data, k, v, 0, 0x1p32 - 1);
    case DType::kInt64:
      return put_integer<std::int64_t>(data, k, v, -0x1p63, 0x1p63);
    case DType::kUInt64:
      return put_integer<std::uint64_t>(data, k, v, 0, 0x1p64);
    case DType::kFloat32:
      return put<float>(data, k, static_cast<float>(v));
    case DType::kFloat64:
      return put<double>(data, k, v);
    case DType::kFloat8E8M0: {
      const double e = v > 0 ? std::nearbyint(std::log2(v)) : -127;
      return put<std::uint8_t>(data, k,
                               std::isnan(v) ? 255 : static_cast<std::uint8_t>(std::clamp(e, -127.0, 127.0) + 127));
    }
    default:
      fail(ErrorKind::kInternal, "internal error: numbers of dtype {}", name(t));
  }
}

std::int64_t ordinal(DType t, const void* data, std::int64_t k) {
  t = part_type(t);
  if (t == DType::kFloat32) {
    const auto bits = at<std::int32_t>(data, k);
    return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7fffffff) : bits;
  }
  if (t == DType::kFloat64) {
    const auto bits = at<std::int64_t>(data, k);
    return bits < 0 ? -(bits & 0x7fffffffffffffff) : bits;
  }
  if (t == DType::kFloat8E8M0) return at<std::uint8_t>(data, k);
  const FloatFormat* f = float_format(t);
  check(f != nullptr, "ordinals of dtype {}", name(t));
  const unsigned c = code_at(*f, data, k);
  const auto m = static_cast<std::int64_t>(c & magnitude_mask(*f));
  return c & ~magnitude_mask(*f) ? -m : m;
}

double epsilon(DType t) {
  t = part_type(t);
  if (t == DType::kFloat32) return 0x1p-23;
  if (t == DType::kFloat64) return 0x1p-52;
  if (t == DType::kFloat8E8M0) return 1;
  const FloatFormat* f = float_format(t);
  check(f != nullptr, "precision of dtype {}", name(t));
  return std::ldexp(1.0, -f->mantissa_bits);
}

}  // namespace sardonyx::cli
