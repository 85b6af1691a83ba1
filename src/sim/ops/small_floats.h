// Number formats of 4 to 16 bits that matrix instructions, dot products and conversions share, in both directions.
// Sources: "OCP 8-bit Floating Point Specification", "OCP Microscaling Formats (MX) Specification" and, for the FNUZ
// formats of gfx942 (no infinity, no negative zero, a bias greater by one), the MI300 ISA document, "Number formats".
#pragma once
#include <cstdint>

namespace sardonyx::sim {

/// A binary format with sign, exponent and fraction of a few bits.
struct SmallFormat {
  /// What the encodings of the largest exponent mean.
  enum Kind : std::uint8_t {
    kIeee,       ///< infinity and NaNs (half, bfloat16, E5M2)
    kOneNan,     ///< all ones is NaN, the rest are numbers (E4M3)
    kFnuz,       ///< NaN is the encoding of negative zero; the rest are numbers
    kFiniteOnly  ///< numbers only (FP6, FP4)
  };
  int exponentBits, fractionBits, bias;
  Kind kind;
  int bits() const { return 1 + exponentBits + fractionBits; }
};

inline constexpr SmallFormat kHalf{5, 10, 15, SmallFormat::kIeee}, kBfloat16{8, 7, 127, SmallFormat::kIeee},
    kFp8{4, 3, 7, SmallFormat::kOneNan}, kBf8{5, 2, 15, SmallFormat::kIeee}, kFp8Fnuz{4, 3, 8, SmallFormat::kFnuz},
    kBf8Fnuz{5, 2, 16, SmallFormat::kFnuz}, kFp6{2, 3, 1, SmallFormat::kFiniteOnly},
    kBf6{3, 2, 3, SmallFormat::kFiniteOnly}, kFp4{2, 1, 1, SmallFormat::kFiniteOnly};

/// The number that the low bits of `code` encode; exact.
double decodeSmall(const SmallFormat& f, std::uint32_t code);

/// What a value too large for the format becomes.
enum class Overflow : std::uint8_t { kToNanOrInfinity, kSaturate };

/// `v` in format `f`, to nearest even; with `random` not null, stochastically: the 32 random bits are added as a
/// fraction of the last place and the sum is truncated. NaN becomes a quiet NaN of the same sign, or where the format
/// has none the largest magnitude.
std::uint32_t encodeSmall(const SmallFormat& f, double v, Overflow overflow, const std::uint32_t* random = nullptr);

/// Values by code, for formats of up to 8 bits (256 entries; codes above the format's bits repeat).
const float* smallTable(const SmallFormat& f);

}  // namespace sardonyx::sim
