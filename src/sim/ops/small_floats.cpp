// See small_floats.h.
#include "sim/ops/small_floats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

namespace sardonyx::sim {

double decodeSmall(const SmallFormat& f, std::uint32_t code) {
  std::uint32_t sign = code >> (f.bits() - 1) & 1, exponent = code >> f.fractionBits & ((1u << f.exponentBits) - 1),
                fraction = code & ((1u << f.fractionBits) - 1);
  std::uint32_t top = (1u << f.exponentBits) - 1;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.kind == SmallFormat::kFnuz && sign && !exponent && !fraction) return nan;
  if (f.kind == SmallFormat::kOneNan && exponent == top && fraction == (1u << f.fractionBits) - 1)
    return sign ? -nan : nan;
  if (f.kind == SmallFormat::kIeee && exponent == top) {
    double special = fraction ? nan : std::numeric_limits<double>::infinity();
    return sign ? -special : special;
  }
  double magnitude = exponent
                         ? std::ldexp(1.0 + std::ldexp(fraction, -f.fractionBits), static_cast<int>(exponent) - f.bias)
                         : std::ldexp(fraction, 1 - f.bias - f.fractionBits);
  return sign ? -magnitude : magnitude;
}

std::uint32_t encodeSmall(const SmallFormat& f, double v, Overflow overflow, const std::uint32_t* random) {
  std::uint32_t sign = std::signbit(v) ? 1u << (f.bits() - 1) : 0;
  std::uint32_t top = (1u << f.exponentBits) - 1, fractionMask = (1u << f.fractionBits) - 1;
  std::uint32_t largest = f.kind == SmallFormat::kIeee     ? (top << f.fractionBits) - 1
                          : f.kind == SmallFormat::kOneNan ? (top << f.fractionBits | fractionMask) - 1
                                                           : top << f.fractionBits | fractionMask;
  std::uint32_t infinity = top << f.fractionBits;
  std::uint32_t nan = f.kind == SmallFormat::kIeee     ? sign | infinity | 1u << (f.fractionBits - 1)
                      : f.kind == SmallFormat::kOneNan ? sign | largest | 1
                      : f.kind == SmallFormat::kFnuz   ? 1u << (f.bits() - 1)
                                                       : sign | largest;
  if (v != v) return nan;
  std::uint32_t tooLarge = overflow == Overflow::kSaturate || f.kind == SmallFormat::kFiniteOnly ? sign | largest
                           : f.kind == SmallFormat::kIeee                                        ? sign | infinity
                                                                                                 : nan;
  if (std::isinf(v)) return tooLarge;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(v) & ~(1ull << 63);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  std::uint64_t significand = (bits & 0xfffffffffffffull) | (bits >> 52 ? 1ull << 52 : 0);
  // Bits of the significand below the result's last place; at most 62, where all of them are far below it.
  int binade = std::max(exponent, 1 - f.bias);
  int drop = 52 - f.fractionBits + binade - exponent;
  if (drop > 62) significand >>= std::min(drop - 62, 63), drop = 62;
  std::uint64_t rounding = random ? static_cast<std::uint64_t>(*random) << (drop - 32)
                                  : (1ull << (drop - 1)) - 1 + (significand >> drop & 1);
  std::int64_t code = static_cast<std::int64_t>((significand + rounding) >> drop);
  if (code == 0) return f.kind == SmallFormat::kFnuz ? 0 : sign;
  // The encodings of a format are consecutive in magnitude; rounding up to the next binade falls out of the addition.
  std::int64_t full = code + (static_cast<std::int64_t>(binade + f.bias - 1) << f.fractionBits);
  if (full > largest) return tooLarge;
  return sign | static_cast<std::uint32_t>(full);
}

const float* smallTable(const SmallFormat& f) {
  static std::mutex mutex;
  static auto* tables = new std::map<int, std::array<float, 256>>;
  int key = f.exponentBits | f.fractionBits << 4 | f.bias << 8 | f.kind << 16;
  std::lock_guard lock(mutex);
  auto [it, isNew] = tables->try_emplace(key);
  if (isNew)
    for (std::uint32_t c = 0; c < 256; ++c) it->second[c] = static_cast<float>(decodeSmall(f, c));
  return it->second.data();
}

}  // namespace sardonyx::sim
