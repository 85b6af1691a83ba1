// Number formats of matrix operands, written from their definitions (OCP FP8 and MX specifications, IEEE 754).
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

struct Format {
  const char* name;
  int bits, exponentBits, fractionBits, bias;  ///< exponentBits 0: an integer
  bool isSigned = true;
};

inline const Format kF32Format{"f32", 32, 8, 23, 127}, kF16Format{"f16", 16, 5, 10, 15},
    kBf16Format{"bf16", 16, 8, 7, 127}, kFp8Format{"fp8", 8, 4, 3, 7}, kBf8Format{"bf8", 8, 5, 2, 15},
    kFp8FnuzFormat{"fp8", 8, 4, 3, 8}, kBf8FnuzFormat{"bf8", 8, 5, 2, 16}, kFp6Format{"fp6", 6, 2, 3, 1},
    kBf6Format{"bf6", 6, 3, 2, 3}, kFp4Format{"fp4", 4, 2, 1, 1}, kI8Format{"i8", 8, 0, 0, 0},
    kU8Format{"u8", 8, 0, 0, 0, false}, kI4Format{"i4", 4, 0, 0, 0}, kU4Format{"u4", 4, 0, 0, 0, false};

/// Encoding of a number that the format holds exactly.
inline std::uint32_t encode(const Format& f, double v) {
  std::uint32_t mask = f.bits == 32 ? ~0u : (1u << f.bits) - 1;
  if (!f.exponentBits) return static_cast<std::uint32_t>(static_cast<int>(v)) & mask;
  if (v == 0) return 0;
  int e = std::max(std::ilogb(v), 1 - f.bias);
  auto significand = static_cast<std::uint32_t>(std::ldexp(std::fabs(v), f.fractionBits - e));
  EXPECT_EQ(std::ldexp(significand, e - f.fractionBits), std::fabs(v)) << v << " is no number of " << f.name;
  std::uint32_t code = significand >> f.fractionBits ? static_cast<std::uint32_t>(e + f.bias) << f.fractionBits |
                                                           (significand - (1u << f.fractionBits))
                                                     : significand;
  return (v < 0 ? 1u << (f.bits - 1) : 0) | code;
}

/// A small number that the format holds exactly, from random bits: sums of products of these are exact in f32, and in
/// f16 where the test says so.
inline double pick(const Format& f, std::uint32_t random) {
  if (!f.exponentBits) {
    int range = f.bits == 8 ? 256 : 16;
    int v = static_cast<int>(random >> 8) % range;
    return f.isSigned ? v - range / 2 : v;
  }
  static const double values[] = {0, 1, -1, 2, -2, 0.5, -0.5, 1.5, -1.5, 3, -3, 4, -4, 1, 0.5, 2};
  return values[random >> 8 & 15];
}
