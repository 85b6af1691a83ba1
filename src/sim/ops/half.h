// Half-float helpers that need care with double rounding.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace sardonyx::sim {

/// a * b + c of three half values as an f32 that rounds to the same half as the exact result. The product is exact in
/// double; the sum is rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), first
/// to 53 bits, then to 24, so that the last rounding to 11 bits sees every discarded bit.
inline float fmaForHalf(float a, float b, float c) {
  double p = static_cast<double>(a) * static_cast<double>(b), s = p + static_cast<double>(c);
  // TwoSum: the error of s, exact in double.
  double bb = s - p, e = (p - (s - bb)) + (static_cast<double>(c) - bb);
  std::uint64_t bits = std::bit_cast<std::uint64_t>(s);
  if (e != 0 && e == e && !(bits & 1)) bits = (e > 0) == (s > 0) ? bits | 1 : bits - 1;
  s = std::bit_cast<double>(bits);
  float f = static_cast<float>(s);
  if (static_cast<double>(f) != s && f == f && std::isfinite(f)) {
    std::uint32_t fb = std::bit_cast<std::uint32_t>(f);
    bool tooLarge = std::fabs(static_cast<double>(f)) > std::fabs(s);
    fb = (tooLarge ? fb - 1 : fb) | 1;
    f = std::bit_cast<float>(fb);
  }
  return f;
}

}  // namespace sardonyx::sim
